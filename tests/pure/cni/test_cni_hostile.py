"""Whatever the configuration says, reading it ends with a value or with an error that we know."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes, bent_json, mostly
from tests.pure.reach import reached, reaches
from weft.cni.plugins.bridge import conf as bridgeconf
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.plugins.flannel import conf as flannelconf
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.wire import cni, cnijson, cniresult, subnetenv
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError

TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "10.1.2.0/24",
                "10.1.2.3",
                "fd00::/64",
                "fd00::1",
                "::ffff:1.2.3.4",
                "0.0.0.0/0",
                "1.2.3.4/33",
                "fe80::1%x",
            ),
            *("host-local", "bridge", "../x", "a\0b", "\ud800", "0.4.0", "1.1.0", "9" * 5000),
        ]
    ),
)
KEYS = st.sampled_from(
    [
        *(
            "name",
            "cniVersion",
            "type",
            "ipam",
            "IPAM",
            "delegate",
            "runtimeConfig",
            "args",
            "cni",
            "prevResult",
            "dns",
        ),
        *("subnet", "ranges", "ipRanges", "rangeStart", "rangeEnd", "gateway", "routes", "dst", "gw", "mtu", "MTU"),
        *("ips", "address", "interface", "interfaces", "ip4", "ip6", "ip", "mac", "bridge", "isGateway", "ipMasq"),
        *("vlan", "vlanTrunk", "dataDir", "resolvConf", "subnetFile", "table", "nameservers", "portMappings"),
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25
)

ADDRESSES = st.sampled_from(["10.1.2.3/24", "10.1.2.4/16", "fd00::3/64"])
ROUTES = st.lists(
    st.sampled_from([{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.1.2.1"}, {"dst": "::/0", "gw": "fd00::1"}]),
    max_size=2,
)
IPAM = st.fixed_dictionaries(
    {
        "type": st.just("host-local"),
        "ranges": st.just([[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "gateway": "10.1.2.1"}]]),
    },
    optional={"routes": ROUTES, "dataDir": st.just("/d"), "resolvConf": st.just("/r")},
)
RESULT = st.builds(
    lambda addresses, routes: {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "br0"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/n"}],
        "ips": [{"address": address, "interface": 1} for address in addresses],
        "routes": routes,
        "dns": {"nameservers": ["10.1.2.1"]},
    },
    st.lists(ADDRESSES, max_size=3),
    ROUTES,
)
OLD_RESULT = st.builds(
    lambda address, gateway, routes: {
        "cniVersion": "0.2.0",
        "ip4": {"ip": address, **gateway, "routes": routes},
        "dns": {"nameservers": ["10.1.2.1"]},
    },
    st.sampled_from(["10.1.2.3/24", "10.1.2.4/16"]),
    st.sampled_from([{}, {"gateway": "10.1.2.1"}]),
    st.sampled_from([[], [{"dst": "0.0.0.0/0"}]]),
)
NETWORK = st.fixed_dictionaries(
    {
        "name": st.just("net"),
        "cniVersion": st.sampled_from(cni.VERSIONS),
        "type": st.just("bridge"),
        "ipam": IPAM,
        "prevResult": st.one_of(RESULT, OLD_RESULT),
    },
    optional={
        "mtu": st.integers(0, 9000),
        "vlan": st.integers(0, 4094),
        "isGateway": st.booleans(),
        "ipMasq": st.booleans(),
        "delegate": st.fixed_dictionaries({"type": st.just("bridge")}, optional={"isGateway": st.booleans()}),
        "args": st.just({"cni": {"ips": ["10.1.2.3"]}}),
    },
)
ANYTHING = st.dictionaries(KEYS, VALUES, max_size=10)
CONFIGS = mostly(bent_json(st.one_of(NETWORK, RESULT), SCALARS), ANYTHING)
RESULTS = mostly(bent_json(st.one_of(RESULT, OLD_RESULT), SCALARS), ANYTHING)
ENV = subnetenv.parse_for_cni(
    "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", "subnet.env"
)
REFUSED = (CniError, JsonError)


def decoded(config):
    return cnijson.load(json.dumps(config).encode())


@reaches(ipam=0.05, bridge=0.1, delete=0.2, flannel=0.05, previous=0.02, result=0.05)
@given(config=CONFIGS, args=st.just("") | TEXTS, version=st.sampled_from(cni.VERSIONS))
def test_every_reader_answers(config, args, version):
    obj = decoded(config)
    for name, read in (
        ("ipam", lambda: ipamconf.parse(obj, version, args)),
        ("bridge", lambda: bridgeconf.parse(obj, args)),
        ("delete", lambda: bridgeconf.parse_for_delete(obj)),
        ("flannel", lambda: flannelconf.render(flannelconf.delegate_config(flannelconf.parse(obj), ENV))),
        ("previous", lambda: cniresult.read_previous(obj, version)),
        ("result", lambda: cniresult.read(obj, version)),
    ):
        with suppress(*REFUSED):
            if read() is not None:
                reached(name)


@reaches(printed=0.1, addresses=0.05)
@given(config=RESULTS, other=st.sampled_from(cni.VERSIONS))
def test_what_was_read_can_be_printed_in_every_dialect(config, other):
    obj = decoded(config)
    try:
        result = cniresult.read(obj, obj.get("cniVersion", "1.1.0"))
        printed = cniresult.render(result, other)
    except REFUSED:
        return
    reached("printed")
    again = cniresult.read(cnijson.load(printed), other)
    if result.ips and again.ips:
        reached("addresses")
        assert {ip.address for ip in again.ips} <= {ip.address for ip in result.ips}


@reaches(object=0.05)
@given(data=st.one_of(st.binary(max_size=60), bent_bytes(NETWORK.map(json.dumps).map(str.encode))))
def test_bytes_are_an_object_or_an_error(data):
    with suppress(JsonError):
        assert isinstance(cnijson.load(data), dict)
        reached("object")


@reaches(container_id=0.05, ifname=0.1, network_name=0.05)
@given(text=st.text(max_size=20) | st.text("abz019._-/: ", min_size=1, max_size=17))
def test_names_are_taken_or_refused_and_never_a_path(text):
    for point in ("container_id", "ifname", "network_name"):
        with suppress(CniError):
            getattr(cni, f"check_{point}")(text)
            reached(point)
            assert "/" not in text
            assert text not in (".", "..")


@pytest.mark.parametrize("env", [{}, {"CNI_COMMAND": "ADD"}, {"CNI_CONTAINERID": "\udcff"}])
def test_an_environment_that_lacks_everything(env):
    with pytest.raises(CniError):
        cni.check_environment(env.get("CNI_COMMAND", ""), env)


def test_defaults_of_bridge():
    assert bridgeconf.parse({}, "") == BridgeConf()
