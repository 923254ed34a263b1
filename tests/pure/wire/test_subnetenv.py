"""subnet.env as the daemon writes it, as its next start reads it, and as the CNI plugin does."""

from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reach import reached, reaches
from weft.model.errors import ConfigError
from weft.wire.subnetenv import Previous, SubnetEnv, absent, parse, parse_for_cni, parse_list, render, variables_in

V4 = SubnetEnv(
    network_v4=IPv4Network("10.5.0.0/16"),
    subnet_v4=IPv4Network("10.5.72.0/24"),
    network_v6=None,
    subnet_v6=None,
    mtu=1450,
    ip_masq=False,
)
DUAL = SubnetEnv(
    network_v4=IPv4Network("10.42.0.0/16"),
    subnet_v4=IPv4Network("10.42.0.0/24"),
    network_v6=IPv6Network("2001:cafe:42::/56"),
    subnet_v6=IPv6Network("2001:cafe:42::/64"),
    mtu=1450,
    ip_masq=True,
)


@pytest.mark.spec("flannel.md 11.4/write-v4", "flannel.md §3.1/lines", "flannel.md §3.1/mtu-and-masq")
def test_written_for_ipv4():
    assert render(V4) == (
        "FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.72.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
    )


@pytest.mark.spec("flannel.md 11.4/write-dual", "flannel.md §3.1/lines")
def test_written_for_dual_stack():
    assert render(DUAL) == (
        "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.0.1/24\n"
        "FLANNEL_IPV6_NETWORK=2001:cafe:42::/56\nFLANNEL_IPV6_SUBNET=2001:cafe:42::1/64\n"
        "FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )


@pytest.mark.spec("flannel.md §3.1/first-host", "flannel.md §3.1/v6-compressed")
def test_written_for_ipv6_alone_with_the_first_host_in_compressed_form():
    env = SubnetEnv(
        network_v4=None,
        subnet_v4=None,
        network_v6=IPv6Network("FC00:0000::/48"),
        subnet_v6=IPv6Network("fc00:0:0:1::/64"),
        mtu=1430,
        ip_masq=False,
    )
    assert render(env) == (
        "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00:0:0:1::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n"
    )


@pytest.mark.parametrize(
    "subnet, written",
    [
        pytest.param("1.2.3.0/24", "FLANNEL_SUBNET=1.2.3.1/24", marks=pytest.mark.spec("flannel.md 11.3/increment")),
        pytest.param(
            "fc00:1::/64",
            "FLANNEL_IPV6_SUBNET=fc00:1::1/64",
            marks=pytest.mark.spec("flannel.md 11.3/increment-v6"),
        ),
    ],
)
def test_the_first_host_is_the_base_and_one(subnet, written):
    net = ip_network(subnet)
    family = {"network_v4": net, "subnet_v4": net} if net.version == 4 else {"network_v6": net, "subnet_v6": net}
    none = dict.fromkeys(("network_v4", "subnet_v4", "network_v6", "subnet_v6"))
    assert written in render(SubnetEnv(**{**none, **family}, mtu=1450, ip_masq=False)).splitlines()


@pytest.mark.spec("flannel.md §1.5/3-previous-subnet")
@pytest.mark.parametrize("env", [V4, DUAL])
def test_what_is_written_is_read_back(env):
    previous = parse(render(env))
    assert (previous.network_v4, previous.subnet_v4) == (env.network_v4, env.subnet_v4)
    assert (previous.network_v6, previous.subnet_v6) == (env.network_v6, env.subnet_v6)
    assert previous.complaints == ()


@pytest.mark.spec("flannel.md 11.4/read-list")
def test_a_list_leaves_out_what_is_no_network():
    found = parse_list("FLANNEL_SUBNET=10.244.1.0/24,not-a-cidr,10.244.2.0/24", "FLANNEL_SUBNET")
    assert found.networks == (IPv4Network("10.244.1.0/24"), IPv4Network("10.244.2.0/24"))
    assert len(found.complaints) == 1


@pytest.mark.spec("flannel.md 11.4/read-v6-list")
def test_a_list_of_ipv6():
    found = parse_list("FLANNEL_IPV6_SUBNET=fd00::/64,not-a-cidr,fd01::/64", "FLANNEL_IPV6_SUBNET")
    assert found.networks == (IPv6Network("fd00::/64"), IPv6Network("fd01::/64"))


@pytest.mark.spec("flannel.md 11.4/read-single", "flannel.md §3.3/lists")
def test_several_networks_where_one_is_expected_are_none():
    previous = parse("FLANNEL_SUBNET=10.244.1.0/24,not-a-cidr,10.244.2.0/24")
    assert previous.subnet_v4 is None
    assert previous.complaints[-1] == "FLANNEL_SUBNET has 2 networks where one is expected; none is used"


@pytest.mark.spec("flannel.md §3.3/lists")
def test_one_network_beside_rubbish_is_that_network():
    assert parse("FLANNEL_SUBNET=not-a-cidr, 10.244.2.1/24").subnet_v4 == IPv4Network("10.244.2.0/24")


@pytest.mark.spec("flannel.md 11.4/read-not-a-cidr")
@pytest.mark.parametrize(
    "value", ["not-a-cidr", "10.5.72.1", "10.5.72.1/255.255.255.0", "fd00::/64", "10.5.72.1/33", "10.05.0.0/16"]
)
def test_what_is_no_ipv4_network_is_none(value):
    previous = parse(f"FLANNEL_SUBNET={value}")
    assert previous.subnet_v4 is None
    assert "FLANNEL_SUBNET" in previous.complaints[0]


@pytest.mark.spec("flannel.md 11.4/read-host")
def test_an_address_is_reduced_to_its_network():
    assert parse("FLANNEL_SUBNET=10.5.72.1/24").subnet_v4 == IPv4Network("10.5.72.0/24")


def test_previous_networks_are_those_of_either_family():
    both = parse("FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_IPV6_NETWORK=fd05::/48\n")
    assert both.networks == (IPv4Network("10.5.0.0/16"), IPv6Network("fd05::/48"))
    assert parse("FLANNEL_NETWORK=10.5.0.0/16\n").networks == (IPv4Network("10.5.0.0/16"),)


@pytest.mark.spec("flannel.md §3.3/missing")
@pytest.mark.parametrize("text", ["", "\n\n", "FLANNEL_MTU=1450\n", "FLANNEL_SUBNET=\n"])
def test_a_missing_key_is_none_without_complaint(text):
    assert parse(text) == Previous()


@pytest.mark.spec("flannel.md §3.3/dotenv")
@pytest.mark.parametrize(
    "text, value",
    [
        ("K=v", "v"),
        ("  K = v  ", "v"),
        ("export K=v", "v"),
        ("K: v", "v"),
        ("K='v # $X'", "v # $X"),
        ('K="v # 1"', "v # 1"),
        ('K="v" # comment', "v"),
        ("K=v # comment", "v"),
        ("K=v#1", "v#1"),
        ("K=# comment", ""),
        ("K=", ""),
        ("A=1\nK=$A-${A}-$B", "1-1-"),
        ('A=1\nK="$A\\$A"', "1$A"),
        ('K="a\\nb\\"c"', 'a\nb"c'),
        ("K=1\nK=2", "2"),
        ("# K=1\n\nK=2\r", "2"),
        ("\ufeffK=v", "v"),
    ],
)
def test_dotenv(text, value):
    found = variables_in(text)
    assert found.values["K"] == value
    assert found.complaints == ()


@pytest.mark.spec("flannel.md §3.3/dotenv")
def test_a_line_that_cannot_be_read_costs_that_line_alone():
    found = variables_in("nonsense\nK=v\nA='open\nB=\"open\n=x")
    assert found.values == {"K": "v"}
    assert found.complaints == tuple(f"line {number} is not KEY=value" for number in (1, 3, 4, 5))


KEYS = st.sampled_from(["FLANNEL_NETWORK", "FLANNEL_SUBNET", "FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET"])


@st.composite
def environments(draw):
    """What a node may have: either family or both, subnets anywhere in their networks."""
    pairs = {}
    for version, kind, most in ((4, IPv4Network, 28), (6, IPv6Network, 120)):
        if draw(st.booleans()) or (version == 6 and not pairs):
            network = kind((int(draw(st.ip_addresses(v=version))), draw(st.integers(1, most))), strict=False)
            inside = network.network_address + draw(st.integers(0, network.num_addresses - 1))
            pairs[version] = (network, kind((int(inside), network.prefixlen + 2), strict=False))
    (network_v4, subnet_v4), (network_v6, subnet_v6) = pairs.get(4, (None, None)), pairs.get(6, (None, None))
    return SubnetEnv(
        network_v4=network_v4,
        subnet_v4=subnet_v4,
        network_v6=network_v6,
        subnet_v6=subnet_v6,
        mtu=draw(st.integers(0, 2**32 - 1)),
        ip_masq=draw(st.booleans()),
    )


LINES = st.one_of(
    st.text(max_size=20),
    st.builds("{}={}".format, KEYS, st.text(max_size=20)),
    st.builds("{}={}/{}".format, KEYS, st.ip_addresses(), st.integers(0, 64)),
)


@st.composite
def bent_files(draw):
    lines = render(draw(environments())).splitlines()
    for line in draw(st.lists(LINES, max_size=3)):
        lines[draw(st.integers(0, len(lines) - 1))] = line
    return "\n".join(lines)


@reaches(subnet=0.3, complaint=0.15, two_families=0.03)
@given(bent_files())
def test_any_file_is_read_or_complained_of(text):
    found = parse(text)
    if found.complaints:
        reached("complaint")
    for network, subnet in ((found.network_v4, found.subnet_v4), (found.network_v6, found.subnet_v6)):
        if subnet is not None:
            reached("subnet")
            assert network is None or network.version == subnet.version
    if found.subnet_v4 is not None and found.subnet_v6 is not None:
        reached("two_families")


@reaches(v4=0.2, v6=0.2)
@given(environments())
def test_whatever_is_written_both_readers_read(env):
    assert parse(render(env)) == Previous(
        network_v4=env.network_v4, subnet_v4=env.subnet_v4, network_v6=env.network_v6, subnet_v6=env.subnet_v6
    )
    plugin = parse_for_cni(render(env), "subnet.env")
    there = [version for version, net in (("v4", env.network_v4), ("v6", env.network_v6)) if net is not None]
    assert plugin.networks == tuple(getattr(env, f"network_{version}") for version in there)
    assert plugin.subnets == tuple(getattr(env, f"subnet_{version}") for version in there)
    assert (plugin.mtu, plugin.ip_masq) == (env.mtu, env.ip_masq)
    for version in there:
        reached(version)


# --- As the CNI plugin reads it ------------------------------------------------------------------------------

A = "\nFLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n"


def refused(text):
    with pytest.raises(ConfigError) as caught:
        parse_for_cni(text, "/run/flannel/subnet.env")
    assert all(problem.where == "/run/flannel/subnet.env" for problem in caught.value.problems)
    return [problem.seen for problem in caught.value.problems]


@pytest.mark.spec("flannel.md §10.3/split", "flannel.md §10.3/subnets", "flannel.md §10.3/mtu-ipmasq")
def test_the_plugin_takes_networks_and_subnets():
    env = parse_for_cni(A + "OTHER=x\nwithout value\nFLANNEL_OTHER\n", "f")
    assert env.networks == (IPv4Network("10.1.0.0/16"),)
    assert env.subnets == (IPv4Network("10.1.17.0/24"),)
    assert (env.mtu, env.ip_masq) == (1472, True)


@pytest.mark.spec("flannel.md §10.3/networks")
def test_the_plugin_drops_duplicates_and_puts_ipv4_first():
    env = parse_for_cni(
        "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\n"
        + A.replace("10.1.0.0/16", "10.1.0.0/16,192.168.0.0/16,10.1.0.0/16"),
        "f",
    )
    assert [str(net) for net in env.networks] == ["10.1.0.0/16", "192.168.0.0/16", "fc00::/48"]
    assert [str(net) for net in env.subnets] == ["10.1.17.0/24", "fc00::/64"]


@pytest.mark.spec("flannel.md §10.3/mtu-ipmasq")
@pytest.mark.parametrize("text, masq", [("true", True), ("false", False), ("True", False), ("1", False), ("", False)])
def test_only_true_is_true(text, masq):
    assert parse_for_cni(A.replace("IPMASQ=true", f"IPMASQ={text}"), "f").ip_masq is masq


@pytest.mark.spec("flannel.md §10.3/mtu-ipmasq")
@pytest.mark.parametrize("mtu", ["", "-1", "1472 ", "4294967296", "0x100", "9" * 5000, "١"])
def test_the_mtu_is_32_bits_in_decimal(mtu):
    assert refused(A.replace("1472", mtu))[0].startswith("FLANNEL_MTU=")


@pytest.mark.spec("flannel.md §10.3/split")
@pytest.mark.parametrize("value", ["10.1.17.1/24 ", '"10.1.17.1/24"', "10.1.17.1", "10.1.17.1/24,10.1.18.1/24"])
def test_the_plugin_trims_and_unquotes_nothing(value):
    assert refused(A.replace("10.1.17.1/24", value)) == [f"FLANNEL_SUBNET={value!r}"]


@pytest.mark.spec("flannel.md §10.3/split")
def test_a_known_key_without_a_value_is_an_error_and_no_crash():
    assert refused(A + "FLANNEL_MTU\n") == ["the line 'FLANNEL_MTU' has no value"]


@pytest.mark.spec("flannel.md §10.3/completeness")
@pytest.mark.parametrize(
    "text, missing",
    [
        (
            "foo=bar",
            "FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ",
        ),
        (A.replace("FLANNEL_SUBNET", "X"), "FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET"),
        (A.replace("FLANNEL_MTU", "X"), "FLANNEL_MTU"),
    ],
)
def test_what_is_missing_is_listed(text, missing):
    assert refused(text) == [f"missing {missing}"]


@pytest.mark.spec("flannel.md §10.3/absent")
def test_an_absent_file_says_where_to_look():
    text = str(absent("/run/flannel/subnet.env", "No such file or directory"))
    for part in ("subnet.env", "could not be loaded", "No such file or directory", "log", "flannel pod", "LEASE-001"):
        assert part in text
