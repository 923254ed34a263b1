"""ptp's configuration: those of bridge's keys that make sense without a bridge, with the same words for wrong ones."""

from typing import Final

from weft.cni.plugins.bridge.conf import DNS, IP_MASQ, IP_MASQ_BACKEND, IPAM_TYPE, MTU, check_masq, check_mtu
from weft.model.attachment import PtpConf
from weft.wire import cnijson
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns

KEYS: Final = (IP_MASQ, IP_MASQ_BACKEND, MTU, DNS, IPAM_TYPE)


def parse(config: Object) -> PtpConf:
    """Read a request for ADD, CHECK or STATUS. Raises `CniError`."""
    conf = parse_for_delete(config)
    check_masq(ip_masq=conf.ip_masq, kind=conf.masq_kind)
    check_mtu(conf.mtu)
    if not conf.ipam_type:
        raise failure("no plugin name provided", 'ptp needs addresses: name an IPAM plugin as "ipam.type"')
    return conf


def parse_for_delete(config: Object) -> PtpConf:
    """Read a request for DEL or GC, which must work whatever else the configuration says."""
    try:
        return PtpConf(
            ip_masq=IP_MASQ(config),
            masq_kind=IP_MASQ_BACKEND(config),
            mtu=MTU(config),
            ipam_type=IPAM_TYPE(cnijson.member(config, "ipam")),
            dns=read_dns(DNS(config)),
        )
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error
