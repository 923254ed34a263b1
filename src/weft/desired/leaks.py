"""When an attachment is leaked: on proof only (decisions.md §9). What follows from it is done elsewhere."""

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one record of an attachment proves.

    `boot` is the boot id when it was made, `netns` the inode of the host's namespace; `veth` and `index` are the
    host's end if the record is about links, else empty and 0.
    """

    boot: str
    netns: int
    veth: str = ""
    index: int = 0


def proof(traces: Collection[Trace], *, boot: str, netns: int, has_host_end: Callable[[str, int], bool]) -> str:
    """Return why an attachment with these records is leaked, for people; empty if that is not proved.

    A plugin that is not ours leaves no record of links: what it made is leaked after another boot, else unknown.
    """
    current = [trace for trace in traces if trace.boot == boot]
    if not current:
        return "made in an earlier boot" if traces else ""
    for trace in current:
        if trace.veth and trace.netns == netns and not has_host_end(trace.veth, trace.index):
            return f"host end {trace.veth} (index {trace.index}) is gone"
    return ""
