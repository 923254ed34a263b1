"""Which subnet a node takes."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config.netconf import NetConf, Pool
from weft.desired.allocate import Chooser, Present, choose, fits, owned, room
from weft.model.errors import Unavailable
from weft.model.lease import Lease, LeaseAttrs
from weft.model.value import Value, replace

ME = LeaseAttrs(public_ip=IPv4Address("1.2.3.4"), public_ipv6=IPv6Address("fd01::4"))
OTHER = LeaseAttrs(public_ip=IPv4Address("1.1.1.1"), public_ipv6=IPv6Address("fd01::1"))
POOL4 = Pool(
    network=IPv4Network("10.3.0.0/16"), subnet_len=24, first=IPv4Address("10.3.1.0"), last=IPv4Address("10.3.25.0")
)
POOL6 = Pool(
    network=IPv6Network("fc00::/48"),
    subnet_len=64,
    first=IPv6Address("fc00:0:0:1::"),
    last=IPv6Address("fc00:0:0:ffff::"),
)


def conf(v4=POOL4, v6=None) -> NetConf:
    return NetConf(v4=v4, v6=v6, nftables=False, backend="host-gw", options=Value())


def lease(v4: str | None, v6: str | None = None, *, attrs: LeaseAttrs = OTHER) -> Lease:
    name = "&".join(text.replace("/", "-") for text in (v4 or "0.0.0.0/0", v6) if text)
    return Lease(id=name, v4=v4 and IPv4Network(v4), v6=v6 and IPv6Network(v6), attrs=attrs)


def first(_count: int) -> int:
    return 0


LEASES = [lease(f"10.3.{third}.0/24") for third in (1, 2, 31, 4, 5)]


@pytest.mark.spec("flannel.md 11.5/acquire", "flannel.md §4.3/4-allocate")
def test_takes_any_free_subnet_in_range():
    expected = {f"10.3.{third}.0/24" for third in (3, *range(6, 26))}
    asked = []

    def nth(index):
        def pick(count):
            asked.append(count)
            return index

        return pick

    taken = {str(choose(conf(), Present(leases=LEASES), attrs=ME, pick=nth(n)).v4) for n in range(21)}
    assert taken == expected
    assert set(asked) == {21}


@pytest.mark.spec("flannel.md §4.3/4-allocate")
def test_looks_at_the_first_hundred_free():
    pool = replace(POOL4, last=IPv4Address("10.3.255.0"))
    counts = []
    chosen = choose(conf(pool), Present(leases=LEASES), attrs=ME, pick=lambda count: counts.append(count) or count - 1)
    assert counts == [100]
    assert chosen.v4 == IPv4Network("10.3.105.0/24")  # 104 bases from 1, five of them taken, 31 among them


@pytest.mark.spec("flannel.md §4.3/2-public-ip-reuse", "flannel.md 11.5/acquire-again")
def test_reuses_the_lease_with_our_public_ip():
    mine = lease("10.3.9.0/24", attrs=ME)
    chosen = choose(conf(), Present(leases=[*LEASES, mine]), attrs=ME, pick=first)
    assert (chosen.reuse, chosen.v4, chosen.stale) == (mine, mine.v4, ())


@pytest.mark.spec("flannel.md §4.3/2-public-ip-reuse")
def test_takes_the_first_of_several_in_key_order():
    mine = [lease(f"10.3.{third}.0/24", attrs=ME) for third in (2, 10)]
    assert choose(conf(), Present(leases=mine), attrs=ME, pick=first).reuse == mine[1]  # "10.3.10…" < "10.3.2…"


@pytest.mark.spec("flannel.md §4.3/2-public-ip-reuse", "flannel.md 11.5/config-changed")
def test_a_lease_of_ours_that_does_not_fit_goes():
    mine = lease("10.4.9.0/24", attrs=ME)
    chosen = choose(conf(), Present(leases=[mine]), attrs=ME, pick=first)
    assert (chosen.reuse, chosen.stale, chosen.v4) == (None, (mine,), IPv4Network("10.3.1.0/24"))


@pytest.mark.parametrize("net", ["10.3.9.0/25", "10.3.0.0/24", "10.3.26.0/24"])
def test_fits_only_in_range_and_of_the_right_length(net):
    assert not fits(conf(), lease(net))


@pytest.mark.spec("flannel.md §4.5/reservation")
def test_a_reservation_that_does_not_fit_stays():
    mine = lease("10.4.9.0/24", attrs=ME)
    chosen = choose(conf(), Present(leases=[mine], reserved=frozenset({mine.id})), attrs=ME, pick=first)
    assert (chosen.reuse, chosen.stale) == (None, ())


def test_the_recorded_key_is_ours_whatever_its_address():
    recorded, by_address = lease("10.3.9.0/24"), lease("10.3.1.0/24", attrs=ME)
    present = Present(leases=[by_address, recorded])
    assert choose(conf(), present, attrs=ME, recorded=recorded.id, pick=first).reuse == recorded
    assert [each.id for each in owned(conf(), present.leases, attrs=ME, recorded=recorded.id)] == [
        recorded.id,
        by_address.id,
    ]


@pytest.mark.spec("flannel.md §4.3/3-previous-subnet")
@pytest.mark.spec("flannel.md 11.5/previous-subnet", cases="between")
@pytest.mark.parametrize("net", ["10.3.6.0/24", "10.3.25.0/24"], ids=["between", "the-last-there-is"])
def test_takes_the_previous_subnet(net):
    previous = (IPv4Network(net), None)
    assert choose(conf(), Present(leases=LEASES), attrs=ME, previous=previous, pick=first).v4 == previous[0]


@pytest.mark.spec("flannel.md §4.3/3-previous-subnet")
@pytest.mark.spec("flannel.md 11.5/previous-subnet-outside", cases="10.4.1.0/24")
@pytest.mark.parametrize("net", ["10.4.1.0/24", "10.3.6.0/25", "10.3.2.0/24"])
def test_previous_subnet_outside_of_another_length_or_taken_is_not_used(net):
    chosen = choose(conf(), Present(leases=LEASES), attrs=ME, previous=(IPv4Network(net), None), pick=first)
    assert chosen.v4 == IPv4Network("10.3.3.0/24")


@pytest.mark.parametrize(
    "there, free",
    [
        pytest.param(there, free, marks=pytest.mark.spec(f"flannel.md 11.3/{row}"))
        for row, free, nets in (
            ("overlap", False, ("1.2.3.0/24", "1.2.0.0/16")),
            ("no-overlap", True, ("1.2.4.0/24", "7.2.4.0/22")),
            ("contains", False, ("1.2.3.0/32", "1.2.3.4/32")),
            ("contains", True, ("1.2.4.0/32",)),
            ("overlap-v6", False, ("fc00::/16",)),
            ("overlap-v6", True, ("fc00:2::/64", "fb00:2::/48")),
            ("contains-v6", False, ("fc00:1::1/128",)),
            ("contains-v6", True, ("fc00:2::/128",)),
        )
        for there in nets
    ],
)
def test_a_subnet_is_free_when_no_lease_overlaps_it(there, free):
    """Of 1.2.3.0/24 and fc00:1::/64 alone, which is how flannel's vectors have it."""
    only = ip_network("fc00:1::/64" if ":" in there else "1.2.3.0/24")
    pool = Pool(network=only, subnet_len=only.prefixlen, first=only[0], last=only[0])
    taken = lease(None, there) if only.version == 6 else lease(there)
    config = conf(v4=None, v6=pool) if only.version == 6 else conf(v4=pool)
    if free:
        chosen = choose(config, Present(leases=[taken]), attrs=ME, pick=first)
        assert only in (chosen.v4, chosen.v6)
        return
    with pytest.raises(Unavailable):
        choose(config, Present(leases=[taken]), attrs=ME, pick=first)


