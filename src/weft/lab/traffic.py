"""What two readings of a lab's counters say of each second between them. Pure."""

from typing import TypeVar

from weft.lab.report import Carried, TrafficReport, WayReport
from weft.model.value import replace

T = TypeVar("T", Carried, WayReport)

_CARRIED = ("sent_bytes", "sent_packets", "received_bytes", "received_packets", "lost")
_WAY = ("bytes", "packets", "lost")


def rates(before: TrafficReport, now: TrafficReport) -> TrafficReport:
    """Return what was carried in each second since an earlier reading.

    A counter that started again at zero counts from there, and so does that of a pod that came since.
    """
    seconds = max(now.seconds - before.seconds, 1e-3)
    places = {(each.name, each.id): each for each in (*before.nodes, *before.pods)}
    ways = {(each.source, each.target): each for each in before.ways}
    moved = [_rate(ways.get((each.source, each.target)), each, _WAY, seconds) for each in now.ways]
    return TrafficReport(
        seconds=round(seconds, 3),
        nodes=[_rate(places.get((each.name, each.id)), each, _CARRIED, seconds) for each in now.nodes],
        pods=[_rate(places.get((each.name, each.id)), each, _CARRIED, seconds) for each in now.pods],
        ways=[each for each in moved if each.packets or each.lost],
    )


def _rate(before: T | None, now: T, fields: tuple[str, ...], seconds: float) -> T:
    changed = {}
    for field in fields:
        count = getattr(now, field)
        since = count - getattr(before, field, 0)
        changed[field] = round((since if since >= 0 else count) / seconds, 1)
    return replace(now, **changed)
