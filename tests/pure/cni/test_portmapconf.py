"""portmap's configuration: what is read, what is refused in upstream's words, and what is kept of an attachment."""

from contextlib import suppress
from ipaddress import ip_address, ip_interface

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.bent import mostly
from tests.pure.reach import reached, reaches
from tests.support.cni.portmaps import MAPPINGS, listed, wanted
from weft.cni.plugins.portmap import conf as portmapconf
from weft.cni.plugins.portmap import iptables, nft
from weft.cni.plugins.portmap.conf import Mapping, PortMap, PortmapConf
from weft.wire.cni import CniError


def parse(**config):
    return portmapconf.parse(config)


def refusal(**config):
    with pytest.raises(CniError) as refused:
        parse(**config)
    assert refused.value.code == 999
    return refused.value.msg


def mapping(**changes):
    item = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp", **changes}
    return {"runtimeConfig": {"portMappings": [item]}}


def test_defaults():
    assert parse() == PortmapConf()
    assert parse(snat=None).snat
    assert PortmapConf().conditions(4) == PortmapConf().conditions(6) == ()


def test_every_key():
    config = {
        "capabilities": {"portMappings": True},
        "runtimeConfig": {"portMappings": listed()},
        "snat": False,
        "masqAll": True,
        "backend": "iptables",
        "conditionsV4": ["-s", "10.0.0.0/8"],
        "conditionsV6": ["!", "-s", "12::34"],
        "externalSetMarkChain": "PLZ-SET-MARK",
    }
    conf = portmapconf.parse(config)
    assert conf == PortmapConf(
        mappings=MAPPINGS,
        backend="iptables",
        snat=False,
        masq_all=True,
        conditions_v4=("-s", "10.0.0.0/8"),
        conditions_v6=("!", "-s", "12::34"),
        mark_chain="PLZ-SET-MARK",
    )
    assert conf.conditions(4) == ("-s", "10.0.0.0/8")
    assert conf.conditions(6) == ("!", "-s", "12::34")


def test_mappings_as_runtimes_write_them():
    assert parse(**mapping(protocol="UDP", hostIP="")).mappings == (
        Mapping(host_port=8080, container_port=80, protocol="udp"),
    )
    assert parse(**mapping(hostIP="::ffff:10.0.0.1")).mappings[0].host_ip == ip_address("10.0.0.1")
    assert str(MAPPINGS[0]) == "host port 8080/tcp"
    assert str(MAPPINGS[4]) == "host port 8083/tcp of 192.168.0.2"


@pytest.mark.spec("cni.md M10")
@pytest.mark.parametrize(
    "changes,words",
    [
        ({"hostPort": 0}, "Invalid host port number: 0"),
        ({"containerPort": 0}, "Invalid container port number: 0"),
        ({"hostPort": 0, "containerPort": 0}, "Invalid container port number: 0"),
        ({"hostPort": -1}, "Invalid host port number: -1"),
        ({"hostPort": 65536}, "Invalid host port number: 65536"),
        ({"hostPort": "80"}, "cannot use a string as hostPort (expected an integer)"),
        ({"protocol": "icmp"}, 'Invalid protocol "icmp" of host port 8080'),
        ({"protocol": "tcp\n-A INPUT"}, 'Invalid protocol "tcp\n-a input" of host port 8080'),
        ({"hostIP": "nowhere"}, "invalid IP address: nowhere"),
    ],
)
def test_mappings_that_cannot_be(changes, words):
    assert refusal(**mapping(**changes)) == f"failed to parse config: {words}"


@pytest.mark.spec("cni.md M11")
@pytest.mark.parametrize(
    "config,words",
    [
        (
            {"backend": "iptables", "conditionsV4": ["a", "b"], "conditionsV6": ["c"]},
            (
                "iptables backend was requested but configuration contains nftables-specific options"
                " [conditionsV4 conditionsV6]"
            ),
        ),
        (
            {
                "backend": "nftables",
                "externalSetMarkChain": "KUBE-MARK-MASQ",
                "conditionsV4": ["-a", "b"],
                "conditionsV6": ["!", "c"],
            },
            (
                "nftables backend was requested but configuration contains iptables-specific options"
                " [externalSetMarkChain conditionsV4 conditionsV6]"
            ),
        ),
        (
            {"conditionsV4": ["-a"], "conditionsV6": ["c"]},
            "iptables backend was requested but configuration contains nftables-specific options [conditionsV6]",
        ),
        ({"backend": "ebtables"}, 'unrecognized backend "ebtables"'),
        (
            {"externalSetMarkChain": "X", "markMasqBit": 0},
            "Cannot specify externalSetMarkChain and markMasqBit",
        ),
        ({"markMasqBit": 32}, "MasqMarkBit must be between 0 and 31"),
        ({"markMasqBit": -1}, "MasqMarkBit must be between 0 and 31"),
        ({"externalSetMarkChain": "X\n-F"}, 'Invalid externalSetMarkChain "X\n-F"'),
        ({"externalSetMarkChain": "A B"}, 'Invalid externalSetMarkChain "A B"'),
        ({"externalSetMarkChain": "-F"}, 'Invalid externalSetMarkChain "-F"'),
        ({"externalSetMarkChain": "X" * 29}, f'Invalid externalSetMarkChain "{"X" * 29}"'),
        ({"externalSetMarkChain": "Ä"}, 'Invalid externalSetMarkChain "Ä"'),
        ({"conditionsV4": ["ä"]}, "invalid characters in conditionsV4"),
        ({"conditionsV4": ["a\nb"]}, "invalid characters in conditionsV4"),
        ({"conditionsV4": ["tcp", "; flush ruleset"]}, 'Invalid conditionsV4 "tcp ; flush ruleset"'),
        ({"conditionsV6": ["tcp #"]}, 'Invalid conditionsV6 "tcp #"'),
        ({"conditionsV6": [5]}, "cannot use an integer as conditionsV6[0] (expected a string)"),
        ({"snat": "yes"}, "cannot use a string as snat (expected a boolean)"),
        ({"runtimeConfig": {"portMappings": 5}}, "cannot use an integer as portMappings (expected a list)"),
    ],
)
def test_options_that_cannot_be(config, words):
    assert refusal(**config) == f"failed to parse config: {words}"


