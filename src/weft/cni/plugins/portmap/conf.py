"""portmap's configuration (cni.md §5.1) as values, and back: what is kept of an attachment has the same keys."""

from typing import Any, Final

from weft.cni.plugins.portmap.ports import PROTOCOLS, Mapping, PortMap, PortmapConf
from weft.model.attachment import Cidr
from weft.model.value import replace
from weft.wire import cnijson, confkey
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.confkey import Key

IPTABLES: Final = "iptables"
NFTABLES: Final = "nftables"

_ITEM: Final = "`runtimeConfig.portMappings[]`"
_HOST_PORT: Final = confkey.integer("hostPort", "The host's port.", place=_ITEM)
_CONTAINER_PORT: Final = confkey.integer("containerPort", "The container's port.", place=_ITEM)
_PROTOCOL: Final = confkey.text("protocol", "`tcp`, `udp` or `sctp`, in any letter case.", place=_ITEM)
_HOST_IP: Final = confkey.text("hostIP", "The host's address.", place=_ITEM, meaning="all of them")
_BACKEND: Final = confkey.text(
    "backend",
    "Upstream's rules in `iptables` or `nftables` form.",
    meaning="what the keys below imply, else weft's own maps in nf_tables",
)
_SNAT: Final = replace(
    confkey.flag("snat", "Masquerade what would otherwise not come back: from the container itself, from localhost."),
    default="true",
)
_MASQ_ALL: Final = confkey.flag("masqAll", "Masquerade everything that comes through a mapping.")
_CONDITIONS_V4: Final = confkey.items(
    "conditionsV4", "More words for the rules of IPv4, in the backend's language.", cnijson.as_text
)
_CONDITIONS_V6: Final = confkey.items("conditionsV6", "The same for IPv6.", cnijson.as_text)
_MARK_BIT: Final = confkey.maybe_integer(
    "markMasqBit", "The bit of the packet mark that asks for masquerading, 0 to 31 (iptables).", default="13"
)
_MARK_CHAIN: Final = confkey.text(
    "externalSetMarkChain", "A chain of others that sets such a mark, instead (iptables).", meaning="one of its own"
)

_LARGEST_PORT: Final = 65535
_LARGEST_BIT: Final = 31
_LONGEST_CHAIN: Final = 28
# They would end nft's statement.
_NFT_BREAKS: Final = frozenset(";#")


def parse(config: Object) -> PortmapConf:
    """Read a request. Raises `CniError`, whose text begins as upstream's does."""
    try:
        return _parse(config)
    except JsonError as error:
        raise failure(f"failed to parse config: {error}") from error
    except CniError as error:
        raise error.within("failed to parse config: ") from error


def _parse(config: Object) -> PortmapConf:
    mark_bit = _MARK_BIT(config)
    mark_chain = _MARK_CHAIN(config)
    if mark_chain and mark_bit is not None:
        raise failure("Cannot specify externalSetMarkChain and markMasqBit")
    if mark_bit is not None and not 0 <= mark_bit <= _LARGEST_BIT:
        raise failure(f"MasqMarkBit must be between 0 and {_LARGEST_BIT}")
    if len(mark_chain) > _LONGEST_CHAIN or mark_chain.startswith("-") or not _is_plain(mark_chain, spaces=False):
        raise failure(f'Invalid externalSetMarkChain "{mark_chain}"')
    conf = PortmapConf(
        mappings=_MAPPINGS(cnijson.member(config, "runtimeConfig")),
        snat=not _SNAT.given(config) or _SNAT(config),
        masq_all=_MASQ_ALL(config),
        conditions_v4=_conditions(config, _CONDITIONS_V4),
        conditions_v6=_conditions(config, _CONDITIONS_V6),
        mark_bit=mark_bit,
        mark_chain=mark_chain,
        backend=_BACKEND(config),
    )
    return _with_backend(conf)


def _with_backend(conf: PortmapConf) -> PortmapConf:
    """Settle which backend is asked for: by name, or by options that only one of them understands."""
    found = _options(conf)
    backend = conf.backend or (IPTABLES if found[IPTABLES] else NFTABLES if found[NFTABLES] else "")
    if not backend and conf.mark_bit is not None:
        backend = IPTABLES
    if backend not in ("", *found):
        raise failure(f'unrecognized backend "{backend}"')
    for other, options in found.items():
        if options and other != backend:
            listed = " ".join(options)
            raise failure(
                f"{backend} backend was requested but configuration contains {other}-specific options [{listed}]"
            )
    return replace(conf, backend=backend)


