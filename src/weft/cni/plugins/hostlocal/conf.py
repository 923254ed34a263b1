"""host-local's configuration: ranges of addresses, checked (cni.md §4.1, §4.2). Texts of errors are upstream's."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Final

from weft.model.attachment import Dns, IpamConf, Range, RangeSet
from weft.model.net import Ip, Net
from weft.wire import cnijson, confkey
from weft.wire.cni import CniError, at_least, failure, parse_args
from weft.wire.cnijson import Object
from weft.wire.cniresult import read_route

DATA_DIR: Final = "/var/lib/cni/networks"

_IPAM: Final = "`ipam`"
_RANGE: Final = "`ipam`, or a range of `ipam.ranges`"
_SUBNET: Final = confkey.text("subnet", "The subnet, as `10.1.0.0/16`, without host bits.", place=_RANGE)
_START: Final = confkey.text(
    "rangeStart", "The first address to give.", place=_RANGE, meaning="the one after the network's"
)
_END: Final = confkey.text("rangeEnd", "The last one; IPv4's broadcast never.", place=_RANGE, meaning="the last")
_GATEWAY: Final = confkey.text("gateway", "Is told, never given.", place=_RANGE, meaning="the one after the network's")
_RANGES: Final = confkey.items(
    "ranges",
    "Range sets: each attachment gets one address from each set, whichever range of it has one.",
    cnijson.as_list,
    place=_IPAM,
    kind="list of lists of ranges",
)
_ROUTES: Final = confkey.items(
    "routes", 'Routes for the container, as `{"dst": …, "gw": …}`.', read_route, place=_IPAM, kind="list of routes"
)
_DATA_DIR: Final = confkey.text("dataDir", "Where reservations are kept, a file each.", place=_IPAM, default=DATA_DIR)
_RESOLV_CONF: Final = confkey.text(
    "resolvConf", "A resolv.conf whose settings are returned as `dns`.", place=_IPAM, meaning="no dns"
)
_RUNTIME_RANGES: Final = confkey.items(
    "ipRanges",
    "Range sets of the runtime, before those of `ipam` (capability `ipRanges`).",
    cnijson.as_list,
    place="`runtimeConfig`",
    kind="list of lists of ranges",
)
_RUNTIME_IPS: Final = confkey.items(
    "ips",
    "Addresses to give, with or without a prefix length (capability `ips`).",
    cnijson.as_text,
    place="`runtimeConfig`",
)
_ARGS_IPS: Final = confkey.items("ips", "More addresses to give.", cnijson.as_text, place="`args.cni`")
KEYS: Final = (
    _SUBNET,
    _START,
    _END,
    _GATEWAY,
    _RANGES,
    _ROUTES,
    _DATA_DIR,
    _RESOLV_CONF,
    _RUNTIME_RANGES,
    _RUNTIME_IPS,
    _ARGS_IPS,
)
ARGS: Final = {"IP": "One more address to give."}

_IPV4: Final = 4
_MIN_HOST_BITS: Final = 2


def describe(ranges: RangeSet) -> str:
    """Name a range set as upstream does."""
    return ",".join(str(one) for one in ranges)


def data_dir(config: Object) -> str:
    """Return the store's root: all that DEL needs, because addresses are released by owner, not by range."""
    return _DATA_DIR(_ipam(config))


def parse(config: Object, version: str, args: str) -> IpamConf:
    """Read a whole request; `version` is its dialect, `args` CNI_ARGS. Raises `CniError` or `JsonError`."""
    sets = parse_sets(config, version)
    if not sets:
        raise failure("no IP ranges specified")
    ipam = _ipam(config)
    return IpamConf(
        sets=sets,
        routes=_ROUTES(ipam),
        data_dir=data_dir(config),
        resolv_conf=_RESOLV_CONF(ipam),
        requested=tuple(_requested(config, cnijson.member(config, "runtimeConfig"), args)),
    )


