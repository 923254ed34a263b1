"""Runs the doctor's cheap checks once a minute, so that problems of the node are reported early.

A finding is a warning in the log, once, and is shown by `weft status` as long as it lasts. The checks run in a thread,
and their modules are imported there, after the start.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Final

from weft.beside.threads import beside
from weft.daemon.state import Reporter
from weft.model.errors import Problem
from weft.model.node.nodestate import NodeState

log = logging.getLogger(__name__)

_FIRST: Final = 5.0  # seconds after the start, which has other things to do
_AGAIN: Final = 60.0
_PEERS: Final = 50  # that are judged: what ails a node, ails the way to most


async def watch(report: Reporter, subnet_file: Path) -> None:
    """Look for ever."""
    await asyncio.sleep(_FIRST)
    while True:
        state = await report.look(peers=_PEERS)
        try:
            found = await beside(partial(_find, state, subnet_file))
        except OSError as error:  # no more threads now
            log.debug("no look at the node: %s", error)
        else:
            tell(report.findings, found)
            report.findings = found
        await asyncio.sleep(_AGAIN)


def _find(state: NodeState, subnet_file: Path) -> list[Problem]:
    from weft.diag.checks import EACH_MINUTE
    from weft.diag.finding import ask
    from weft.diag.sight.look import Places
    from weft.diag.sight.quick_look import glance

    diagnosis = ask(EACH_MINUTE, glance(state, Places(subnet_file=subnet_file)))
    return [finding.problem for finding in diagnosis.findings]


def tell(before: list[Problem], now: list[Problem]) -> None:
    """Log what is new and what is over, by code and place: numbers in the texts may change."""
    known, still = ({(each.code, each.where) for each in found} for found in (before, now))
    for problem in now:
        if (problem.code, problem.where) not in known:
            log.warning("%s", problem)
    for problem in before:
        if (problem.code, problem.where) not in still:
            log.info("%s %s: not found any more", problem.code, problem.where)
