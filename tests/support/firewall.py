"""Inputs for firewall rules: the examples of flannel.md §8 and 11.10, dual stack; and hosts without programs."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from weft.config.netconf import NetConf, Pool
from weft.desired.backends import vxlan
from weft.desired.backends.vxlan import VxlanOptions
from weft.desired.firewall import rule_sets
from weft.desired.inputs import Facts, Inputs, Uplink
from weft.kernel.netfilter.firewall import Firewall
from weft.model.kernel.objects import RuleSet
from weft.model.net import Mac

CLUSTER_V4 = IPv4Network("10.42.0.0/16")
CLUSTER_V6 = IPv6Network("fd00:10:244::/56")
PODS_V4 = IPv4Network("10.42.1.0/24")
PODS_V6 = IPv6Network("fd00:10:244:1::/64")


def firewall_inputs(
    *,
    kind="iptables",
    families=(4, 6),
    pods_v4=PODS_V4,
    pods_v6=PODS_V6,
    ip_masq=True,
    forward_rules=True,
    random_fully=True,
):
    """Make the inputs of a node that is 192.0.2.1 and has both families, or those named."""
    return Inputs(
        backend=vxlan,
        netconf=NetConf(
            v4=Pool(
                network=CLUSTER_V4,
                subnet_len=24,
                first=IPv4Address("10.42.1.0"),
                last=IPv4Address("10.42.255.0"),
            )
            if 4 in families
            else None,
            v6=Pool(
                network=CLUSTER_V6,
                subnet_len=64,
                first=IPv6Address("fd00:10:244:1::"),
                last=IPv6Address("fd00:10:244:ff::"),
            )
            if 6 in families
            else None,
            nftables=kind == "nft",
            backend="vxlan",
            options=VxlanOptions(),
        ),
        facts=Facts(
            uplink=Uplink(name="eth0", index=2, mtu=1500, v4=IPv4Address("192.0.2.1")),
            public_v4=IPv4Address("192.0.2.1"),
            public_v6=None,
        ),
        mac_v4=Mac.parse("02:00:00:00:00:01"),
        mac_v6=Mac.parse("02:00:00:00:00:02"),
        v4=pods_v4 if 4 in families else None,
        v6=pods_v6 if 6 in families else None,
        ip_masq=ip_masq,
        forward_rules=forward_rules,
        random_fully=random_fully,
    )


def wanted(kind, family, **changes) -> RuleSet:
    """Return the rule set of one kind and family."""
    (ruleset,) = rule_sets(firewall_inputs(kind=kind, families=(family,), **changes))
    assert isinstance(ruleset, RuleSet)
    return ruleset


async def matches(firewall: Firewall, ruleset: RuleSet) -> bool:
    """Tell whether the kernel holds exactly this rule set."""
    return (await firewall.present({ruleset.key})).get(ruleset.key) == ruleset


def only(programs: str) -> list[str]:
    """A command that runs another where /usr/sbin holds just these programs, seen by nobody else."""
    script = f"""mount -t tmpfs none /mnt; cd /usr/sbin
    for program in {programs}; do if test -e $program; then cp -a $program /mnt; fi; done
    mount --bind /mnt /usr/sbin; exec "$@\""""
    return ["unshare", "--mount", "sh", "-ec", script, "sh"]
