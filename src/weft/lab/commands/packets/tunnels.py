"""Which UDP ports of a lab carry what, and how other programs are told. Pure."""

from collections.abc import Sequence

from weft.config.netconf import parse_netconf
from weft.desired.backends import BACKENDS
from weft.desired.backends.udp import UdpOptions
from weft.desired.backends.vxlan import VxlanOptions
from weft.desired.backends.wireguard import WireguardOptions
from weft.model.errors import ConfigError
from weft.wire.packet import VXLAN_PORT, Tunnels


def tunnels(network: str) -> Tunnels:
    """Return what UDP ports carry by a lab's network configuration; of one that cannot be read nothing is known."""
    try:
        options = parse_netconf(network, backends=BACKENDS).options
    except ConfigError:
        return {}
    match options:
        case VxlanOptions(port=port):
            return {port or VXLAN_PORT: "VXLAN"}
        case UdpOptions(port=port):
            return {port: "IP"}
        case WireguardOptions(port=port, port_v6=port_v6):
            return {port: "WireGuard", port_v6: "WireGuard"}
    return {}


def comment(lab: str, places: Sequence[str], known: Tunnels) -> str:
    """Return what a file says of itself: where its packets were seen, and how their tunnels are decoded."""
    parts = [f"Captured in lab {lab}, on {', '.join(places)}."]
    for port, carried in known.items():
        parts.append(f"UDP port {port} carries {carried}.")
        if carried == "VXLAN":
            parts.append(f"Wireshark shows it after Decode As…, or with -d {_decode_as(port)}; tcpdump with -T vxlan.")
    if known:
        parts.append("What is in a tunnel is the comment of its packet.")
    return " ".join(parts)


def programs(known: Tunnels) -> tuple[str, str]:
    """Return the command lines of Wireshark and tcpdump for such a file, but for its name."""
    ports = [port for port, carried in known.items() if carried == "VXLAN"]
    decoded = "".join(f"-d {_decode_as(port)} " for port in ports)
    return f"wireshark {decoded}-r", f"tcpdump -n {'-T vxlan ' if ports else ''}-r"


def _decode_as(port: int) -> str:
    return f"udp.port=={port},vxlan"