def test_what_overlaps_any_lease_is_not_free():
    present = Present(leases=[lease("10.3.0.0/22"), lease("10.3.4.128/25"), lease("7.2.4.0/22")])
    assert choose(conf(), present, attrs=ME, pick=first).v4 == IPv4Network("10.3.5.0/24")


def test_a_subnet_whose_value_nobody_can_read_is_not_free():
    present = Present(leases=[], unreadable=(IPv4Network("10.3.1.0/24"),))
    assert choose(conf(), present, attrs=ME, pick=first).v4 == IPv4Network("10.3.2.0/24")


@pytest.mark.spec("flannel.md §4.8/dual-stack")
def test_dual_stack_takes_one_of_each():
    present = Present(leases=[lease("10.3.1.0/24", "fc00:0:0:1::/64"), lease("10.3.2.0/24", "fc00:0:0:3::/64")])
    chosen = choose(conf(v6=POOL6), present, attrs=ME, pick=first)
    assert (chosen.v4, chosen.v6) == (IPv4Network("10.3.3.0/24"), IPv6Network("fc00:0:0:2::/64"))


@pytest.mark.spec("flannel.md §4.8/adding-v6")
def test_adding_v6_passes_leases_without_it():
    present = Present(leases=[*LEASES, lease("10.3.3.0/24", "fc00::/63")])
    chosen = choose(conf(v6=POOL6), present, attrs=ME, pick=first)
    assert chosen.v6 == IPv6Network("fc00:0:0:2::/64")


def test_adding_v6_keeps_the_nodes_own_v4_subnet():
    mine = lease("10.3.9.0/24", attrs=ME)
    chosen = choose(conf(v6=POOL6), Present(leases=[mine]), attrs=ME, pick=first)
    assert (chosen.reuse, chosen.stale, chosen.v4) == (None, (mine,), mine.v4)
    assert chosen.v6 == IPv6Network("fc00:0:0:1::/64")


def test_removing_v6_keeps_the_nodes_own_v4_subnet():
    mine = lease("10.3.9.0/24", "fc00:0:0:9::/64", attrs=ME)
    chosen = choose(conf(), Present(leases=[mine]), attrs=ME, pick=first)
    assert (chosen.stale, chosen.v4, chosen.v6) == ((mine,), mine.v4, None)


