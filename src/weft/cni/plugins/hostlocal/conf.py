"""host-local's configuration: ranges of addresses, checked (cni.md §4.1, §4.2), and which of them comes next.

Texts of errors are upstream's.
"""

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations
from typing import Annotated, Final

from weft.model.attachment import Cidr, Dns, RouteConfig
from weft.model.keyed import Arg, Key
from weft.model.net import Ip, Net
from weft.model.value import Value, field, replace
from weft.wire import cnijson, cniresult
from weft.wire.cni import CniError, at_least, failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode

DATA_DIR: Final = "/var/lib/cni/networks"

_NEXT: Final = "the one after the network's"
DataDir = Annotated[str, Key("dataDir", "Where reservations are kept, a file each.", at="ipam")]
_IPV4: Final = 4
_MIN_HOST_BITS: Final = 2


class Range(Value):
    """`first` and `last` are included. `gateway` is never given to a container."""

    subnet: Net
    first: Ip
    last: Ip
    gateway: Ip

    def __contains__(self, ip: Ip) -> bool:
        return ip.version == self.first.version and int(self.first) <= int(ip) <= int(self.last)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def overlaps(self, other: "Range") -> bool:
        """Families never overlap."""
        return other.first in self or self.first in other


RangeSet = tuple[Range, ...]


class RangeKeys(Value):
    subnet: Annotated[Cidr | None, Key("subnet", "The subnet, as `10.1.0.0/16`, without host bits.")] = None
    start: Annotated[Ip | None, Key("rangeStart", "The first address to give.", default=_NEXT)] = None
    end: Annotated[Ip | None, Key("rangeEnd", "The last one; IPv4's broadcast never.", default="the last")] = None
    gateway: Annotated[
        Ip | None, Key("gateway", "The plugin reports it, and gives it to no container.", default=_NEXT)
    ] = None


RangeSets = tuple[tuple[RangeKeys, ...], ...]


class DeleteConf(Value):
    """All that DEL needs: addresses are released by owner, not by range."""

    data_dir: DataDir = DATA_DIR


class Sets(Value):
    single: Annotated[RangeKeys, Key("ipam", "Is a range itself, if it has a `subnet`.")] = field(
        default_factory=RangeKeys
    )
    of_runtime: Annotated[
        RangeSets,
        Key("ipRanges", "More range sets, before those of `ipam` (capability `ipRanges`).", at="runtimeConfig"),
    ] = ()
    own: Annotated[
        RangeSets,
        Key(
            "ranges",
            "Range sets: each attachment gets one address from each set, whichever range of it has one.",
            at="ipam",
        ),
    ] = ()


class IpamConf(Sets):
    """`sets` and `requested` are made of the others; each of `sets`, which are checked, gives one address."""

    routes: Annotated[tuple[RouteConfig, ...], Key("routes", "Routes for the container.", at="ipam")] = ()
    data_dir: DataDir = DATA_DIR
    resolv_conf: Annotated[
        str, Key("resolvConf", "A resolv.conf whose settings are returned as `dns`.", at="ipam", default="no dns")
    ] = ""
    from_args: Annotated[str, Arg("IP", "One more address to give.")] = ""
    of_args: Annotated[tuple[str, ...], Key("ips", "More addresses to give.", at="args.cni")] = ()
    runtime_ips: Annotated[
        tuple[str, ...],
        Key("ips", "Addresses to give, with or without a prefix length (capability `ips`).", at="runtimeConfig"),
    ] = ()
    sets: tuple[RangeSet, ...] = ()
    requested: tuple[Ip, ...] = ()


def describe(ranges: RangeSet) -> str:
    return ",".join(str(one) for one in ranges)


def data_dir(config: Object) -> str:
    _need_ipam(config)
    return decode(DeleteConf, config).data_dir


def parse(config: Object, version: str, args: str) -> IpamConf:
    """`version` is the request's dialect, `args` CNI_ARGS. Raises `CniError` or `JsonError`."""
    _need_ipam(config)
    conf = decode(IpamConf, config, args)
    sets = _checked(conf, version)
    if not sets:
        raise failure("no IP ranges specified")
    cniresult.check_usable(routes=conf.routes)
    requested = map(cnijson.parse_ip_or_cidr, (conf.from_args, *conf.of_args, *conf.runtime_ips))
    return replace(conf, sets=sets, requested=tuple(ip for ip in requested if ip is not None))


def parse_sets(config: Object, version: str) -> tuple[RangeSet, ...]:
    """There are none where all come from the runtime and this request has none."""
    _need_ipam(config)
    return _checked(decode(Sets, config), version)


def _need_ipam(config: Object) -> None:
    if cnijson.value_of(config, "ipam") is None:
        raise failure("IPAM config missing 'ipam' key")


