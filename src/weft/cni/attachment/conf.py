"""The keys that all plugins which make a pair of links have, and upstream's words for wrong ones."""

from typing import Annotated, Final

from weft.model.attachment import Dns
from weft.model.keyed import Key
from weft.model.net import Mac
from weft.model.value import Value
from weft.wire.cni import failure

MASQ_KINDS: Final = ("iptables", "nftables")
FAILED: Final = "failed to load netconf"

IpMasq = Annotated[bool, Key("ipMasq", "Masquerade what the container sends out of its network.")]
MasqKind = Annotated[
    str,
    Key("ipMasqBackend", "With which rules: `iptables` or `nftables`.", default="`iptables`, unless only nft works"),
]
Mtu = Annotated[int, Key("mtu", "The MTU of the pair of interfaces.", default="the kernel's")]
IpamType = Annotated[str, Key("type", "The plugin that gives addresses.", at="ipam", default="none: no addresses")]
OwnDns = Annotated[Dns, Key("dns", "Resolver settings for the result, instead of the IPAM plugin's.")]

_MAX_MTU: Final = 65535


class DeleteConf(Value):
    """All that DEL and GC need: nothing else may keep them from their work."""

    ip_masq: IpMasq = False
    ipam_type: IpamType = ""
    spoof_check: bool = False

    @property
    def masquerades(self) -> bool:
        """True if there may be masquerade rules: they are for addresses, which IPAM gives."""
        return self.ip_masq and bool(self.ipam_type)


def check_masq(*, ip_masq: bool, kind: str) -> None:
    if ip_masq and kind and kind not in MASQ_KINDS:
        raise failure(f'unknown ipmasq backend "{kind}"')


def check_mtu(mtu: int) -> None:
    if not 0 <= mtu <= _MAX_MTU:
        raise failure(f"invalid MTU {mtu} (must be between 0 and {_MAX_MTU})")


def parse_mac(text: str, failed: str) -> Mac | None:
    if not text:
        return None
    try:
        return Mac.parse(text)
    except ValueError as error:
        raise failure(f"{failed}: address {text}: invalid MAC address") from error
