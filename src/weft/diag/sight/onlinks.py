"""Sees what may take packets on the links of a namespace: eBPF programs, filters of tc, bridge ports that are shut."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from weft.diag.sight.node import Hanging
from weft.kernel import bpf
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.kernel.reported import FORWARDING, NO_CARRIER, LinkInfo, PortInfo

_HOOKS: Final = {tc.HOOK_IN: "what comes in", tc.HOOK_OUT: "what leaves"}
_TCX: Final = {bpf.TCX_INGRESS: "what comes in", bpf.TCX_EGRESS: "what leaves"}


def hanging() -> list[Hanging]:
    """Of the namespace that the thread is in. Raises `OSError`."""
    with Rtnl.open() as rtnl:
        hooked = (tc.hooks_in(body) for body in rtnl.dump(*tc.list_qdiscs()))
        hooks = {index: where for index, where in hooked if where}
        return [each for link in rtnl.links() for each in _on(rtnl, link, hooks.get(link.index, ()))]


def queues() -> dict[str, int]:
    """What each queueing discipline has dropped, as `Queue.tbf.eth0`. Raises `OSError`."""
    found = Counter[str]()
    with Rtnl.open() as rtnl:
        names = {link.index: link.name for link in rtnl.links()}
        for body in rtnl.dump(*tc.list_qdiscs()):
            index, kind, drops = tc.dropped_by(body)
            found[f"Queue.{kind}.{names.get(index, index)}"] += drops
    return found


def _on(rtnl: Rtnl, link: LinkInfo, hooks: tuple[int, ...]) -> Iterator[Hanging]:
    stands = link.up and link.operstate not in NO_CARRIER  # else its port is disabled by that, and nobody has shut it
    for kind, seen in _of_port(link.port) if link.port is not None and stands else ():
        yield Hanging(device=link.name, kind=kind, seen=seen)
    if link.xdp:
        yield Hanging(device=link.name, kind="program", seen=f"XDP program {_named(link.xdp)}")
    for hook in hooks:
        for body in rtnl.dump(*tc.list_hooked(link.index, hook)):
            found = tc.parse_hooked(body)
            if found.program:
                seen = f"program {_named(found.program)} of tc for {_HOOKS[hook]}"
                yield Hanging(device=link.name, kind="program", seen=seen)
            elif found.kind != "bpf" and found.is_whole:
                seen = f"filter {found.kind} of tc (priority {found.priority}) for {_HOOKS[hook]}"
                yield Hanging(device=link.name, kind="program", seen=seen)
    with suppress(OSError):  # no right to ask for eBPF, or a kernel without
        for hook, what in _TCX.items():
            for program in bpf.programs_at(link.index, hook):
                yield Hanging(device=link.name, kind="program", seen=f"program {_named(program)} (tcx) for {what}")


def _of_port(port: PortInfo) -> Iterator[tuple[str, str]]:
    if port.state != FORWARDING:
        yield "shut", f"the bridge's port is in state {port.state_words}"
    if port.isolated:
        yield "isolated", "the bridge's port is isolated"
    if port.locked:
        yield "locked", "the bridge's port is locked: it takes frames only from MACs that an FDB entry of it names"


def _named(program: int) -> str:
    with suppress(OSError):
        return f"{bpf.name_of(program)!r} (id {program})"
    return f"(id {program})"
