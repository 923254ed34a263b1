"""Has a trace's probes sent inside a lab."""

from functools import partial
from ipaddress import ip_address

from weft.diag.reaching.sending import send as send_here
from weft.lab.inside.cluster import World
from weft.lab.protocol import Probe
from weft.lab.report import SentReport


async def send(world: World, wanted: Probe) -> SentReport:
    """Send all of them at once, in the place where they come from. One that its kernel refuses is seen nowhere."""
    source, target = ip_address(wanted.address), ip_address(wanted.target)
    sending = partial(
        send_here,
        source,
        target,
        kind=wanted.kind,
        port=wanted.port,
        numbers=wanted.numbers,
        sizes=wanted.sizes,
    )
    sent = await world.inside.run(world.room(wanted.source), sending)
    return SentReport(refusal=sent.refusal, mtu=sent.mtu)
