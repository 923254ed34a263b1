"""Removes what weft made in this network namespace, no more and no less, and looks again to prove it.

What is ours is written in the kernel: the alias `weft:…` of links, protocol 165 of routes, our names of rule sets.
Nothing is removed while a daemon keeps it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from weft.daemon import instance
from weft.daemon.kernel import NodeKernel
from weft.kernel import statefiles
from weft.kernel.firewall import Firewall
from weft.kernel.netlink import NetlinkError
from weft.kernel.rtnl import Rtnl
from weft.kernel.tools import Tools
from weft.model.errors import Problem
from weft.model.marks import ALIAS
from weft.model.reported import LinkInfo
from weft.model.snapshot import Snapshot
from weft.model.value import Value
from weft.plan.diff import Delete, diff
from weft.plan.explain import describe
from weft.wire import subnetenv

_MAX_SIZE: Final = 1 << 16


class Found(Value):
    """What is ours: rule sets and routes as steps that remove them, links by index, and the subnet file.

    `unseen` is what may be ours, and cannot be looked at here.
    """

    steps: tuple[Delete, ...]
    links: tuple[LinkInfo, ...]
    files: tuple[Path, ...]
    unseen: tuple[Problem, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """One line each, for people."""
        return (
            *(describe(step.object) for step in self.steps),
            *(f"link {link.name} ({link.kind or 'device'}, {link.alias})" for link in self.links),
            *(f"file {path}" for path in self.files),
        )


async def find(rtnl: Rtnl, firewall: Firewall, subnet_file: Path) -> Found:
    """Look for everything that is ours."""
    snapshot = await NodeKernel(rtnl).snapshot()
    links = tuple(link for link in snapshot.links if link.alias.startswith(ALIAS))
    routes = {key: thing for key, thing in snapshot.ours.items() if key[0] == "route"}
    rules = await firewall.present()
    steps = [*diff({}, rules), *diff({}, routes)]
    return Found(
        steps=tuple(step for step in steps if isinstance(step, Delete)),
        links=_once(links, snapshot),
        files=tuple(path for path in (subnet_file,) if _is_subnet_file(path)),
        unseen=tuple(await firewall.unseen(rules.keys())),
    )


def _is_subnet_file(path: Path) -> bool:
    """Tell whether a daemon wrote it: a file that was named by mistake is nobody's to remove."""
    try:
        found = subnetenv.parse(statefiles.read(path, limit=_MAX_SIZE).decode(errors="replace"))
    except OSError:
        return False
    return found.subnet_v4 is not None or found.subnet_v6 is not None


class Done(Value):
    """A clean-up: what was `found`, what a second look still finds or the kernel refused, and what nobody could see."""

    found: Found
    left: tuple[str, ...] = ()
    unseen: tuple[Problem, ...] = ()


async def clean_up(subnet_file: Path, *, dry_run: bool) -> Done:
    """Remove what is ours, and look again.

    Raises `ConfigError` (INST-001) while a daemon lives here.
    """
    firewall = Firewall(Tools())
    with Rtnl.open() as rtnl:
        found = await find(rtnl, firewall, subnet_file)
        if dry_run:
            return Done(found=found, unseen=found.unseen)
        instance.refuse_beside_others()
        refused = [*(await _remove_steps(rtnl, firewall, found.steps)), *_remove_links(rtnl, found.links)]
        for path in found.files:
            path.unlink(missing_ok=True)
        left = await find(rtnl, firewall, subnet_file)
    return Done(found=found, left=(*refused, *(f"still there: {line}" for line in left.lines)), unseen=left.unseen)


async def _remove_steps(rtnl: Rtnl, firewall: Firewall, steps: Iterable[Delete]) -> list[str]:
    rules = [step for step in steps if step.object.key[0] == "ruleset"]
    failures = [await firewall.apply(step) for step in rules]
    failures += await NodeKernel(rtnl).apply([step for step in steps if step not in rules])
    return [failure.message for failure in failures if failure is not None]


def _remove_links(rtnl: Rtnl, links: Iterable[LinkInfo]) -> list[str]:
    refused = []
    for link in links:
        try:
            rtnl.delete_link(link.index)
        except NetlinkError as error:
            refused.append(f"{link.name}: {error.strerror}")
    return refused


def _once(links: Iterable[LinkInfo], snapshot: Snapshot) -> tuple[LinkInfo, ...]:
    """Leave out the second end of a veth pair whose ends are both here: it goes with the first."""
    kept: dict[int, LinkInfo] = {}
    for link in links:
        other = snapshot.link(link.link) if link.kind == "veth" and link.peer_netns < 0 else None
        if other is None or other.index not in kept:
            kept[link.index] = link
    return tuple(kept.values())