@pytest.mark.spec("flannel.md §4.8/v6-only")
def test_v6_only_knows_its_lease_by_the_v6_address():
    netconf = conf(v4=None, v6=POOL6)
    nobody = LeaseAttrs(public_ip=None, public_ipv6=None)
    mine = lease(None, "fc00:0:0:9::/64", attrs=replace(ME, public_ip=None))
    theirs = [
        lease(None, "fc00:0:0:1::/64", attrs=replace(OTHER, public_ip=None)),
        lease(None, "fc00:0:0:2::/64", attrs=nobody),
    ]
    assert choose(netconf, Present(leases=[*theirs, mine]), attrs=mine.attrs, pick=first).reuse == mine
    chosen = choose(netconf, Present(leases=theirs), attrs=mine.attrs, pick=first)
    assert (chosen.reuse, chosen.v4, chosen.v6) == (None, None, IPv6Network("fc00:0:0:3::/64"))
    assert choose(netconf, Present(leases=theirs), attrs=nobody, pick=first).reuse is None


@pytest.mark.parametrize("family, options", [("", {}), ("IPv6", {"v4": None})])
def test_a_full_network_says_what_to_do(family, options):
    pool6 = replace(POOL6, last=POOL6.first)
    netconf = conf(**{"v6": pool6 if family else None, "v4": replace(POOL4, last=POOL4.first), **options})
    full = lease("10.3.1.0/24", "fc00:0:0:1::/64")
    with pytest.raises(Unavailable) as raised:
        choose(netconf, Present(leases=[full]), attrs=ME, pick=first)
    [problem] = raised.value.problems
    assert problem.code == "LEASE-003"
    assert "all 1 subnets" in problem.seen
    assert f"{family}SubnetMax" in problem.hint


def test_min_above_max_says_so():
    netconf = conf(replace(POOL4, last=IPv4Address("10.3.0.0")))
    with pytest.raises(Unavailable, match=r"SubnetMin 10\.3\.1\.0 lies above SubnetMax 10\.3\.0\.0"):
        choose(netconf, Present(leases=[]), attrs=ME, pick=first)


def test_pick_must_keep_to_its_count():
    with pytest.raises(IndexError):
        choose(conf(), Present(leases=[]), attrs=ME, pick=lambda count: count)


def test_room_counts_what_is_left():
    assert room(POOL4, [each.v4 for each in LEASES]) == (21, 25)
    assert room(POOL6, [IPv6Network("fc00:0:0:2::/63"), IPv4Network("10.0.0.0/8")]) == (65533, 65535)


NETS = st.tuples(st.integers(0, 2**16 - 1), st.integers(17, 30)).map(
    lambda pair: IPv4Network(((10 << 24 | 3 << 16) + pair[0], pair[1]), strict=False)
)


@given(st.lists(NETS, max_size=30), st.integers(0, 99))
def test_a_chosen_subnet_is_in_range_and_overlaps_nothing(taken, index):
    present = Present(leases=[], unreadable=tuple(taken))
    bases = (IPv4Network((int(POOL4.first) + (n << 8), 24)) for n in range(25))
    free = [net for net in bases if not any(net.overlaps(other) for other in taken)]
    assert room(POOL4, taken) == (len(free), 25)
    if not free:
        with pytest.raises(Unavailable):
            choose(conf(), present, attrs=ME, pick=first)
        return
    chosen = choose(conf(), present, attrs=ME, pick=lambda count: min(index, count - 1))
    assert chosen.v4 == free[min(index, len(free) - 1)]


def test_a_huge_network_is_not_walked():
    pool = Pool(
        network=IPv6Network("fc00::/16"), subnet_len=124, first=IPv6Address("fc00::10"), last=IPv6Address("fc00:ffff::")
    )
    present = Present(leases=[lease(None, "fc00::/20")])
    assert choose(conf(v4=None, v6=pool), present, attrs=ME, pick=first).v6 == ip_network("fc00:1000::/124")


def test_a_store_has_the_subnet_chosen_as_often_as_others_are_faster():
    asked = []

    def pick(count: int) -> int:
        asked.append(count)
        return 0

    wide = Pool(
        network=IPv4Network("10.0.0.0/8"),
        subnet_len=24,
        first=IPv4Address("10.0.1.0"),
        last=IPv4Address("10.255.255.0"),
    )
    chooser = Chooser(netconf=conf(wide), attrs=ME, pick=pick)
    mine, other = lease("10.0.7.0/24", attrs=ME), lease("10.0.8.0/24")
    assert [chooser.choose(Present(leases=(other,)), attempt=attempt).v4 for attempt in range(3)] == [
        IPv4Network("10.0.1.0/24")
    ] * 3
    assert asked == [100, 200, 400], "nodes that start at once spread out"
    assert chooser.choose(Present(leases=(other,)), recorded=other).reuse is other
    assert chooser.owned([other, mine]) == [mine]
    before = replace(chooser, previous=(IPv4Network("10.0.9.0/24"), None))
    assert before.choose(Present(leases=(mine,))).reuse is mine
    assert before.choose(Present(leases=(other,))).v4 == IPv4Network("10.0.9.0/24")
