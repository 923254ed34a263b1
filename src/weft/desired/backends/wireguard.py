"""wireguard: encrypted tunnels, of which one device knows all peers (flannel.md §6.6).

The kernel routes the whole network into the device, which knows by its peers' allowed addresses whose a packet is. In
mode `separate` each family of pods has a device of its own and is carried over the same family; in the other modes one
device carries both.
"""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Final

from weft.config.jsonfields import Fields, shown
from weft.desired.claims import Claim, addresses
from weft.desired.inputs import LEAST_MTU, Device, Inputs, check_type, options_of, unusable
from weft.desired.tunnels.wireguard import (
    DEVICE,
    DEVICE_V6,
    Peer,
    Server,
    WireguardDevice,
    WireguardLink,
    WireguardPeer,
    WireguardRoute,
    WireguardTun,
    key_bytes,
)
from weft.model.errors import ConfigError, Problem
from weft.model.kernel.objects import Address, KernelState, Object, Route
from weft.model.keyed import Key
from weft.model.lease import Lease, LeaseAttrs
from weft.model.net import Endpoint, Family, Ip, Net
from weft.model.value import Secret, Value

OVERHEAD: Final = 80  # outer IPv6 40, UDP 8, WireGuard's header and tag 32
_MODES: Final = ("separate", "auto", "ipv4", "ipv6")
_PRIVATE: Final = tuple(IPv4Network(net) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))  # RFC 1918
_LOCAL_V6: Final = IPv6Network("fc00::/7")


class WireguardOptions(Value):
    """flannel.md §6.6."""

    port: Annotated[int, Key("ListenPort", "The UDP port.", default="51820", least=1, most=65535)] = 51820
    port_v6: Annotated[
        int, Key("ListenPortV6", "That of the IPv6 device of mode `separate`.", default="51821", least=1, most=65535)
    ] = 51821
    mtu: Annotated[
        int, Key("MTU", "The longest packet between nodes; pods get 80 less.", default="M", least=0, most=65535)
    ] = 0
    keepalive: Annotated[
        int,
        Key(
            "PersistentKeepaliveInterval",
            "A keepalive in seconds, for nodes behind a NAT; 0 is off.",
            default="0",
            least=0,
            most=65535,
        ),
    ] = 0
    mode: str = "separate"
    psk: Secret | None = None


class Keys(Value):
    """This node's own key, and whether a process serves its devices, because the kernel has no WireGuard."""

    private: Secret
    public: str
    in_process: bool = False