def parse_sets(config: Object, version: str) -> tuple[RangeSet, ...]:
    """Read the range sets alone; there are none where all come from the runtime and this request has none."""
    ipam = _ipam(config)
    raw = _raw_sets(ipam, cnijson.member(config, "runtimeConfig"))
    sets = tuple(_range_set(index, items) for index, items in enumerate(raw))
    families = [ranges[0].first.version for ranges in sets]
    if not at_least(version, "0.3.0") and len(set(families)) < len(families):
        raise failure(f"CNI version {version} does not support more than 1 address per family")
    for (i, a), (j, b) in combinations(enumerate(sets), 2):
        if any(one.overlaps(other) for one in a for other in b):
            raise failure(f"range set {i} overlaps with {j}")
    return sets


def _ipam(config: Object) -> Object:
    if cnijson.value_of(config, "ipam") is None:
        raise failure("IPAM config missing 'ipam' key")
    return cnijson.member(config, "ipam")


def _requested(config: Object, runtime: Object, args: str) -> Iterator[Ip]:
    from_args = parse_args(args, ARGS).get("IP", "")
    of_cni = cnijson.member(cnijson.member(config, "args"), "cni")
    texts = (from_args, *_ARGS_IPS(of_cni), *_RUNTIME_IPS(runtime))
    for text in texts:
        ip = cnijson.parse_ip_or_cidr(text)
        if ip is not None:
            yield ip


def _raw_sets(ipam: Object, runtime: Object) -> list[list[Any]]:
    """Return the range sets in the order of their ids: the runtime's, the single one, the configuration's."""
    sets = list(_RUNTIME_RANGES(runtime))
    if _SUBNET(ipam):
        sets.append([ipam])
    sets += _RANGES(ipam)
    return sets


def _range_set(index: int, items: list[Any]) -> RangeSet:
    try:
        if not items:
            raise failure("empty range set")
        ranges = tuple(_range(cnijson.as_object(item, "a range")) for item in items)
        if len({one.first.version for one in ranges}) > 1:
            raise failure("mixed address families")
        for one, other in combinations(ranges, 2):
            if one.overlaps(other):
                raise failure(f"subnets {one} and {other} overlap")
    except CniError as error:
        raise error.within(f"invalid range set {index}: ") from error
    return ranges


def _range(obj: Object) -> Range:
    subnet = _subnet(_SUBNET(obj))
    inside = _inside(subnet)
    # IPv4's last address is the broadcast address; IPv6 has none (cni.md §4.2).
    top = int(subnet.broadcast_address) - (1 if subnet.version == _IPV4 else 0)
    start = _address(_START(obj))
    end = _address(_END(obj))
    if start is not None and (not inside(start) or (end is not None and int(start) > int(end) and inside(end))):
        raise failure(f"RangeStart {start} not in network {subnet}")
    if end is not None and not inside(end):
        raise failure(f"RangeEnd {end} not in network {subnet}")
    first_free = subnet.network_address + 1
    return Range(
        subnet=subnet,
        first=start or first_free,
        last=end or subnet.network_address + (top - int(subnet.network_address)),
        gateway=_address(_GATEWAY(obj)) or first_free,
    )


def _inside(subnet: Net) -> Callable[[Ip], bool]:
    return lambda ip: ip.version == subnet.version and ip in subnet


def _subnet(text: str) -> Net:
    cidr = cnijson.parse_cidr(text)
    subnet = cidr.network
    if subnet.max_prefixlen - subnet.prefixlen < _MIN_HOST_BITS:
        raise failure(f"Network {cidr} too small to allocate from")
    if cidr.ip != subnet.network_address:
        raise failure(
            "Network has host bits set. "
            f"For a subnet mask of length {subnet.prefixlen} the network address is {subnet.network_address}"
        )
    return subnet


def _address(text: str) -> Ip | None:
    return cnijson.parse_ip(text) if text else None


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
