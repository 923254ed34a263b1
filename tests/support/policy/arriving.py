"""What arrives on a site in a drawn world, against what the reference allows."""

from collections import Counter

from tests.support.policy.deciding import decided, expected
from tests.support.policy.site import PLACE
from tests.support.policy.worlds import flows

FLOWS = 60


def wrong(site, world, chance, spoil=dict, seconds=2):
    """The flows that arrive and should not, or the reverse, after the objects went through `spoil`; and of how many."""
    site.hold(spoil(decided(world, bridge="cni0" if site.links == "bridge" else "").wanted))
    found, counts = [], Counter()
    for service in (False, True):
        drawn_flows = [*flows(chance, world, FLOWS), *to_places(chance, world)]
        some = [flow for flow in drawn_flows if site.can_send(flow, service=service)]
        right = [expected(world, flow) for flow in some]
        counts.update(right)
        came = site.arrive(some, right, service=service, seconds=seconds)
        found += [(flow, service, here) for flow, want, here in zip(some, right, came, strict=True) if want != here]
    return found, counts


def to_places(chance, world):
    """To and from pods that run here, whether the world knows them or not."""
    for source, target, protocol, port in flows(chance, world, FLOWS // 4):
        places = [ip for ip in PLACE if (":" in ip) == (":" in source)]
        yield source, chance.choice(places), protocol, port
        yield chance.choice(places), target, protocol, port
