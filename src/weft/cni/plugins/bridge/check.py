"""CHECK and STATUS of bridge (cni.md §3.8, §3.9).

CHECK looks at all that ADD makes, upstream's at the links, addresses and routes alone. STATUS says beforehand what
would make an ADD fail.
"""

from ipaddress import ip_interface

from weft.cni.attachment import check as attachcheck
from weft.cni.attachment import compare, forwarding, interface, pod, spoofcheck, veth
from weft.cni.attachment.compare import Wrong
from weft.cni.plugins.bridge import conf as bridgeconf
from weft.cni.plugins.bridge import link as bridgelink
from weft.cni.plugins.bridge import vlan
from weft.cni.plugins.bridge.conf import BridgeConf
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal import verbs as hostlocal
from weft.cni.sdk import delegate
from weft.cni.sdk.startup import Call
from weft.model.attachment import Result
from weft.model.kernel.reported import LinkInfo
from weft.wire import cni
from weft.wire.cni import CniError


def check(call: Call) -> None:
    """Check an attachment, its addresses with IPAM first."""
    conf = bridgeconf.parse(call.config, call.args)
    if conf.ipam_type:
        delegate.ask(call, conf.ipam_type, "CHECK")
    result = call.previous()
    rtnl = call.host.rtnl
    with attachcheck.reported():
        bridge = compare.check_bridge(result, conf.bridge, rtnl.link(conf.bridge), promisc=conf.promisc)
        link = attachcheck.container_side(call, result, up=not conf.container_down)
        missing = f"CNI veth created for bridge {conf.bridge} was not found"
        end = compare.check_host_end(result, veth.peer_of(rtnl, link), missing)
        compare.check_port(end, bridge, hairpin=conf.hairpin, isolated=conf.isolated)
        if conf.vlan or conf.trunk:
            _check_vlans(call, conf, bridge, end)
        if conf.is_gateway:
            _check_gateways(call, conf, result)
        if conf.ip_masq and conf.ipam_type:
            attachcheck.masquerade(call, conf.masq_kind, result)
        if conf.spoof_check and not spoofcheck.is_there(call.attachment):
            raise Wrong("spoof-check rules not found", f"nothing keeps {end.name} from sending with any MAC")


def _check_vlans(call: Call, conf: BridgeConf, bridge: LinkInfo, end: LinkInfo) -> None:
    if bridge.bridge is None or not bridge.bridge.vlan_filtering:
        raise Wrong(f"Bridge interface {bridge.name} has VLAN filtering off", "its VLANs separate nothing")
    own, tagged = vlan.of_port(conf.vlan, conf.trunk)
    compare.check_vlans(end, vlan.ports(call)[end.index], own=own, tagged=tagged)


def _check_gateways(call: Call, conf: BridgeConf, result: Result) -> None:
    name = vlan.gateway_name(conf)
    link = call.host.rtnl.link(name)
    have = interface.addresses_on(call.host.rtnl, link.index) if link is not None else ()
    for gateway in pod.gateway_addresses(result):
        if gateway not in have:
            there = ", ".join(map(str, have)) or "none"
            raise Wrong(f"Gateway address {gateway} not found on {name}", f"the addresses of {name}: {there}")
        if not forwarding.is_on(call, gateway.version):
            raise Wrong(f"IPv{gateway.version} forwarding is off", "the host does not route for its pods")


def status(call: Call) -> None:
    """Say what would keep an ADD from succeeding now."""
    conf = bridgeconf.parse(call.config, "")
    if conf.ipam_type:
        delegate.ask(call, conf.ipam_type, "STATUS")
    bridge = call.host.rtnl.link(conf.bridge)
    if bridge is not None:
        if bridge.kind != "bridge":
            raise CniError(cni.UNAVAILABLE, bridgelink.not_a_bridge(conf.bridge).msg)
        if conf.is_gateway and not conf.vlan and conf.ipam_type == hostlocal.NAME:
            _check_room(call, conf, bridge)
    attachcheck.tools_work(masq_kind=conf.masq_kind, masquerade=conf.ip_masq, spoof_check=conf.spoof_check)


def _check_room(call: Call, conf: BridgeConf, bridge: LinkInfo) -> None:
    """Check that the bridge can get the gateways' addresses, where there is no choice of ranges."""
    have = interface.addresses_on(call.host.rtnl, bridge.index)
    for ranges in ipamconf.parse_sets(call.config, call.version):
        if len(ranges) > 1:
            continue
        gateway = ip_interface((ranges[0].gateway, ranges[0].subnet.prefixlen))
        try:
            pod.ensure_address(gateway, have, link=conf.bridge, force=conf.force_address)
        except pod.Unfit as error:
            raise CniError(cni.UNAVAILABLE, str(error), bridgelink.in_the_way(call, bridge, have)) from error