class PublicKey(bytes):
    """A node's public key, as a claim: one key may be spelt in several ways."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"key {b64encode(self).decode()}"


LINKS = (WireguardLink, WireguardTun)


def options(fields: Fields, _families: Collection[int]) -> WireguardOptions:
    found = fields.read(WireguardOptions)
    mode, psk = fields.text("Mode"), fields.text("PSK")
    if mode and mode not in _MODES:
        fields.problem("Mode", shown(mode), expected="separate, auto, ipv4 or ipv6")
    if psk:
        try:
            key_bytes(psk)
        except ValueError as error:
            fields.problem("PSK", f"a value (not shown): {error}", expected="32 bytes in base64, as `wg genpsk` prints")
    return WireguardOptions(
        port=found.port,
        port_v6=found.port_v6,
        mtu=found.mtu,
        keepalive=found.keepalive,
        mode=mode or "separate",
        psk=Secret(psk) if psk else None,
    )


def check(inputs: Inputs) -> None:
    base, left = _base_mtu(inputs), mtu(inputs)
    least = max(LEAST_MTU[family] for family in inputs.netconf.families)
    if left < least:
        where = "Backend.MTU" if _options(inputs).mtu else f"MTU of {inputs.facts.uplink.name}"
        seen = f"{base} leaves {left} bytes in the tunnel"
        hint = (
            "Raise the MTU of the uplink" if least == LEAST_MTU[4] else "Raise the MTU of the uplink, or turn IPv6 off"
        )
        raise ConfigError(Problem(code="MTU-001", where=where, seen=seen, expected=f"at least {least}", hint=hint))


def devices(inputs: Inputs) -> Sequence[Device]:
    """A device for each family in mode `separate`; in the others one for both."""
    keys = inputs.prepared  # before it is known, one that exists may be of either kind
    kind = WireguardTun if isinstance(keys, Keys) and keys.in_process else WireguardLink
    served: dict[str, set[int]] = {}
    for family in inputs.netconf.families:
        served.setdefault(_device(inputs, family), set()).add(family)
    return [Device(name, kind, frozenset(families)) for name, families in served.items()]


def mtu(inputs: Inputs) -> int:
    """What the longest headers leave, of either family."""
    return _base_mtu(inputs) - OVERHEAD


def advertise(inputs: Inputs) -> LeaseAttrs:
    """Q-41."""
    key = _keys(inputs).public

    def data(family: Family) -> dict[str, Any] | None:
        return {"PublicKey": key, "Port": _port(inputs, family)} if family in inputs.netconf.families else None

    facts = inputs.facts
    return LeaseAttrs(
        public_ip=facts.public_v4, public_ipv6=facts.public_v6, backend="wireguard", data=data(4), data_v6=data(6)
    )


def shared(inputs: Inputs) -> KernelState:
    """The addresses are the bases of our subnets."""
    state: KernelState = frozenset()
    keys = _keys(inputs)
    for family, subnet, pool in ((4, inputs.v4, inputs.netconf.v4), (6, inputs.v6, inputs.netconf.v6)):
        if subnet is None or pool is None:
            continue
        kind = WireguardTun if keys.in_process else WireguardLink
        name = _device(inputs, family)
        link = kind(name=name, mtu=mtu(inputs))
        device = WireguardDevice(dev=name, private=keys.private, port=_port(inputs, family))
        base = subnet.network_address
        address = Address(dev=name, ip=base, prefixlen=base.max_prefixlen)
        state |= {link, device, address, Route(dst=pool.network, dev=name)}
        if keys.in_process:
            state |= {Server(dev=name)}
    return state


def claims(attrs: LeaseAttrs) -> tuple[Claim, ...]:
    """The kernel knows a peer by its key, and a second one would take its subnets."""
    keys = (_public_key(attrs.data), _public_key(attrs.data_v6))
    return (*dict.fromkeys(key for key in keys if key is not None), *addresses(attrs))


def peer(inputs: Inputs, lease: Lease) -> KernelState:
    check_type(lease, "wireguard")
    if _options(inputs).mode == "separate":
        return frozenset(_separate(inputs, lease))
    return frozenset(_single(inputs, lease))


def _separate(inputs: Inputs, lease: Lease) -> Iterator[Object]:
    attrs = lease.attrs
    if inputs.v4 is not None and lease.v4 is not None and attrs.public_ip is not None:
        yield from _peer(inputs, lease, attrs.public_ip, attrs.data, [lease.v4])
    if inputs.v6 is not None and lease.v6 is not None and attrs.public_ipv6 is not None:
        yield from _peer(inputs, lease, attrs.public_ipv6, attrs.data_v6, [lease.v6])


def _single(inputs: Inputs, lease: Lease) -> Iterator[Object]:
    own = {4: inputs.v4, 6: inputs.v6}
    nets = [net for net in lease.subnets if own[net.version] is not None]
    public = _dialled(inputs, lease.attrs)
    if nets and public is None:
        raise unusable(lease, f"no address for mode {_options(inputs).mode}", "the public address of that family")
    if nets and public is not None:
        # Either family's data have the key; the port is that of the family that is dialled.
        attrs = lease.attrs
        wanted, other = (attrs.data_v6, attrs.data) if public.version == 6 else (attrs.data, attrs.data_v6)
        yield from _peer(inputs, lease, public, other if wanted is None else wanted, nets)


def _dialled(inputs: Inputs, attrs: LeaseAttrs) -> Ip | None:
    """Where one device carries both families."""
    mode, v4, v6, facts = _options(inputs).mode, attrs.public_ip, attrs.public_ipv6, inputs.facts
    if mode != "auto":
        return v4 if mode == "ipv4" else v6
    if v4 is not None and facts.public_v4 is not None and not any(v4 in net for net in _PRIVATE):
        return v4
    if v6 is not None and facts.public_v6 is not None and not (v6 in _LOCAL_V6 or facts.public_v6 in _LOCAL_V6):
        return v6
    return v4 or v6


def _peer(inputs: Inputs, lease: Lease, public: Ip, data: Any, nets: Sequence[Net]) -> Iterator[Object]:
    chosen, dev = _options(inputs), _device(inputs, nets[0].version)
    key, port = _key(lease, data), _number(lease, data)
    family: Family = 6 if public.version == 6 else 4
    endpoint = Endpoint(public, port or _port(inputs, family))
    yield WireguardPeer(dev=dev, peer=Peer(key=key, endpoint=endpoint, psk=chosen.psk, keepalive=chosen.keepalive))
    yield from (WireguardRoute(dev=dev, net=net, peer=key) for net in nets)


def _key(lease: Lease, data: Any) -> str:
    """In the one spelling that the kernel shows. Raises `PeerError`."""
    key = _public_key(data)
    if key is None:
        text = data.get("PublicKey") if isinstance(data, dict) else None
        raise unusable(lease, f"PublicKey {text!r:.60}", "32 bytes in base64")
    return b64encode(key).decode()


def _public_key(data: Any) -> PublicKey | None:
    text = data.get("PublicKey") if isinstance(data, dict) else None
    try:
        return PublicKey(key_bytes(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def _number(lease: Lease, data: Any) -> int:
    """0 if the peer does not say, as old ones. Raises `PeerError`."""
    port = data.get("Port", 0)
    if type(port) is not int or not 0 <= port <= 65535:
        raise unusable(lease, f"Port {port!r:.60}", "a port, or none")
    return port


def _device(inputs: Inputs, family: int) -> str:
    return DEVICE_V6 if family == 6 and _options(inputs).mode == "separate" else DEVICE


def _port(inputs: Inputs, family: int) -> int:
    chosen = _options(inputs)
    return chosen.port_v6 if family == 6 and chosen.mode == "separate" else chosen.port


def _base_mtu(inputs: Inputs) -> int:
    return _options(inputs).mtu or inputs.facts.uplink.mtu


def _keys(inputs: Inputs) -> Keys:
    if not isinstance(inputs.prepared, Keys):
        raise TypeError(f"wireguard got {type(inputs.prepared).__name__}")
    return inputs.prepared


def _options(inputs: Inputs) -> WireguardOptions:
    return options_of(inputs, WireguardOptions)
