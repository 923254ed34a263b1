"""ptp's configuration: those of bridge's keys that make sense without a bridge, with the same words for wrong ones."""

from weft.model.attachment import PtpConf
from weft.wire import cnijson
from weft.wire.bridgeconf import check_masq, check_mtu
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cniresult import read_dns


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
            ip_masq=cnijson.flag(config, "ipMasq"),
            masq_kind=cnijson.text(config, "ipMasqBackend"),
            mtu=cnijson.integer(config, "mtu"),
            ipam_type=cnijson.text(cnijson.member(config, "ipam"), "type"),
            dns=read_dns(cnijson.member(config, "dns")),
        )
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error
