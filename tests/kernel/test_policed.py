"""What a trace says of policies, read of what nft lists of their tables, agrees with what policies say of a flow."""

import asyncio
import os
import random
import re
from collections import Counter
from contextlib import closing
from ipaddress import ip_address
from itertools import count

from tests.support.netns import Netns
from tests.support.policy.deciding import decided, expected, is_here, judging
from tests.support.policy.worlds import drawn, flows
from weft.desired.policy.judge import judged
from weft.desired.policy.verdict import Asked
from weft.diag.rules.matching import ECHO, Packet
from weft.diag.rules.policed import policed
from weft.diag.rules.ruleset import parse
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netfilter.policies import PolicyTables
from weft.kernel.tools import Tools
from weft.plan.diff import Delete, Put, diff

WORLDS, FLOWS = 10, 40
RULE = re.compile(r"(?P<way>egress|ingress) \w+: (?P<path>\S+) of (?P<policy>\S+) (?P<end>allows|denies) it")


def listing(netns: Netns, wanted, have):
    async def apply():
        with closing(NfSocket.open()) as nf:
            tables, steps = PolicyTables(nf, Tools()), diff(wanted, have)
            for kind in (Put, Delete):
                assert not await tables.apply([step for step in steps if isinstance(step, kind)])

    netns.call(lambda: asyncio.run(apply()))
    return parse([netns.run("nft -j list ruleset")])


def packet(flow):
    source, target, protocol, port = flow
    ends = ip_address(source), ip_address(target)
    links = ["cni0" if is_here(each) else "eth0" for each in (source, target)]
    kind = ECHO[ends[0].version] if protocol == "ICMP" else protocol.lower()
    ports = {"source_port": 40000, "target_port": port} if port else {}
    return Packet(source=ends[0], target=ends[1], protocol=kind, iif=links[0], oif=links[1], **ports)


def test_the_rule_that_is_named_is_one_that_decides(netns: Netns):
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance, have, counts = random.Random(seed), {}, Counter()
    for number in count():
        if number >= WORLDS and counts["allows"] > 20 and counts["denies"] > 5:
            break  # some worlds have few policies that deny
        world = drawn(chance)
        wanted, known = decided(world, bridge="cni0").wanted, judging(world)
        rules, have = listing(netns, wanted, have), wanted
        for flow in flows(chance, world, FLOWS):
            said = list(policed(rules, "forward", packet(flow)))
            assert all(each.verdict.passes is not None for each in said), (said, flow)
            assert all(each.verdict.passes for each in said) is expected(world, flow), (said, flow, world)
            source, target = (known.at(ip_address(each)) for each in flow[:2])
            asked = Asked(source=source, target=target, protocol=flow[2].lower(), port=flow[3])
            sides = {side.direction: side for side in judged(asked, known).sides}
            for found in filter(None, (RULE.fullmatch(each.words) for each in said)):
                counts[found["end"]] += 1
                fitting = [
                    (policy.policy, rule.path)
                    for policy in sides[found["way"]].policies
                    for rule in policy.rules
                    if rule.fits
                ]
                assert any(found["policy"] == name and found["path"].startswith(path) for name, path in fitting), said
        assert number < 20 * WORLDS, counts
