"""The cluster's network configuration, `net-conf.json` or the store's `config` key (flannel.md §2).

Text becomes a checked value once, here; whoever holds a `NetConf` need not doubt it. This module does not fetch
the text and knows nothing of this machine: whether the network fits the node is `weft.desired.facts`' question.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Generic, Literal, TypeVar

from weft.config.goflags import did_you_mean
from weft.config.jsonfields import Fields, decode, shown
from weft.model.errors import ConfigError, Problem
from weft.model.net import Net
from weft.model.value import Value

NetT = TypeVar("NetT", IPv4Network, IPv6Network)
IpT = TypeVar("IpT", IPv4Address, IPv6Address)


class Pool(Value, Generic[NetT, IpT]):
    """The cluster network of one family and how nodes' subnets are cut from it.

    `first` and `last` are the lowest and highest subnet base that may be allocated, both inclusive.
    """

    network: NetT
    subnet_len: int
    first: IpT
    last: IpT


class VxlanOptions(Value):
    """`Backend` of type vxlan (flannel.md §6.2). `port` 0 is the kernel's own (8472), `mtu` 0 the uplink's."""

    vni: int = 1
    port: int = 0
    mtu: int = 0
    gbp: bool = False
    learning: bool = False
    direct_routing: bool = False


class HostGwOptions(Value):
    """`Backend` of type host-gw has no options (flannel.md §6.3)."""


BackendOptions = VxlanOptions | HostGwOptions


class NetConf(Value):
    """A checked network configuration. A family that is off is None.

    `unknown` are the keys that mean nothing here: `warnings` says in words that they are ignored, as flannel does.
    """

    v4: Pool[IPv4Network, IPv4Address] | None
    v6: Pool[IPv6Network, IPv6Address] | None
    nftables: bool
    backend: str
    options: BackendOptions
    warnings: tuple[str, ...] = ()
    unknown: tuple[Problem, ...] = ()

    @property
    def families(self) -> tuple[Literal[4, 6], ...]:
        """The families that are on."""
        pools: tuple[tuple[Literal[4, 6], object], ...] = ((4, self.v4), (6, self.v6))
        return tuple(family for family, pool in pools if pool is not None)

    @property
    def networks(self) -> tuple[Net, ...]:
        """The networks of those families."""
        return tuple(pool.network for pool in (self.v4, self.v6) if pool is not None)


# Types that flannel has and this build has not.
_LATER: Final = ("udp", "wireguard", "ipip", "ipsec", "alloc", "extension", "tencent-vpc")
_HERE: Final = ("vxlan", "host-gw")
_VNI_MAX: Final = 2**24 - 1
_PORT_MAX: Final = 65535
_MTU_MAX: Final = 65535
# IFNAMSIZ is 16 and counts the zero at the end (linux/if.h).
_DEVICE_NAME_MAX: Final = 15
# The least that an IP packet of a pod must fit (RFC 791, RFC 8200), plus vxlan's headers on that underlay.
_LEAST_MTU_V4: Final = 68 + 50
_LEAST_MTU_V6: Final = 1280 + 70


class _Family(Value, Generic[NetT, IpT]):
    """One family's keys (with their `prefix`) and how its subnets are cut (flannel.md §2.3); lengths in bits."""

    prefix: str
    longest: int
    usual: int
    smallest_network: int
    forbidden: tuple[NetT, ...]
    network: Callable[[Fields, str], NetT | None]
    address: Callable[[Fields, str], IpT | None]
    make: Callable[[int], IpT]