def _checked(keys: Sets, version: str) -> tuple[RangeSet, ...]:
    single = ((keys.single,),) if keys.single.subnet else ()
    sets = tuple(_range_set(index, items) for index, items in enumerate((*keys.of_runtime, *single, *keys.own)))
    families = [ranges[0].first.version for ranges in sets]
    if not at_least(version, "0.3.0") and len(set(families)) < len(families):
        raise failure(f"CNI version {version} does not support more than 1 address per family")
    for (i, a), (j, b) in combinations(enumerate(sets), 2):
        if any(one.overlaps(other) for one in a for other in b):
            raise failure(f"range set {i} overlaps with {j}")
    return sets


def _range_set(index: int, items: tuple[RangeKeys, ...]) -> RangeSet:
    try:
        if not items:
            raise failure("empty range set")
        ranges = tuple(_range(item) for item in items)
        if len({one.first.version for one in ranges}) > 1:
            raise failure("mixed address families")
        for one, other in combinations(ranges, 2):
            if one.overlaps(other):
                raise failure(f"subnets {one} and {other} overlap")
    except CniError as error:
        raise error.within(f"invalid range set {index}: ") from error
    return ranges


def _range(keys: RangeKeys) -> Range:
    subnet = _subnet(keys.subnet or cnijson.parse_cidr(""))
    # IPv4's last address is the broadcast address; IPv6 has none (cni.md §4.2).
    top = int(subnet.broadcast_address) - (1 if subnet.version == _IPV4 else 0)
    start, end, gateway = keys.start, keys.end, keys.gateway
    for name, bound in (("RangeStart", start), ("RangeEnd", end)):
        if bound is not None and bound not in subnet:
            raise failure(f"{name} {bound} not in network {subnet}")
    first_free = subnet.network_address + 1
    first, last = start or first_free, end or subnet.network_address + (top - int(subnet.network_address))
    if int(first) > int(last):
        wrong = f"RangeEnd {end}" if start is None else f"RangeStart {start}"
        raise failure(f"{wrong} not in network {subnet}", f"the range runs backward, from {first} to {last}")
    if gateway is not None and gateway.version != subnet.version:
        raise failure(f'"gateway" {gateway} is IPv{gateway.version}, and its range {subnet} is IPv{subnet.version}')
    return Range(subnet=subnet, first=first, last=last, gateway=gateway or first_free)


def _subnet(cidr: Cidr) -> Net:
    subnet = cidr.network
    cniresult.check_reachable(subnet.broadcast_address, cidr)  # the first one is no host's
    if subnet.max_prefixlen - subnet.prefixlen < _MIN_HOST_BITS:
        raise failure(f"Network {cidr} too small to allocate from")
    if cidr.ip != subnet.network_address:
        raise failure(
            "Network has host bits set. "
            f"For a subnet mask of length {subnet.prefixlen} the network address is {subnet.network_address}"
        )
    return subnet


def parse_resolv_conf(text: str) -> Dns:
    """Read a resolv.conf (cni.md §4.6): the last `domain` counts, lists go on over lines, the rest is ignored."""
    lists: dict[str, list[str]] = {"nameserver": [], "search": [], "options": []}
    domain = ""
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                lists["nameserver"].append(server)
            case ["domain", name, *_]:
                domain = name
            case ["search" | "options" as word, _, *_] as words:
                lists[word] += words[1:]
    return Dns(
        nameservers=tuple(lists["nameserver"]),
        domain=domain,
        search=tuple(lists["search"]),
        options=tuple(lists["options"]),
    )


def candidates(ranges: RangeSet, last: Ip | None) -> Iterator[tuple[Ip, Range]]:
    """Yield every address of the set once, gateways left out, from the one after `last` on (cni.md §4.3).

    Without `last`, or if it lies outside the set, it starts with the first address of the first range. A gateway is
    only skipped in its own range.
    """
    start = next((index for index, one in enumerate(ranges) if last is not None and last in one), None)
    if start is None or last is None:
        for one in ranges:
            yield from _addresses(one, int(one.first), int(one.last))
        return
    here = ranges[start]
    yield from _addresses(here, int(last) + 1, int(here.last))
    for one in (*ranges[start + 1 :], *ranges[:start]):
        yield from _addresses(one, int(one.first), int(one.last))
    yield from _addresses(here, int(here.first), int(last))


def _addresses(one: Range, first: int, last: int) -> Iterator[tuple[Ip, Range]]:
    kind: type[IPv4Address | IPv6Address] = type(one.first)
    for number in range(first, last + 1):
        ip = kind(number)
        if ip != one.gateway:
            yield ip, one


def pick_requested(ranges: RangeSet, requested: Collection[Ip]) -> tuple[Ip, Range] | None:
    return next(((ip, one) for ip in requested for one in ranges if ip in one), None)
