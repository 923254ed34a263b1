"""Which peer of a WireGuard device has a network, by the plane that keeps it: the same with a process and a kernel."""

from ipaddress import ip_network
from pathlib import Path

from tests.support.builders import key
from tests.support.netns import Netns
from weft.daemon.backends.wireguard.plane import WireguardPlane
from weft.daemon.planes.contract import Place
from weft.desired.tunnels.wireguard import Peer, WireguardPeer, WireguardRoute
from weft.plan.diff import Delete, Put, Step


def networks_go_from_peer_to_peer(netns: Netns, device: str) -> None:
    """On a device without peers: whatever is done, a peer's other networks stay."""
    plane, a, b = WireguardPlane(Place(directory=Path(), boot="")), key(50), key(60)

    def route(net: str, to: str) -> WireguardRoute:
        return WireguardRoute(dev=device, net=ip_network(net), peer=to)

    def peer(name: str) -> WireguardPeer:
        return WireguardPeer(dev=device, peer=Peer(key=name, endpoint=None, keepalive=25))

    def after(*steps: Step) -> dict[str, str]:
        """What `wg` says of each peer's networks."""
        assert netns.call(lambda: plane._apply(steps)) == []
        lines = [line.split("\t") for line in netns.run(f"wg show {device} allowed-ips").splitlines()]
        said = {name: " ".join(sorted(nets.split())) for name, nets in lines}
        seen = netns.call(lambda: plane._maker_now(device).device(device))
        assert seen is not None
        read = {each.peer.key: " ".join(sorted(map(str, each.networks))) or "(none)" for each in seen.peers}
        assert read == said
        return said

    nets = ["10.5.50.0/24", "10.5.51.0/24", "fd05:0:0:50::/64"]
    assert after(Put(peer(a)), Put(peer(b)), *(Put(route(net, a)) for net in nets)) == {a: " ".join(nets), b: "(none)"}
    # A block of one goes by the other, as when that relays for it.
    assert after(Put(route(nets[0], b))) == {a: " ".join(nets[1:]), b: nets[0]}
    more = f"{nets[0]} 10.5.60.0/24"
    assert after(Put(route("10.5.60.0/24", b))) == {a: " ".join(nets[1:]), b: more}
    # What is put of a peer itself changes no network.
    assert after(Put(peer(a)), Put(peer(b))) == {a: " ".join(nets[1:]), b: more}
    assert after(Delete(route(nets[0], b))) == {a: " ".join(nets[1:]), b: "10.5.60.0/24"}
    assert after(Put(route("10.5.52.0/24", a)), Delete(route(nets[1], a)))[a] == f"10.5.52.0/24 {nets[2]}"
    # A network for a peer that is not there makes none, and one that goes takes its networks along.
    assert after(Put(route("10.5.70.0/24", key(70)))).keys() == {a, b}
    assert after(Delete(route("10.5.60.0/24", b)), Delete(peer(b))) == {a: f"10.5.52.0/24 {nets[2]}"}