# Forbidden is what no pod network may touch: "this" network, loopback, multicast; link-local in IPv6.
_V4: Final = _Family(
    prefix="",
    longest=30,
    usual=24,
    smallest_network=28,
    forbidden=tuple(IPv4Network(text) for text in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4")),
    network=Fields.network4,
    address=Fields.address4,
    make=IPv4Address,
)
_V6: Final = _Family(
    prefix="IPv6",
    longest=126,
    usual=64,
    smallest_network=124,
    forbidden=tuple(IPv6Network(text) for text in ("::1/128", "fe80::/10", "ff00::/8")),
    network=Fields.network6,
    address=Fields.address6,
    make=IPv6Address,
)


def parse_netconf(text: str, where: str = "net-conf", *, etcd: bool = True) -> NetConf:
    """Read and check a network configuration. `where` names it in messages.

    With `etcd` the rules and defaults of subnet allocation apply (flannel.md §2.3); without (Kubernetes gives out the
    subnets) lengths and bounds are taken as they stand. Raises `ConfigError` with every problem of the text.
    """
    problems: list[Problem] = []
    fields = Fields(decode(text, where), where, problems)
    if problems:
        raise ConfigError(*problems)
    want_v4 = fields.boolean("EnableIPv4", default=True)
    want_v6 = fields.boolean("EnableIPv6", default=False)
    nftables = fields.boolean("EnableNFTables", default=False)
    if not (want_v4 or want_v6):
        fields.problem("EnableIPv4", "false, and EnableIPv6 is not true", expected="at least one of the two to be true")
    v4 = _pool(fields, _V4, enabled=want_v4, etcd=etcd)
    v6 = _pool(fields, _V6, enabled=want_v6, etcd=etcd)
    present, value = fields.last("Backend")
    options = Fields(value, where, problems, prefix="Backend.")
    backend = _backend_type(options) if present else _no_backend(fields)
    parsed, warnings, unknown = _backend_options(backend, options, want_v4=want_v4, want_v6=want_v6)
    unknown = (*fields.unknown(), *unknown)
    if problems:
        # A misspelt key often is why another one is missing.
        raise ConfigError(*problems, *unknown)
    return NetConf(
        v4=v4,
        v6=v6,
        nftables=nftables,
        backend=backend,
        options=parsed,
        warnings=(*fields.warnings(), *warnings),
        unknown=unknown,
    )


def _pool(fields: Fields, family: _Family[NetT, IpT], *, enabled: bool, etcd: bool) -> Pool[NetT, IpT] | None:
    """Read one family's keys; types are checked even where the family is off."""
    key = f"{family.prefix}Network"
    network = family.network(fields, key)
    longest = family.longest if enabled and etcd else 128
    length = fields.integer(f"{family.prefix}SubnetLen", 0, low=0, high=longest)
    first = family.address(fields, f"{family.prefix}SubnetMin")
    last = family.address(fields, f"{family.prefix}SubnetMax")
    if not enabled or not _usable(fields, key, network, family.forbidden) or network is None:
        return None
    if not etcd:
        low, high = int(network.network_address), int(network.broadcast_address)
        return Pool(network=network, subnet_len=length, first=first or family.make(low), last=last or family.make(high))
    subnet_len = _subnet_len(fields, family, network, length)
    for end, address in (("Min", first), ("Max", last)):
        if address and int(address) and address not in network:
            expected = f"an address inside {key} {network}"
            fields.problem(f"{family.prefix}Subnet{end}", str(address), expected=expected)
            subnet_len = None
    if subnet_len is None:
        return None
    size = 1 << (network.max_prefixlen - subnet_len)
    # The first subnet is skipped. An address that is all zeros counts as not given.
    low = int(first or 0) or int(network.network_address) + size
    high = int(last or 0) or int(network.broadcast_address) + 1 - size
    pool = Pool(network=network, subnet_len=subnet_len, first=family.make(low), last=family.make(high))
    _check_order(fields, family.prefix, pool)
    return pool


def _usable(fields: Fields, key: str, network: NetT | None, forbidden: tuple[NetT, ...]) -> bool:
    if network is None or not network.prefixlen:
        if network is not None or fields.last(key)[1] is None:  # else the value is unreadable, and that is said
            fields.problem(key, "missing" if network is None else str(network), expected="the network of all pods")
        return False
    for other in forbidden:
        if network.overlaps(other):
            fields.problem(key, str(network), expected="a network for pods", hint=f"It overlaps {other}.")
            return False
    return True


def _subnet_len(fields: Fields, family: _Family[NetT, IpT], network: NetT, length: int) -> int | None:
    """Check or choose the length of a node's subnet; four must fit, so that one can be skipped."""
    if length:
        if length >= network.prefixlen + 2:
            return length
        expected = f"at least {network.prefixlen + 2}: {network} must hold at least four subnets"
        fields.problem(f"{family.prefix}SubnetLen", str(length), expected=expected)
    elif network.prefixlen <= family.smallest_network:
        return max(family.usual, network.prefixlen + 2)
    else:
        expected = f"a /{family.smallest_network} or larger"
        fields.problem(f"{family.prefix}Network", f"{network} is too small", expected=expected)
    return None


def _check_order(fields: Fields, prefix: str, pool: Pool[NetT, IpT]) -> None:
    """First and last must be bases of subnets, in this order. Those that we chose are, if those given are."""
    for key, address in ((f"{prefix}SubnetMin", pool.first), (f"{prefix}SubnetMax", pool.last)):
        beyond = int(address) % (1 << (pool.network.max_prefixlen - pool.subnet_len))
        if beyond:
            seen = f"{address} is not on a {prefix}SubnetLen boundary"
            base = type(address)(int(address) - beyond)
            fields.problem(key, seen, expected=f"the first address of a /{pool.subnet_len}, such as {base}")
    if int(pool.first) > int(pool.last):
        fields.problem(f"{prefix}SubnetMin", f"{pool.first} is above {prefix}SubnetMax {pool.last}")


def _backend_type(options: Fields) -> str:
    """Read the type, in lower case; what is not one of this build's has become a problem."""
    text = options.text("Type")
    if text is None and (not options.is_object or options.last("Type")[1] is not None):
        return ""  # not an object, not a text: that is said already
    backend = (text or "").lower()
    if backend in _LATER:
        options.problem("Type", f"{backend} is not in this build", expected=" or ".join(_HERE))
    elif backend not in _HERE:
        hint = did_you_mean(backend, (*_HERE, *_LATER))
        options.problem("Type", f"unknown backend {shown(backend)}", expected=" or ".join(_HERE), hint=hint)
    return backend


def _no_backend(fields: Fields) -> str:
    # Q-11: without a back end flannel takes udp, whatever its documentation says. So do we, for its clusters' sake.
    fields.problem(
        "Backend",
        "missing, which means udp, and udp is not in this build",
        expected='"Backend": {"Type": "vxlan"}',
        hint="flannel's documentation calls vxlan the default, but the program's default is udp.",
    )
    return ""


def _backend_options(
    backend: str, options: Fields, *, want_v4: bool, want_v6: bool
) -> tuple[BackendOptions, tuple[str, ...], tuple[Problem, ...]]:
    """Return the options, the warnings about them, and their unknown keys."""
    if backend == "host-gw":
        return HostGwOptions(), tuple(options.warnings()), tuple(options.unknown())
    if backend != "vxlan":
        return HostGwOptions(), (), ()  # the back end is a problem itself: which keys it has is not known
    parsed = VxlanOptions(
        vni=options.integer("VNI", 1, low=0, high=_VNI_MAX),
        port=options.integer("Port", 0, low=0, high=_PORT_MAX),
        mtu=options.integer("MTU", 0, low=0, high=_MTU_MAX),
        gbp=options.boolean("GBP", default=False),
        learning=options.boolean("Learning", default=False),
        direct_routing=options.boolean("DirectRouting", default=False),
    )
    for device, wanted in ((f"flannel.{parsed.vni}", want_v4), (f"flannel-v6.{parsed.vni}", want_v6)):
        if wanted and len(device) > _DEVICE_NAME_MAX:
            most = "9" * (_DEVICE_NAME_MAX - len(device.rstrip("0123456789")))
            options.problem("VNI", str(parsed.vni), expected=f"at most {most}", hint=f"The name {device} is too long.")
    least = _LEAST_MTU_V6 if want_v6 else _LEAST_MTU_V4
    if 0 < parsed.mtu < least:
        options.problem("MTU", str(parsed.mtu), expected=f"0 (the uplink's) or {least} to {_MTU_MAX}")
    windows = [key for key in ("MacPrefix", "Name") if options.last(key)[0]]
    windows_only = (f"Backend.{key} has a meaning on Windows only and is ignored" for key in windows)
    return parsed, (*options.warnings(), *windows_only), tuple(options.unknown())
