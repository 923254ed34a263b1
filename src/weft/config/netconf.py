"""The cluster's network configuration: `net-conf.json`, or the store's `config` key (flannel.md §2).

Whether it fits this node is `weft.desired.facts`' question.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Generic, Literal, Protocol, TypeVar

from weft.config.goflags import did_you_mean
from weft.config.jsonfields import Fields, decode, shown
from weft.model.errors import ConfigError, Problem
from weft.model.net import Net
from weft.model.value import Value

NetT = TypeVar("NetT", IPv4Network, IPv6Network)
IpT = TypeVar("IpT", IPv4Address, IPv6Address)


class Pool(Value, Generic[NetT, IpT]):
    """A family's network and how nodes' subnets are cut from it; `first` and `last` may be allocated, too."""

    network: NetT
    subnet_len: int
    first: IpT
    last: IpT

    def subnet(self, index: int) -> NetT:
        """The subnet `index` places after the first; it may be beyond the last."""
        size = 1 << (self.network.max_prefixlen - self.subnet_len)
        return type(self.network)((int(self.first) + index * size, self.subnet_len))


class Backend(Protocol):
    @property
    def options(self) -> Callable[[Fields, Collection[int]], Value]:
        """Read `Backend`, for the families (4, 6) that are on. What is wrong becomes problems."""
        ...


class NetConf(Value):
    """A checked configuration. A family that is off is None; `unknown` are keys that mean nothing here."""

    v4: Pool[IPv4Network, IPv4Address] | None
    v6: Pool[IPv6Network, IPv6Address] | None
    nftables: bool
    backend: str
    options: Value
    warnings: tuple[str, ...] = ()
    unknown: tuple[Problem, ...] = ()

    @property
    def families(self) -> tuple[Literal[4, 6], ...]:
        pools: tuple[tuple[Literal[4, 6], object], ...] = ((4, self.v4), (6, self.v6))
        return tuple(family for family, pool in pools if pool is not None)

    @property
    def relays(self) -> bool:
        """Whether nodes carry packets of pods of other nodes to pods of other nodes."""
        return self.backend == _OF_A_MESH

    @property
    def networks(self) -> tuple[Net, ...]:
        return tuple(pool.network for pool in (self.v4, self.v6) if pool is not None)

    @property
    def subnet_lens(self) -> dict[int, int]:
        """The length of each node's subnet, by family."""
        pools = {4: self.v4, 6: self.v6}
        return {family: pool.subnet_len for family, pool in pools.items() if pool is not None}


# Routes in a cloud's table. Some of them are gone from flannel, too.
_CLOUDS: Final = ("ali-vpc", "aws-vpc", "gce", "tencent-vpc")
_DEFAULT: Final = "udp"  # whatever flannel's documentation says
_OF_A_MESH: Final = "mesh"
_NO_BACKEND: Final = (
    'Backend is missing, which means udp, as with flannel\'s program; its documentation says vxlan: {"Type": "vxlan"}'
)


class _Family(Value, Generic[NetT, IpT]):
    """One family's keys and how its subnets are cut (flannel.md §2.3); lengths in bits."""

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


def parse_netconf(
    text: str,
    where: str = "net-conf",
    *,
    backends: Mapping[str, Backend],
    etcd: bool = True,
    mesh: bool | None = None,
) -> NetConf:
    """`where` names the text in messages. Raises `ConfigError` with every problem of it.

    With `etcd`, nodes allocate subnets (flannel.md §2.3). Without, Kubernetes gives them out: lengths and bounds mean
    nothing. `mesh` says whether the store is one, which has a back end of its own; None if that is not known.
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
    there = [each for each in backends if mesh is None or mesh == (each == _OF_A_MESH)]
    name = _backend_type(options, backends, there) if present else _DEFAULT
    if mesh is not None and name in backends and mesh != (name == _OF_A_MESH):
        seen, expected = (name, _OF_A_MESH) if mesh else (f"{name}, and the store is no mesh", "another back end")
        hint = "In a mesh there is no other" if mesh else "Start weftd with --mesh, or choose vxlan"
        options.problem("Type", seen, expected=expected, hint=hint)
    backend = backends.get(name)
    families = [family for family, wanted in ((4, want_v4), (6, want_v6)) if wanted]
    parsed = backend.options(options, families) if backend is not None else Value()
    # Which keys a back end has that is a problem itself is not known.
    unknown = (*fields.unknown(), *(options.unknown() if backend is not None else ()))
    if problems:
        # A misspelt key often is why another one is missing.
        raise ConfigError(*problems, *unknown)
    return NetConf(
        v4=v4,
        v6=v6,
        nftables=nftables,
        backend=name,
        options=parsed,
        warnings=(*(() if present else (_NO_BACKEND,)), *fields.warnings(), *options.warnings()),
        unknown=unknown,
    )


def _pool(fields: Fields, family: _Family[NetT, IpT], *, enabled: bool, etcd: bool) -> Pool[NetT, IpT] | None:
    """Types are checked even where the family is off."""
    key = f"{family.prefix}Network"
    network = family.network(fields, key)
    longest = family.longest if enabled and etcd else 128
    length = fields.integer(f"{family.prefix}SubnetLen", 0, low=0, high=longest)
    first = family.address(fields, f"{family.prefix}SubnetMin")
    last = family.address(fields, f"{family.prefix}SubnetMax")
    if not enabled or not _usable(fields, key, network, family.forbidden) or network is None:
        return None
    if not etcd:
        bottom, top = int(network.network_address), int(network.broadcast_address)
        whole = network.max_prefixlen
        return Pool(network=network, subnet_len=whole, first=family.make(bottom), last=family.make(top))
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
    """Check or choose a length; four subnets must fit, so that one can be skipped."""
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
    """First and last must be bases of subnets, in this order."""
    for key, address in ((f"{prefix}SubnetMin", pool.first), (f"{prefix}SubnetMax", pool.last)):
        beyond = int(address) % (1 << (pool.network.max_prefixlen - pool.subnet_len))
        if beyond:
            seen = f"{address} is not on a {prefix}SubnetLen boundary"
            base = type(address)(int(address) - beyond)
            fields.problem(key, seen, expected=f"the first address of a /{pool.subnet_len}, such as {base}")
    if int(pool.first) > int(pool.last):
        fields.problem(f"{prefix}SubnetMin", f"{pool.first} is above {prefix}SubnetMax {pool.last}")


def _backend_type(options: Fields, backends: Mapping[str, Backend], there: Sequence[str]) -> str:
    """In lower case; one that this build has not is a problem. `there` are those that go with the store."""
    text = options.text("Type")
    if text is None and (not options.is_object or options.last("Type")[1] is not None):
        return ""  # not an object, not a text: that is said already
    name = (text or "").lower()
    if name not in backends:
        *others, last = there
        here = f"{', '.join(others)} or {last}" if others else last
        if name in _CLOUDS:
            hint = "Use extension with commands of your own, or alloc beside the cloud's own controller of routes"
            options.problem("Type", f"{name}: weft keeps no route tables of clouds", expected=here, hint=hint)
        else:
            hint = did_you_mean(name, there)
            options.problem("Type", f"unknown backend {shown(name)}", expected=here, hint=hint)
    return name
