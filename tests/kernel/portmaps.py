"""What tests of portmap look at."""

import json
import shutil
from contextlib import ExitStack, closing

from tests.kernel.hostports import NETWORK, Ports, mapping
from tests.support.netns import Netns

HTTP, DNS, WEB6 = mapping(8080, 80), mapping(5353, 53, "udp"), mapping(8443, 443, "tcp", "2001:db8::1")
GOLDEN = {
    "any4": {"tcp . 8080": "10.1.2.2 . 80", "udp . 5353": "10.1.2.2 . 53"},
    "any6": {"tcp . 8080": "fd00::2 . 80", "udp . 5353": "fd00::2 . 53"},
    "bound6": {"2001:db8::1 . tcp . 8443": "fd00::2 . 443"},
    "masq4-24": ["10.1.2.0 . 10.1.2.2"],
    "masq4-32": ["127.0.0.1 . 10.1.2.2"],
    "masq6-64": ["fd00:: . fd00::2"],
}


def elements(host: Netns) -> dict[str, object]:
    """What is in our maps, as nft says it; empty sets are left out."""
    found: dict[str, object] = {}
    try:
        listed = json.loads(host.run("nft -j list table inet weft-hostport"))["nftables"]
    except AssertionError:
        return {}
    for item in listed:
        named = item.get("map") or item.get("set")
        if named and named.get("elem"):
            pairs = [(words(each[0]), words(each[1])) if "map" in item else words(each) for each in named["elem"]]
            found[named["name"]] = dict(pairs) if "map" in item else pairs
    return found


def words(value: object) -> str:
    if isinstance(value, dict):
        return words(value["elem"]["val"]) if "elem" in value else " . ".join(map(str, value["concat"]))
    return str(value)


def records(ports: Ports) -> list[str]:
    return sorted(path.name for path in (ports.site.directory / "state" / "portmap").glob("*"))


def break_(ports: Ports) -> None:
    """Forget all state of ours."""
    shutil.rmtree(ports.site.directory / "state" / "portmap")


def as_node(ports, function):
    """Call a function with a host that belongs to no request."""

    def inside():
        with ExitStack() as stack:
            stack.callback(ports.site.node.close)
            env = ports.site.env("GC", None, id_="", ifname="", netns="", args="")
            host = stack.enter_context(closing(ports.site.open_host("portmap", env, None, stack)))
            return function(ports.site.wrap(host))

    return ports.site.host.call(inside)


def gc(ports, *valid, network=NETWORK, key="cni.dev/valid-attachments"):
    attachments = [{"containerID": id_, "ifname": "eth0"} for id_ in valid]
    return ports.site.call(
        "portmap", "GC", {"cniVersion": "1.1.0", "name": network, "type": "portmap", key: attachments}
    )
