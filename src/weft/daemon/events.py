"""Tells the store what is wrong on this node, for people who look there first (`kubectl describe node`)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from weft.cluster.store import Tenure
from weft.model.errors import ConfigError, Unavailable
from weft.model.node.status import Status
from weft.plan.announce import Announcer

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0


async def announce(tenure: Tenure[Any], status: Status, *, now: Callable[[], float]) -> None:
    """Run for ever; what fails is not tried again. Ends, with a word in the log, when the store forbids it."""
    announcer = Announcer(now())
    said = False
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if status.store is not None:  # it hears nothing
            continue
        asked = (*status.look().values(), *(ask() for ask in status.losses.values()))
        problems = [problem for problem in asked if problem is not None]
        for event in announcer.take(problems, now(), ready=status.ready):
            try:
                await tenure.tell(event)
            except (Unavailable, ConfigError) as error:
                problem = error.problems[0]
                if problem.code == "API-001":
                    log.warning("no Events of this node until weftd is started again: %s", problem)
                    return
                if not said:
                    log.warning(
                        "the API has refused an Event of this node, and weft sends no more like it: %s", problem
                    )
                said = True
                break
