"""The marks by which weft recognises its objects in the kernel."""

from typing import Final

# The number that marks a route or a neighbour as ours (rtm_protocol, NDA_PROTOCOL). Free in
# /etc/iproute2/rt_protos and in linux/rtnetlink.h; 'weft' on a telephone's keys is 9338, 933 % 256 = 165.
PROTOCOL: Final = 165
# The prefix of a link's alias (IFLA_IFALIAS) that marks the link as ours.
ALIAS: Final = "weft:"
# Links that are the node's, and that its pods share: a bridge, and the two ends of the host's interface in a VLAN.
BRIDGE_ALIAS: Final = f"{ALIAS}bridge"
GATEWAY_ALIAS: Final = f"{ALIAS}gateway"
# The host's end of a pod's links; behind it stands the key of the attachment.
POD_ALIAS: Final = f"{ALIAS}pod:"
# The settings that make a machine a router, by family; one for all its links.
FORWARDING: Final = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
# The settings that have packets of bridges pass the packet filter's rules, by family; absent without br_netfilter.
BRIDGE_NETFILTER: Final = {4: "net/bridge/bridge-nf-call-iptables", 6: "net/bridge/bridge-nf-call-ip6tables"}
# The settings by which a machine answers no echo request, by family.
ECHOES_IGNORED: Final = {4: "net/ipv4/icmp_echo_ignore_all", 6: "net/ipv6/icmp/echo_ignore_all"}
# What nft calls the families.
NFT_WORD: Final = {4: "ip", 6: "ip6"}
# Where a route stands unless somebody says otherwise (linux/rtnetlink.h: RT_TABLE_MAIN).
MAIN_TABLE: Final = 254
LOCAL_TABLE: Final = 255  # RT_TABLE_LOCAL: the node's own addresses
# The tables of nft in which the nodes of a lab have the rules of its Services, of families `ip` and `ip6`.
SERVICES_TABLE: Final = "weft-lab-services"
