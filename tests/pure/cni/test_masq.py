"""Names and lines of masquerade rules, byte for byte."""

from ipaddress import ip_interface

import pytest

from tests.support.cni.iptablesfake import restore
from weft.cni.attachment import masq, owners
from weft.model.attachment import Attachment
from weft.wire.iptables import parse
from weft.wire.nft import ListedChain

CHAIN = "CNI-1383eeb27000e215038bb823"
COMMENT = '-m comment --comment "name: \\"dbnet\\" id: \\"c1\\""'
POD = ip_interface("10.88.0.2/16")
EMPTY = {"PREROUTING": [], "POSTROUTING": []}
GOLDEN = parse(
    f"*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:{CHAIN} - [0:0]\n"
    f"-A POSTROUTING -s 10.88.0.2/32 {COMMENT} -j {CHAIN}\n"
    f"-A {CHAIN} -d 10.88.0.0/16 {COMMENT} -j ACCEPT\n"
    f"-A {CHAIN} ! -d 224.0.0.0/4 {COMMENT} -j MASQUERADE\nCOMMIT\n"
)
# Another interface of the container.
SHARED = restore(GOLDEN, [f"-A POSTROUTING -s 10.88.0.3/32 {COMMENT} -j {CHAIN}"])


@pytest.mark.spec("cni.md G13", cases="test-*")
@pytest.mark.spec("cni.md G14", cases="testalong*")
@pytest.mark.parametrize(
    "network, container_id, chain",
    [
        ("test", "1234", "CNI-2bbe0c48b91a7d1b8a6753a8"),
        ("testalongnamethatdoesnotmakesense", "1234", "CNI-374f33fe84ab0ed84dcdebe3"),
        ("dbnet", "c1", CHAIN),
    ],
)
def test_chain_names(network, container_id, chain):
    assert masq.chain_of(network, container_id) == chain


def test_lines_that_are_added():
    comment = masq.comment_of("dbnet", "c1")
    assert masq.additions(EMPTY, CHAIN, comment, [POD]) == [
        f"-N {CHAIN}",
        f"-I {CHAIN} 1 -d 10.88.0.0/16 {COMMENT} -j ACCEPT",
        f"-A {CHAIN} ! -d 224.0.0.0/4 {COMMENT} -j MASQUERADE",
        f"-A POSTROUTING -s 10.88.0.2/32 {COMMENT} -j {CHAIN}",
    ]
    assert restore(EMPTY, masq.additions(EMPTY, CHAIN, comment, [POD])) == GOLDEN
    assert masq.additions(GOLDEN, CHAIN, comment, [POD]) == []
    six = masq.additions(EMPTY, CHAIN, comment, [ip_interface("fd00:88::2/64")])
    assert six[1].startswith(f"-I {CHAIN} 1 -d fd00:88::/64 ")
    assert six[2].startswith(f"-A {CHAIN} ! -d ff00::/8 ")
    assert six[3].startswith("-A POSTROUTING -s fd00:88::2/128 ")


def test_lines_that_are_removed():
    jump = f"-D POSTROUTING -s 10.88.0.2/32 {COMMENT} -j {CHAIN}"
    assert masq.removals(GOLDEN, CHAIN, [POD]) == [jump, f"-F {CHAIN}", f"-X {CHAIN}"]
    assert restore(GOLDEN, masq.removals(GOLDEN, CHAIN, [POD])) == EMPTY
    assert masq.removals(GOLDEN, CHAIN, []) == [jump, f"-F {CHAIN}", f"-X {CHAIN}"]
    assert masq.removals(EMPTY, CHAIN, [POD]) == []


def test_a_chain_stays_while_another_attachment_of_the_container_uses_it():
    assert masq.removals(SHARED, CHAIN, [POD]) == [f"-D POSTROUTING -s 10.88.0.2/32 {COMMENT} -j {CHAIN}"]


def test_the_old_form_with_the_whole_subnet_goes_too():
    jump = f"POSTROUTING -s 10.88.0.2/32 {COMMENT} -j {CHAIN}"
    old = restore(GOLDEN, [f"-D {jump}", f"-A {jump.replace('10.88.0.2/32', '10.88.0.0/16')}"])
    assert masq.removals(old, CHAIN, [POD])[0].startswith("-D POSTROUTING -s 10.88.0.0/16 ")


def test_lines_of_containers_that_are_gone():
    gone = [f"-D POSTROUTING -s 10.88.0.2/32 {COMMENT} -j {CHAIN}", f"-F {CHAIN}", f"-X {CHAIN}"]
    assert masq.leftovers(GOLDEN, "dbnet", set(), {}) == gone
    assert masq.leftovers(GOLDEN, "dbnet", {CHAIN}, {}) == []
    assert masq.leftovers(GOLDEN, "db", set(), {}) == []
    note = COMMENT.replace('"name', '"dnat name')
    portmap = {chain: [rule.replace(COMMENT, note) for rule in rules] for chain, rules in GOLDEN.items()}
    assert masq.leftovers(portmap, "dbnet", set(), {}) == []


def test_a_chain_that_nobody_jumps_to_goes_too():
    orphan = GOLDEN | {"POSTROUTING": []}
    assert masq.leftovers(orphan, "dbnet", set(), {}) == [f"-F {CHAIN}", f"-X {CHAIN}"]


def test_a_container_that_has_lost_one_of_its_interfaces():
    lost = {CHAIN: [ip_interface("10.88.0.3/16")]}
    assert masq.leftovers(SHARED, "dbnet", {CHAIN}, lost) == [f"-D POSTROUTING -s 10.88.0.3/32 {COMMENT} -j {CHAIN}"]


def test_nft_rules_of_attachments_that_are_gone():
    one, two, other = (
        owners.comment_of(Attachment(network=network, container_id=id_, ifname="eth0"))
        for network, id_ in (("unit-test", "one"), ("unit-test", "two"), ("alternate", "one"))
    )
    rules = tuple(
        (f'ip saddr 10.0.0.{n} masquerade comment "{text}"', f"{n}") for n, text in enumerate((one, two, other), 7)
    )
    have = {"masq_checks": ListedChain(rules=rules)}
    seven, eight = (f"delete rule inet cni_plugins_masquerade masq_checks handle {n}" for n in (7, 8))
    assert masq.nft_leftovers(have, owners.lost("unit-test", [("one", "eth0")])) == [eight]
    assert masq.nft_leftovers(have, owners.lost("unit-test", [])) == [seven, eight]
    assert masq.nft_leftovers(have, owners.lost("unit", [])) == []
