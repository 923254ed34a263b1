"""The text of iptables against the programs: what is written is taken, and does what the fake of pure tests does."""

from ipaddress import ip_address, ip_interface
from random import Random

import pytest

from tests.support.cni.iptablesfake import Refused, restore
from tests.support.cni.portmaps import wanted
from tests.support.firewall import wanted as wanted_by_the_node
from weft.cni.attachment import masq
from weft.cni.plugins.firewall import chains
from weft.cni.plugins.portmap import iptables as portmap
from weft.kernel.netfilter.iptables import render
from weft.wire.iptables import Table, parse, payload

VARIANTS = ["iptables-nft", "iptables-legacy"]
TABLES = ["nat", "filter"]


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


def save(netns, variant, name):
    return parse(netns.run(f"{variant}-save -t {name}"))


def take(netns, variant, name, lines):
    """Have the program take these lines of a table; tell whether it did."""
    done = netns.run(
        f"{variant}-restore --noflush >/dev/null 2>&1 && echo taken || true", input=payload(name, lines) or "\n"
    )
    return done == "taken\n"


def lines_of_nat(chance: Random, have: Table) -> list[str]:
    id_, last = chance.choice([("c1", 2), ("c2", 3), ("c2", 4)])
    address = ip_interface(f"10.88.0.{last}/16")
    chain, ports = masq.chain_of("net", id_), portmap.chain_of("net", id_)
    node = wanted_by_the_node("iptables", 4, random_fully=chance.random() < 0.5)
    match chance.randrange(6):
        case 0:
            return masq.additions(have, chain, masq.comment_of("net", id_), [address])
        case 1:
            return masq.removals(have, chain, chance.choice([[], [address]]))
        case 2:
            return portmap.additions(have, wanted(str(address)), 4, chain=ports, comment=portmap.comment_of("net", id_))
        case 3:
            return portmap.removals(have, ports, ours=chance.choice([[], [address.ip]]))
        case 4:
            return masq.leftovers(have, "net", chance.choice([{chain}, set()]), {chain: [address]})
        case _:
            return render(chance.choice([node.chains[:1], ()]), {"nat": have}).splitlines()[1:-1]


def lines_of_filter(chance: Random, have: Table) -> list[str]:
    addresses = [ip_address(f"10.88.0.{last}") for last in chance.sample(range(2, 6), chance.randrange(4))]
    bridge = chance.choice(["cni0", "cni1"])
    match chance.randrange(5):
        case 0:
            return chains.additions(have, addresses, chance.choice(["CNI-ADMIN", "MINE"]))
        case 1:
            return chains.removals(have, addresses)
        case 2:
            return chains.isolation(have, bridge, chance.choice(["isolated", "same-bridge"]))
        case 3:
            return chains.isolation_removals(have, {bridge})
        case _:
            node = wanted_by_the_node("iptables", 4)
            return render(chance.choice([node.chains[1:], ()]), {"filter": have}).splitlines()[1:-1]


@pytest.mark.parametrize("name, lines", [("nat", lines_of_nat), ("filter", lines_of_filter)], ids=TABLES)
def test_a_table_is_what_the_fake_says_after_each_change_that_we_write(netns, variant, name, lines):
    chance = Random(name)
    assert take(netns, variant, name, ["-N MINE", "-X MINE"])  # so that the kernel's own chains are there
    have: Table = save(netns, variant, name)
    changes = 0
    while changes < 40:
        change = lines(chance, have)
        if change:
            have = restore(have, change)
            assert take(netns, variant, name, change), change
            assert save(netns, variant, name) == have
            changes += 1


@pytest.mark.parametrize(
    "line",
    [
        "-N THERE",
        "-A NOWHERE -j ACCEPT",
        "-A THERE -j NOWHERE",
        "-I NOWHERE 1 -j ACCEPT",
        "-D THERE -j DROP",
        "-D NOWHERE -j DROP",
        "-F NOWHERE",
        "-X NOWHERE",
        "-X THERE",
        "-X FILLED",
    ],
)
def test_what_the_fake_refuses_is_refused_with_all_that_is_beside_it(netns, variant, line):
    assert take(
        netns, variant, "nat", ["-N THERE", "-N FILLED", "-A FILLED -s 10.0.0.1/32 -j ACCEPT", "-A OUTPUT -j THERE"]
    )
    have = save(netns, variant, "nat")
    with pytest.raises(Refused):
        restore(have, ["-N NEW", line])
    assert not take(netns, variant, "nat", ["-N NEW", line])
    assert save(netns, variant, "nat") == have
