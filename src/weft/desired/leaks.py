"""When an attachment is leaked, or stranded: on proof only (settled.md §9). What follows from it is done elsewhere."""

from collections.abc import Callable, Collection
from enum import Enum

from weft.model.errors import Problem
from weft.model.value import Value


class State(Enum):
    ATTACHED = "attached"
    LEAKED = "leaked"
    UNKNOWN = "unknown"


class Stranded(Value):
    """An attachment that is stranded on the host while its container lives, and what is to be said of it.

    `key` is its own, as in its alias. `bridge` is the name of the bridge that it was on, if that is gone as a whole.
    """

    key: str
    problem: Problem
    bridge: str = ""


class Trace(Value):
    """What one record of an attachment proves.

    `boot` is the boot id when it was made, `netns` the inode of the host's namespace; `veth` and `index` are the
    host's end if the record is about links, else empty and 0.
    """

    boot: str
    netns: int
    veth: str = ""
    index: int = 0


class Verdict(Value):
    """`why` is for people."""

    state: State
    proof: str = ""


def judge(traces: Collection[Trace], *, boot: str, netns: int, has_host_end: Callable[[str, int], bool]) -> Verdict:
    """Judge an attachment by all records that there are of it, seen from the namespace `netns` in boot `boot`.

    A plugin that is not ours leaves no record of links: what it made is leaked after another boot, else unknown.
    """
    current = [trace for trace in traces if trace.boot == boot]
    if traces and not current:
        return Verdict(state=State.LEAKED, proof="made in an earlier boot")
    for trace in current:
        if trace.veth and trace.netns == netns:
            if has_host_end(trace.veth, trace.index):
                return Verdict(state=State.ATTACHED)
            return Verdict(state=State.LEAKED, proof=f"host end {trace.veth} (index {trace.index}) is gone")
    return Verdict(state=State.UNKNOWN)
