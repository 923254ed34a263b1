"""portmap's configuration (cni.md §5.1) as values, and back: what is kept of an attachment has the same keys."""

from typing import Annotated, Any, Final

from weft.model.attachment import Cidr
from weft.model.keyed import Key
from weft.model.net import Ip
from weft.model.value import Value, replace
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode, encode

# IANA's numbers of the protocols that have ports and that runtimes name.
PROTOCOLS: Final = {"sctp": 132, "tcp": 6, "udp": 17}
IPTABLES: Final = "iptables"
NFTABLES: Final = "nftables"
_LARGEST_PORT: Final = 65535
_LARGEST_BIT: Final = 31
_LONGEST_CHAIN: Final = 28
# They would end nft's statement.
_NFT_BREAKS: Final = frozenset(";#")


class Mapping(Value):
    """`host_ip` None is all addresses of the host; 0.0.0.0 and :: stand for those of their family alone."""

    host_port: Annotated[int, Key("hostPort", "The host's port.")] = 0
    container_port: Annotated[int, Key("containerPort", "The container's port.")] = 0
    protocol: Annotated[str, Key("protocol", "`tcp`, `udp` or `sctp`, in any letter case.")] = ""
    host_ip: Annotated[Ip | None, Key("hostIP", "The host's address.", default="all of them")] = None

    def __str__(self) -> str:
        if self.host_ip is None:
            return f"host port {self.host_port}/{self.protocol}"
        return f"host port {self.host_port}/{self.protocol} of {self.host_ip}"


class PortmapConf(Value):
    """`backend` is `iptables`, `nftables` or empty: nothing asks for one of them.

    The conditions are further words of a match, in the backend's language. `mark_bit` None is upstream's default;
    `mark_chain` is empty unless another program's chain sets the mark.
    """

    backend: Annotated[
        str,
        Key(
            "backend",
            "Upstream's rules in `iptables` or `nftables` form.",
            default="what the keys below imply, else weft's own maps in nf_tables",
        ),
    ] = ""
    snat: Annotated[
        bool, Key("snat", "Masquerade what would otherwise not come back: from the container itself, from localhost.")
    ] = True
    masq_all: Annotated[bool, Key("masqAll", "Masquerade everything that comes through a mapping.")] = False
    conditions_v4: Annotated[
        tuple[str, ...], Key("conditionsV4", "More words for the rules of IPv4, in the backend's language.")
    ] = ()
    conditions_v6: Annotated[tuple[str, ...], Key("conditionsV6", "The same for IPv6.")] = ()
    mark_bit: Annotated[
        int | None,
        Key("markMasqBit", "The bit of the packet mark that asks for masquerading, 0 to 31 (iptables).", default="13"),
    ] = None
    mark_chain: Annotated[
        str,
        Key(
            "externalSetMarkChain",
            "A chain of others that sets such a mark, instead (iptables).",
            default="one of its own",
        ),
    ] = ""
    mappings: Annotated[
        tuple[Mapping, ...], Key("portMappings", "The published ports (capability `portMappings`).", at="runtimeConfig")
    ] = ()

    def conditions(self, family: int) -> tuple[str, ...]:
        return self.conditions_v4 if family == 4 else self.conditions_v6


class PortMap(Value):
    """What one attachment wants. It has at most one address of each family."""

    conf: PortmapConf
    addresses: tuple[Cidr, ...]

    @property
    def families(self) -> list[int]:
        return sorted({address.version for address in self.addresses})

    @property
    def ips(self) -> list[Ip]:
        return [address.ip for address in self.addresses]

    def mappings_to(self, address: Cidr) -> list[Mapping]:
        """A mapping of a host's address belongs to that address' family, any other to both."""
        return [each for each in self.conf.mappings if each.host_ip is None or each.host_ip.version == address.version]


def target(address: Cidr, mapping: Mapping) -> str:
    """As iptables and nft write it: `10.1.2.3:80`, `[fd00::3]:80`."""
    ip = f"{address.ip}" if address.version == 4 else f"[{address.ip}]"
    return f"{ip}:{mapping.container_port}"


class _DeleteConf(Value):
    mappings: Annotated[Any, Key("portMappings", at="runtimeConfig")] = None


def parse(config: Object) -> PortmapConf:
    """Text of a `CniError` begins as upstream's does."""
    try:
        return _parse(config)
    except JsonError as error:
        raise failure(f"failed to parse config: {error}") from error
    except CniError as error:
        raise error.within("failed to parse config: ") from error


def is_mapped(config: Object) -> bool:
    """Tell in DEL whether mappings were asked for, right ones or not. Raises `JsonError`."""
    return bool(decode(_DeleteConf, config).mappings)


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
    addresses: Annotated[tuple[Cidr, ...], Key("addresses")] = ()


def render(wanted: PortMap) -> Object:
    return {**encode(_Addresses(addresses=wanted.addresses)), **encode(wanted.conf)}


def restore(kept: Object) -> PortMap | None:
    try:
        wanted = PortMap(conf=parse(kept), addresses=decode(_Addresses, kept).addresses)
    except (CniError, JsonError):
        return None
    return wanted if wanted.addresses and wanted.conf.mappings else None
