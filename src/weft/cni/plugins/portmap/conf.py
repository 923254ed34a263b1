"""portmap's configuration (cni.md §5.1) as values, and back: what is kept of an attachment has the same keys."""

from typing import Annotated, Any, Final

from weft.cni.plugins.portmap.ports import PROTOCOLS, Mapping, PortMap, PortmapConf
from weft.model.attachment import Cidr
from weft.model.keyed import Key
from weft.model.value import Value, replace
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode, encode

IPTABLES: Final = "iptables"
NFTABLES: Final = "nftables"

_LARGEST_PORT: Final = 65535
_LARGEST_BIT: Final = 31
_LONGEST_CHAIN: Final = 28
# They would end nft's statement.
_NFT_BREAKS: Final = frozenset(";#")


class _Kept(Value):
    """All that DEL needs where nothing is kept of the attachment."""

    mappings: Annotated[Any, Key("portMappings", at="runtimeConfig")] = None


def parse(config: Object) -> PortmapConf:
    """Read a request. Raises `CniError`, whose text begins as upstream's does."""
    try:
        return _parse(config)
    except JsonError as error:
        raise failure(f"failed to parse config: {error}") from error
    except CniError as error:
        raise error.within("failed to parse config: ") from error


def is_mapped(config: Object) -> bool:
    """Tell in DEL whether mappings were asked for, right ones or not. Raises `JsonError`."""
    return bool(decode(_Kept, config).mappings)


def _parse(config: Object) -> PortmapConf:
    conf = decode(PortmapConf, config)
    mark_bit, mark_chain = conf.mark_bit, conf.mark_chain
    if mark_chain and mark_bit is not None:
        raise failure("Cannot specify externalSetMarkChain and markMasqBit")
    if mark_bit is not None and not 0 <= mark_bit <= _LARGEST_BIT:
        raise failure(f"MasqMarkBit must be between 0 and {_LARGEST_BIT}")
    if len(mark_chain) > _LONGEST_CHAIN or mark_chain.startswith("-") or not _is_plain(mark_chain, spaces=False):
        raise failure(f'Invalid externalSetMarkChain "{mark_chain}"')
    for mapping in conf.mappings:
        _check_mapping(mapping)
    for key, words in (("conditionsV4", conf.conditions_v4), ("conditionsV6", conf.conditions_v6)):
        if not all(_is_plain(word, spaces=True) for word in words):
            raise failure(f"invalid characters in {key}")
    mappings = (replace(one, protocol=one.protocol.lower()) for one in conf.mappings)
    return _with_backend(replace(conf, mappings=tuple(mappings)))


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


def _is_plain(text: str, *, spaces: bool) -> bool:
    """Tell whether a text stays one line of a program's input, and without `spaces` one word of it."""
    return text.isprintable() and text.isascii() and (spaces or " " not in text)


def _check_mapping(mapping: Mapping) -> None:
    for port, side in ((mapping.container_port, "container"), (mapping.host_port, "host")):
        if not 0 < port <= _LARGEST_PORT:
            raise failure(f"Invalid {side} port number: {port}")
    protocol = mapping.protocol.lower()
    if protocol not in PROTOCOLS:
        what = f'Invalid protocol "{protocol}" of host port {mapping.host_port}'
        raise failure(what, f"known are {', '.join(PROTOCOLS)}")


class _Addresses(Value):
    """What is kept beside the configuration."""

    addresses: Annotated[tuple[Cidr, ...], Key("addresses")] = ()


def render(wanted: PortMap) -> Object:
    """Return what is kept of an attachment's port map: `restore` reads it."""
    return {**encode(_Addresses(addresses=wanted.addresses)), **encode(wanted.conf)}


def restore(kept: Object) -> PortMap | None:
    """Read what `render` has written; None if it is torn."""
    try:
        wanted = PortMap(conf=parse(kept), addresses=decode(_Addresses, kept).addresses)
    except (CniError, JsonError):
        return None
    return wanted if wanted.addresses and wanted.conf.mappings else None