def _options(conf: PortmapConf) -> dict[str, list[str]]:
    """Return the keys that belong to each backend, by the style of their conditions (cni.md §5.1)."""
    found: dict[str, list[str]] = {IPTABLES: ["externalSetMarkChain"] if conf.mark_chain else [], NFTABLES: []}
    for key, words in (("conditionsV4", conf.conditions_v4), ("conditionsV6", conf.conditions_v6)):
        if words:
            style = IPTABLES if words[0].startswith(("-", "!")) else NFTABLES
            found[style].append(key)
            if style == NFTABLES and _NFT_BREAKS.intersection("".join(words)):
                raise failure(f'Invalid {key} "{" ".join(words)}"')
    return found


def _conditions(config: Object, key: Key[tuple[str, ...]]) -> tuple[str, ...]:
    words = key(config)
    if not all(_is_plain(word, spaces=True) for word in words):
        raise JsonError(f"invalid characters in {key.name}")
    return words


def _is_plain(text: str, *, spaces: bool) -> bool:
    """Tell whether a text stays one line of a program's input, and without `spaces` one word of it."""
    return text.isprintable() and text.isascii() and (spaces or " " not in text)


def _mapping(value: Any, where: str) -> Mapping:
    item = cnijson.as_object(value, where)
    container_port = _port(_CONTAINER_PORT(item), "container")
    host_port = _port(_HOST_PORT(item), "host")
    protocol = _PROTOCOL(item).lower()
    if protocol not in PROTOCOLS:
        raise failure(f'Invalid protocol "{protocol}" of host port {host_port}', f"known are {', '.join(PROTOCOLS)}")
    address = _HOST_IP(item)
    host_ip = cnijson.parse_ip(address) if address else None
    return Mapping(host_port=host_port, container_port=container_port, protocol=protocol, host_ip=host_ip)


def _port(port: int, side: str) -> int:
    if not 0 < port <= _LARGEST_PORT:
        raise failure(f"Invalid {side} port number: {port}")
    return port


_MAPPINGS: Final = confkey.items(
    "portMappings",
    "The published ports, each an object (capability `portMappings`).",
    _mapping,
    place="`runtimeConfig`",
    kind="list of objects",
)
KEYS: Final = (
    _BACKEND,
    _SNAT,
    _MASQ_ALL,
    _CONDITIONS_V4,
    _CONDITIONS_V6,
    _MARK_BIT,
    _MARK_CHAIN,
    _MAPPINGS,
    _HOST_PORT,
    _CONTAINER_PORT,
    _PROTOCOL,
    _HOST_IP,
)


def render(wanted: PortMap) -> Object:
    """Return what is kept of an attachment's port map: `restore` reads it."""
    conf = wanted.conf
    mappings = [
        {
            "hostPort": mapping.host_port,
            "containerPort": mapping.container_port,
            "protocol": mapping.protocol,
            "hostIP": str(mapping.host_ip or ""),
        }
        for mapping in conf.mappings
    ]
    kept: Object = {
        "addresses": [str(address) for address in wanted.addresses],
        "runtimeConfig": {"portMappings": mappings},
        "backend": conf.backend,
        "snat": conf.snat,
        "masqAll": conf.masq_all,
        "conditionsV4": list(conf.conditions_v4),
        "conditionsV6": list(conf.conditions_v6),
        "externalSetMarkChain": conf.mark_chain,
    }
    return kept if conf.mark_bit is None else {**kept, "markMasqBit": conf.mark_bit}


def restore(kept: Object) -> PortMap | None:
    """Read what `render` has written; None if it is torn."""
    try:
        wanted = PortMap(conf=parse(kept), addresses=cnijson.items(kept, "addresses", _cidr))
    except (CniError, JsonError):
        return None
    return wanted if wanted.addresses and wanted.conf.mappings else None


def _cidr(value: Any, where: str) -> Cidr:
    return cnijson.parse_cidr(cnijson.as_text(value, where))
