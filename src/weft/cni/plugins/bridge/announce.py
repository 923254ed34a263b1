"""How the bridge, the host and its pods learn where a new pod is: by as few frames as will do (docs/decisions/0016)."""

from weft.cni.attachment import pod
from weft.cni.attachment.interface import set_quietly
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.plugins.hostlocal import verbs as hostlocal
from weft.cni.sdk.host import Container
from weft.cni.sdk.startup import Call
from weft.kernel.rtnetlink.neigh import learn_fdb
from weft.model.attachment import Result
from weft.model.kernel.reported import LinkInfo
from weft.model.net import Mac


def own_mac(call: Call, conf: BridgeConf, bridge: LinkInfo, result: Result) -> Mac | None:
    """Return the MAC that its address gives the container: if both are ours to give, and no other link has it."""
    if conf.mac or conf.spoof_check or not conf.is_gateway or conf.ipam_type != hostlocal.NAME:
        return None
    mac = pod.mac_of(result)
    # Somebody may have asked for this MAC, or have the address on this bridge by another network's ranges.
    return mac if mac is None or call.host.rtnl.fdb_entry(bridge.index, mac) is None else None


def make_known(call: Call, container: Container, bridge: LinkInfo, link: LinkInfo, result: Result) -> None:
    """Have everybody know the container's MAC who may remember another one, or none.

    Only now that the port forwards. When the link came up it may not have, and what the kernel announces then is lost:
    an address that is used again would not be reached until the others forget, up to a minute later. (On a bridge with
    STP a port forwards much later; then this is lost too.)
    """
    has_v6 = any(ip.address.version == 6 for ip in result.ips)
    if has_v6:
        set_quietly(container.sysctls, f"net/ipv6/conf/{link.name}/ndisc_notify", "1")
    if (
        link.mac is not None
        and link.mac == pod.mac_of(result)
        and not has_v6
        and not _is_news(call, bridge, link, result)
    ):
        # It has said nothing, so the bridge would copy to all ports what is for it. Refused: then it does just that.
        call.host.rtnl.batch([learn_fdb(link.link, link.mac)])
        return
    # The kernel announces when the MAC is set (NETDEV_CHANGEADDR), be it the same.
    container.rtnl.set_link(link.index, mac=link.mac)


def _is_news(call: Call, bridge: LinkInfo, link: LinkInfo, result: Result) -> bool:
    """Tell whether the host remembers the address with another MAC: of upstream's pod, or one with a MAC of its own."""
    remembered = (call.host.rtnl.neighbour(bridge.index, ip.address.ip) for ip in result.ips)
    return any(one is not None and one.mac not in (None, link.mac) for one in remembered)
