"""ptp's configuration: those of bridge's keys that make sense without a bridge, with the same words for wrong ones."""

from weft.cni.attachment.conf import (
    FAILED,
    IpamType,
    IpMasq,
    KeptBeside,
    MasqKind,
    Mtu,
    OwnDns,
    check_masq,
    check_mtu,
)
from weft.model.attachment import Dns
from weft.model.value import Value, field
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail


class PtpConf(Value):
    """What ptp is asked: a subset of bridge's keys, with the same meaning."""

    ip_masq: IpMasq = False
    masq_kind: MasqKind = ""
    mtu: Mtu = 0
    ipam_type: IpamType = ""
    dns: OwnDns = field(default_factory=Dns)


def parse(config: Object) -> PtpConf:
    """Read a request for ADD, CHECK or STATUS. Raises `CniError`."""
    conf = decode_or_fail(PtpConf, config, failed=FAILED)
    check_masq(ip_masq=conf.ip_masq, kind=conf.masq_kind)
    check_mtu(conf.mtu)
    if not conf.ipam_type:
        raise failure("no plugin name provided", 'ptp needs addresses: name an IPAM plugin as "ipam.type"')
    return conf


def parse_for_delete(config: Object) -> KeptBeside:
    """Read a request for DEL or GC. Raises `CniError`."""
    return decode_or_fail(KeptBeside, config, failed=FAILED)