@pytest.mark.parametrize(
    "config,backend",
    [
        ({}, ""),
        ({"masqAll": True, "snat": False}, ""),
        pytest.param({"conditionsV6": ["!", "-s", "12::34"]}, "iptables", marks=pytest.mark.spec("cni.md M12")),
        ({"conditionsV4": ["-s", "10.0.0.0/8"]}, "iptables"),
        ({"conditionsV4": ["-m", "comment", "--comment", "a;b"]}, "iptables"),
        ({"conditionsV4": ["ip", "saddr", "10.0.0.0/8"]}, "nftables"),
        ({"conditionsV4": ["ip saddr 10.0.0.0/8"], "markMasqBit": 5}, "nftables"),
        ({"externalSetMarkChain": "KUBE-MARK-MASQ"}, "iptables"),
        ({"markMasqBit": 0}, "iptables"),
        ({"backend": "nftables", "markMasqBit": 5}, "nftables"),
        ({"backend": "nftables"}, "nftables"),
        ({"backend": "iptables"}, "iptables"),
    ],
)
def test_the_backend_that_is_asked_for(config, backend):
    assert parse(**config).backend == backend


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"snat": False, "masq_all": True, "backend": "nftables", "conditions_v4": ("a", "b"), "conditions_v6": ("c",)},
        {"backend": "iptables", "mark_chain": "X"},
        {"backend": "iptables", "mark_bit": 0},
    ],
)
def test_what_is_kept_is_read_back(conf):
    kept = wanted("10.0.0.2/24", "fd00::2/64", **conf)
    assert portmapconf.restore(portmapconf.render(kept)) == kept


@pytest.mark.parametrize(
    "torn",
    [{"addresses": 5}, {"addresses": ["x"]}, {"addresses": []}, {"backend": "x"}, {"snat": 5}, {"runtimeConfig": {}}],
)
def test_what_is_kept_may_be_torn(torn):
    assert portmapconf.restore({**portmapconf.render(wanted("10.0.0.2/24")), **torn}) is None


TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["tcp", "UDP", "sctp", "10.0.0.1", "::", "-s", "!", "a b", 'a"b', "a\\", "x\n-F", "; flush", "#"]),
)
MAPPING = st.fixed_dictionaries(
    {"hostPort": st.integers(-1, 70000), "containerPort": st.integers(0, 65535), "protocol": TEXTS},
    optional={"hostIP": TEXTS},
)
GOOD_MAPPING = st.fixed_dictionaries(
    {
        "hostPort": st.integers(1, 65535),
        "containerPort": st.integers(1, 65535),
        "protocol": st.sampled_from(["tcp", "udp", "sctp"]),
    },
    optional={"hostIP": st.sampled_from(["10.0.0.1", "::1", ""])},
)
LISTS = mostly(st.sampled_from([[], ["-s", "10.0.0.1"], ["!", "-d", "10.0.0.0/8"]]), st.lists(TEXTS, max_size=3))


@reaches(mapped=0.15)
@settings(max_examples=200)
@given(
    mappings=st.lists(mostly(GOOD_MAPPING, MAPPING), max_size=3),
    config=st.fixed_dictionaries(
        {},
        optional={
            "snat": st.booleans(),
            "masqAll": st.booleans(),
            "backend": st.sampled_from(["", "iptables", "nftables"]),
            "conditionsV4": LISTS,
            "conditionsV6": LISTS,
            "externalSetMarkChain": mostly(st.just("MARK-IT"), TEXTS),
            "markMasqBit": mostly(st.integers(0, 31), st.integers(-1, 40)),
        },
    ),
)
def test_no_configuration_makes_two_lines_of_one_rule(mappings, config):
    conf = None
    with suppress(CniError):
        conf = portmapconf.parse({**config, "runtimeConfig": {"portMappings": mappings}})
    if conf is None:
        return
    if mappings:
        reached("mapped")
    of = PortMap(conf=conf, addresses=(ip_interface("10.0.0.2/24"), ip_interface("fd00::2/64")))
    assert portmapconf.restore(portmapconf.render(of)) == (of if mappings else None)
    for family in (4, 6):
        for line in iptables.additions({}, of, family, chain="CNI-DN-1", comment="C"):
            assert line.isprintable()
        if conf.backend != "iptables":
            rules = [line for line in nft.additions({}, of, family, "c1") if line.startswith("add rule")]
            assert all(rule.isprintable() and ";" not in rule for rule in rules)


@pytest.mark.parametrize(
    "config, mapped",
    [
        ({}, False),
        ({"runtimeConfig": {"portMappings": []}}, False),
        ({"runtimeConfig": {"portMappings": [{"hostPort": "x"}]}, "snat": 7}, True),
    ],
)
def test_del_asks_whether_there_were_mappings_right_ones_or_not(config, mapped):
    assert portmapconf.is_mapped(config) is mapped


def test_the_addresses_of_what_is_wanted_by_family():
    of = PortMap(conf=PortmapConf(), addresses=(ip_interface("fd00::2/64"), ip_interface("10.0.0.2/24")))
    assert of.families == [4, 6]
    assert of.ips == [ip_address("fd00::2"), ip_address("10.0.0.2")]
