"""Any value in any field of any plugin's configuration: refused in words, with nothing left, or it works."""

import json
import random
import re
from copy import deepcopy
from functools import reduce
from ipaddress import ip_interface
from itertools import product
from operator import getitem

import pytest

from tests.campaign.hostile.good import CHAINED, good_configurations
from tests.support.cni.site import Site
from weft.cni import registry

# Both families of whatever an address may be in: all of them where an address is expected.
ADDRESSES = ("10.9.0.1", "fd00:9::1", "10.9.0.0/24", "fd00:9::/64", "0.0.0.0/0", "::/0", "::ffff:10.9.0.1", "fe80::1")
# Some of these everywhere.
OTHERS = (
    *("10.9.0.1/32", "255.255.255.255", "224.0.0.1", "", "x", 0, -1, 1 << 40, 1.5, None, True, [], {}, [["10.9.0.1"]]),
    *({"type": "host-local"}, {"type": "static"}, [{"dst": "0.0.0.0/0", "gw": "fd00::1"}]),
)
SOME = 40
KEPT = (
    "name",
    "type",
    "prevResult",
    "cni.dev/valid-attachments",
    "capabilities",
    "dataDir",
    "subnetFile",
    "resolvConf",
)


def places(value, path=()):
    """Every key and index inside a configuration that is not about where things are kept."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        if key not in KEPT:
            yield (*path, key)
            yield from places(inner, (*path, key))


def addressed(config):
    """Addresses of every kind where an address is."""
    for path in places(config):
        there = reduce(getitem, path, config)
        if isinstance(there, str) and re.fullmatch(r"[0-9.]{7,}(/\d+)?|[0-9a-f:]*::[0-9a-f:]*(/\d+)?", there):
            yield from ((path, value) for value in ADDRESSES)


def sampled(config):
    pairs = [*product(places(config), OTHERS)]
    return random.sample(pairs, min(SOME, len(pairs)))


def changed(config, path, value):
    made = deepcopy(config)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return made


@pytest.fixture
def site(netns, tmp_path):
    (tmp_path / "flannel.env").write_text(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    return Site(netns, tmp_path)


@pytest.fixture
def held(site, make_netns):
    pod = make_netns()
    ipam = {"type": "host-local", "dataDir": str(site.directory / "held"), "subnet": "10.95.0.0/24"}
    conf = {"cniVersion": "1.0.0", "name": "held", "type": "bridge", "bridge": "held0", "isGateway": True, "ipam": ipam}
    return pod, site.call("bridge", "ADD", conf, container=pod, id_="held").result


def good(site, result):
    text = json.dumps(good_configurations(result))
    for name in ("/var/lib/nets", "/var/lib/flannel", "/var/lib/tuned"):
        text = text.replace(name, str(site.directory / name[9:]))
    text = text.replace("/run/flannel.env", str(site.directory / "flannel.env"))
    return json.loads(text)


@pytest.mark.parametrize("plugin", registry.NAMES)
def test_every_value_in_every_place(site, make_netns, held, plugin):
    pod, result = (held[0], held[1]) if plugin in CHAINED else (make_netns(), {})
    id_ = "held" if plugin in CHAINED else "c1"
    config = {"cniVersion": "1.0.0", **good(site, result)[plugin]}
    config |= {key: False for key in ("ipMasq", "macspoofchk") if key in config}  # programs, for hundreds of calls
    links, records = kept(site)
    refused = 0
    for path, value in [*addressed(config), *sampled(config)]:
        where = f"{path} = {value!r}"
        for command in ("ADD", "DEL"):
            answer = site.call(plugin, command, changed(config, path, value), container=pod, id_=id_)
            assert "Traceback" not in answer.stderr, (where, answer)
            assert "internal fault" not in answer.msg, (where, answer)
            assert answer.exit == 0 or (command == "ADD" and answer.json["msg"]), (where, answer)
            refused += answer.exit
            assert (answer.exit == 0 and command == "ADD") or kept(site) == (links, records), where
    assert refused > 10 or plugin in ("loopback", "firewall")


def kept(site):
    """The links of the host, and what is remembered of attachments."""
    links = {link.name for link in site.host.rtnl.links() if link.kind != "bridge"}
    files = {str(path) for path in (site.directory / "state").rglob("*.json")}
    stored = {str(path) for path in site.directory.rglob("nets/*/*") if path.name[0].isdigit() or ":" in path.name}
    return links, files | stored | {str(path) for path in site.directory.rglob("tuned/*")}


MIXED = (
    {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24", "gateway": "fd00:9::1"}]]},
    {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64", "gateway": "10.9.0.1"}]]},
    {
        "type": "host-local",
        "ranges": [[{"subnet": "10.9.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0", "gw": "fd00:9::1"}],
    },
    {"type": "static", "addresses": [{"address": "10.9.0.5/24", "gateway": "fd00:9::1"}]},
    {"type": "static", "addresses": [{"address": "fd00:9::5/64"}], "routes": [{"dst": "::/0", "gw": "10.9.0.1"}]},
)


@pytest.mark.parametrize("ipam", MIXED, ids=lambda ipam: ipam["type"])
@pytest.mark.parametrize("plugin", ["bridge", "ptp"])
def test_another_familys_gateway_is_refused_before_anything_is_made(site, make_netns, plugin, ipam):
    pod = make_netns()
    conf = {"cniVersion": "1.0.0", "name": "net", "type": plugin, "ipam": {"dataDir": str(site.store), **ipam}}
    answer = site.call(plugin, "ADD", conf | {"isDefaultGateway": True}, container=pod)
    assert "IPv4" in answer.msg
    assert "IPv6" in answer.msg
    assert [link.name for link in site.host.rtnl.links()] == ["lo"]
    assert [link.name for link in pod.rtnl.links()] == ["lo"]


@pytest.mark.parametrize("address", ["224.0.0.5/24", "127.1.0.2/16", "::ffff:10.9.0.5/120"])
@pytest.mark.parametrize("plugin", ["bridge", "ptp"])
def test_an_address_at_which_nobody_reaches_a_pod_is_refused_before_anything_is_made(site, make_netns, plugin, address):
    pod = make_netns()
    ipam = {"type": "static", "addresses": [{"address": address}]}
    answer = site.call(
        plugin, "ADD", {"cniVersion": "1.0.0", "name": "net", "type": plugin, "ipam": ipam}, container=pod
    )
    assert answer.msg.startswith(f"no pod is reached at {ip_interface(address)}: it is multicast, loopback")
    assert [link.name for link in site.host.rtnl.links()] == ["lo"]
    assert [link.name for link in pod.rtnl.links()] == ["lo"]


@pytest.mark.parametrize("plugin", ["bridge", "ptp"])
def test_another_programs_mixed_result_is_refused_and_undone(site, make_netns, plugin):
    pod, extra = make_netns(), site.foreign("static")
    ipam = {"type": "theirs", "addresses": [{"address": "10.9.0.5/24", "gateway": "fd00:9::1"}]}
    conf = {"cniVersion": "1.0.0", "name": "net", "type": plugin, "ipam": ipam}
    answer = site.call(plugin, "ADD", conf, container=pod, extra=extra)
    assert '"gateway" fd00:9::1 is IPv6, and must be IPv4' in answer.msg
    assert [link.name for link in pod.rtnl.links()] == ["lo"]
    assert list((site.directory / "state").rglob("*.json")) == []
