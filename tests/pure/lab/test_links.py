"""Links of a lab that are bad, and ways that are cut: what is read, what is set, and what it reads like."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.lab import links
from weft.lab.commands import show
from weft.lab.inside.changes import rules
from weft.lab.inside.changes.rules import Place
from weft.lab.links import STORE, Change, Conditions, Cut, Link, group
from weft.lab.report import LinksReport, ThingReport, TurnReport
from weft.model.errors import ConfigError
from weft.model.value import replace


@pytest.mark.parametrize(
    "text, milliseconds",
    [("20ms", 20), ("1.5s", 1500), ("800us", 0.8), (" 20 MS ", 20), ("0", 0), (".5s", 500), ("60s", 60_000)],
)
def test_delays(text: str, milliseconds: float):
    assert links.read_delay(text) == pytest.approx(milliseconds)


@pytest.mark.parametrize("text, percent", [("5%", 5), ("0.1 %", 0.1), ("5", 5), ("100%", 100), ("0", 0)])
def test_losses(text: str, percent: float):
    assert links.read_loss(text) == percent


@pytest.mark.parametrize(
    "text, bits",
    [
        ("50mbit", 50_000_000),
        ("500Kbit", 500_000),
        ("1gbit", 10**9),
        ("8000bit", 8000),
        ("2.5mbit", 2_500_000),
        ("0", 0),
        ("100gbit", 10**11),
    ],
)
def test_rates(text: str, bits: int):
    assert links.read_rate(text) == bits


@pytest.mark.parametrize("text", ["", "ms", "20", "-1ms", "20m", "61s", "1e3ms", "5%", "nan", "1 2ms"])
def test_what_is_no_delay(text: str):
    with pytest.raises(ValueError, match=r"."):
        links.read_delay(text)


@pytest.mark.parametrize("text", ["", "%", "101%", "-1", "5ms", "5%%"])
def test_what_is_no_loss(text: str):
    with pytest.raises(ValueError, match=r"."):
        links.read_loss(text)


@pytest.mark.parametrize("text", ["", "50", "50mbps", "7999bit", "0.001bit", "101gbit", "50 mbit/s"])
def test_what_is_no_rate(text: str):
    with pytest.raises(ValueError, match=r"."):
        links.read_rate(text)


@given(st.sampled_from([links.read_delay, links.read_loss, links.read_rate]), st.text())
def test_any_text_is_read_or_refused_in_words(read, text: str):
    try:
        number = read(text)
    except ValueError as error:
        number, said = 0, str(error)
    else:
        said = repr(text)
    assert number >= 0
    assert repr(text) in said


def test_what_is_not_named_stays():
    link = Change(loss=5.0).of(Link(delay=20.0, up=False))
    assert link == Link(delay=20.0, loss=5.0, up=False)
    assert Change(up=True, rate=8000).of(link) == Link(delay=20.0, loss=5.0, rate=8000)
    assert Change(loss=0.0).of(link) == Link(delay=20.0, up=False)
    assert Change(clear=True).of(link) == Link()


def test_conditions_hold_what_is_not_as_new():
    now = Conditions().changed(["node1", "node2"], Change(loss=5.0))
    assert now.link("node2") == Link(loss=5.0)
    assert now.link("node3") == Link()
    assert now.changed(["node1", "node2"], Change(clear=True)) == Conditions()


def test_partitions_and_their_end():
    there, back = Cut(source="node1", target="node2"), Cut(source="node2", target="node1")
    now = Conditions().partitioned(["node1"], ["node2"], one_way=True)
    assert now.in_order() == [there]
    now = now.partitioned(["node1"], ["node2"], one_way=False).partitioned(["node3"], [STORE], one_way=True)
    assert now.in_order() == [there, back, Cut(source="node3", target=STORE)]
    assert now.healed(["node2"], ["node1"]).in_order() == [Cut(source="node3", target=STORE)]
    assert now.healed(["node1"], ["node3"]) == now
    everything = ["node1", "node2", "node3", STORE]
    assert now.healed(everything, everything) == Conditions()


def test_partitions_between_groups():
    now = Conditions().partitioned(["a1", "a2"], ["b1", STORE], one_way=False)
    assert len(now.cuts) == 8
    assert Cut(source="a2", target=STORE) in now.cuts
    assert Cut(source="a1", target="a2") not in now.cuts
    assert len(now.healed(["a1"], ["b1", STORE]).cuts) == 4


@pytest.mark.parametrize(
    "text, meant",
    [
        ("a1", ["a1"]),
        ("a1,b2", ["a1", "b2"]),
        ("a*", ["a1", "a2"]),
        ("a*,a1,*2", ["a1", "a2", "b2"]),
        ("b?,store", ["b1", "b2", "store"]),
    ],
)
def test_a_word_may_mean_several_places(text, meant):
    assert group(text, ["a1", "a2", "b1", "b2", STORE]) == meant


@pytest.mark.parametrize("text", ["c*", "a1,c1", "", "a1,"])
def test_a_word_that_means_no_place_is_refused(text):
    with pytest.raises(ConfigError, match="no node of this name; expected one of a1, b1"):
        group(text, ["a1", "b1"])


def test_a_node_that_goes_takes_its_conditions_along():
    now = Conditions().changed(["node1", "node2"], Change(up=False)).partitioned(["node1"], ["node2"], one_way=False)
    assert now.without("node2") == Conditions(links={"node1": Link(up=False)})


def place(number: int, segment: int) -> rules.Place:
    own = ip_address(f"172.{32 - segment}.0.{number}")
    return rules.Place(port=f"port{number}", segment=segment, addresses=(own,))


def test_a_node_for_which_something_is_set():
    now = Conditions().changed(["node1"], Change(loss=5.0)).partitioned(["node2"], [STORE], one_way=True)
    assert [now.concern(node) for node in ("node1", "node2", "node3")] == [True, True, False]


def test_rules_at_the_switch():
    one, two, far = (place(number, segment) for number, segment in ((1, 1), (2, 1), (3, 2)))
    store = rules.Place(addresses=(ip_address("172.31.0.1"), ip_address("fd31::1")))
    cuts = [(two, one), (one, store), (store, two), (one, far)]
    assert rules.transaction({"port1": 5.0}, cuts).splitlines() == [
        "add table bridge weft-lab",
        "delete table bridge weft-lab",
        "add table bridge weft-lab",
        "add set bridge weft-lab lost { type ether_addr . ether_addr; flags dynamic; size 65535; }",
        "add chain bridge weft-lab lose",
        "add rule bridge weft-lab lose update @lost { ether saddr . ether daddr counter }",
        "add rule bridge weft-lab lose drop",
        "add chain bridge weft-lab prerouting { type filter hook prerouting priority 0; }",
        'add rule bridge weft-lab prerouting iifname "port1" numgen random mod 1000000 <= 49999 goto lose',
        "add chain bridge weft-lab postrouting { type filter hook postrouting priority 0; }",
        'add rule bridge weft-lab postrouting oifname "port1" numgen random mod 1000000 <= 49999 goto lose',
        "add chain bridge weft-lab forward { type filter hook forward priority 0; }",
        'add rule bridge weft-lab forward iifname "port2" oifname "port1" goto lose',
        "add chain bridge weft-lab input { type filter hook input priority 0; }",
        'add rule bridge weft-lab input iifname "port1" ip daddr 172.31.0.1 goto lose',
        'add rule bridge weft-lab input iifname "port1" ip6 daddr fd31::1 goto lose',
        'add rule bridge weft-lab input iifname "port1" ip daddr 172.30.0.3 goto lose',
        "add chain bridge weft-lab output { type filter hook output priority 0; }",
        'add rule bridge weft-lab output oifname "port2" ip saddr 172.31.0.1 goto lose',
        'add rule bridge weft-lab output oifname "port2" ip6 saddr fd31::1 goto lose',
    ]
    assert " <= 999999 goto lose" in rules.transaction({"port1": 100.0}, [])
    assert " <= 0 goto lose" in rules.transaction({"port1": 0.000001}, [])
    assert rules.transaction({}, []).splitlines() == ["add table bridge weft-lab", "delete table bridge weft-lab"]


def test_rules_that_count():
    assert rules.counting(wanted=False).splitlines() == [
        "add table bridge weft-lab-count",
        "delete table bridge weft-lab-count",
    ]
    assert rules.counting(wanted=True).splitlines() == [
        "add table bridge weft-lab-count",
        "delete table bridge weft-lab-count",
        "add table bridge weft-lab-count",
        "add set bridge weft-lab-count sent { type ether_addr . ether_addr; flags dynamic; size 65535; }",
        "add chain bridge weft-lab-count prerouting { type filter hook prerouting priority -300; }",
        "add rule bridge weft-lab-count prerouting update @sent { ether saddr . ether daddr counter }",
    ]


def test_what_people_see_of_links():
    report = LinksReport(
        links={"node1": Link(), "node2": Link(up=False, delay=1.5, loss=0.1, rate=2_500_000)},
        cuts=[Cut(source="node1", target="node2"), Cut(source="node1", target=STORE)],
    )
    assert show.links(report) == (
        "NODE   LINK  DELAY   LOSS   RATE\n"
        "node1  up    -       -      -\n"
        "node2  down  1.5 ms  0.1 %  2.5 Mbit/s\n"
        "cut: node1 -> node2, store\n"
    )
    assert links.words(report.links["node2"]) == "down, delay 1.5 ms, loss 0.1 %, rate 2.5 Mbit/s"
    assert links.words(Link(loss=5.0)) == "loss 5 %"
    assert not links.words(Link())


@pytest.mark.parametrize("rate, text", [(8000, "8 kbit/s"), (999, "999 bit/s"), (10**9, "1 Gbit/s"), (0, "0 bit/s")])
def test_rates_for_people(rate: int, text: str):
    assert links.shown_rate(rate) == text


def test_what_people_see_of_things():
    things = [
        ThingReport(name="node2", state="exited 0", link="down"),
        ThingReport(name="node1/weftd", state="not ready", problems=["store failed: STORE-001 x"]),
    ]
    assert show.things(TurnReport(things=things, well=True)) == (
        "node2: weftd exited 0, link down\nnode1/weftd: not ready\nnode1/weftd: store failed: STORE-001 x\n"
    )


BEHIND = Place(
    port="port2",
    segment=2,
    addresses=(ip_address("172.30.0.12"), ip_address("fd30::12")),
    outside=(ip_address("172.31.0.2"), ip_address("fd31::2")),
    wireguard=40002,
)
BEYOND = Place(port="port3", segment=3, addresses=(ip_address("172.29.0.13"),), outside=(ip_address("172.31.0.3"),))
OPEN = Place(port="port1", addresses=(ip_address("172.31.0.11"),))


def test_a_router_with_nat_drops_what_nobody_has_asked_for_and_keeps_a_port_or_does_not():
    cone = rules.nat("cone", lab=[ip_address("172.31.0.1")], nodes=[BEHIND])
    assert 'forward iifname "outside" ip saddr 172.31.0.1 accept' in cone
    for chain in ("input", "forward"):
        assert f'{chain} iifname "outside" ct state new drop' in cone
    assert "ip saddr 172.30.0.12 udp sport 51820 snat ip to 172.31.0.2:40002" in cone
    assert "ip6 saddr fd30::12 udp sport 51820 snat ip6 to [fd31::2]:40002" in cone
    assert "fully-random" not in cone
    hard = rules.nat("hard", lab=[], nodes=[BEHIND])
    assert 'postrouting oifname "outside" masquerade fully-random' in hard
    assert "snat" not in hard


@pytest.mark.parametrize(
    "source, target, rule",
    [
        (OPEN, BEHIND, 'forward oifname "port2" ip saddr 172.31.0.11'),
        (BEHIND, OPEN, 'forward iifname "port2" ip daddr 172.31.0.11'),
        (BEYOND, BEHIND, 'forward iifname "port3" ip daddr 172.31.0.2 udp dport 40002'),
        (BEHIND, BEYOND, 'forward iifname "port2" ip daddr 172.31.0.3'),
        (BEHIND, replace(BEHIND, port="port4"), 'forward iifname "port2" oifname "port4"'),
    ],
)
def test_a_cut_of_a_node_behind_a_nat_is_made_at_its_port(source: Place, target: Place, rule: str):
    assert f"{rule} goto lose" in rules.transaction({}, [(source, target)])
