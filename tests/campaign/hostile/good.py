"""Configurations of all plugins that are right, with as many keys as there are: what hostile calls spoil."""

from typing import Any

from weft.cni import registry

Json = Any
# Those that work on what another plugin has made.
CHAINED = ("bandwidth", "firewall", "portmap", "sbr", "tuning")


def good_configurations(held: Json) -> dict[str, Json]:
    """A configuration of each plugin of this build, with as many keys as it has; `held` is the held pod's result.

    A plugin that is missing here is a failure of the test: hostile calls need something to spoil.
    """
    ipam = {
        "type": "host-local",
        "dataDir": "/var/lib/nets",
        "resolvConf": "/etc/resolv.conf",
        "ranges": [
            [{"subnet": "10.99.0.0/24", "rangeStart": "10.99.0.5", "rangeEnd": "10.99.0.200", "gateway": "10.99.0.1"}],
            [{"subnet": "fd00:99::/64"}],
        ],
        "routes": [{"dst": "10.98.0.0/16", "gw": "10.99.0.1", "mtu": 1400, "priority": 5, "table": 100, "scope": 0}],
    }
    chained = {"prevResult": held}
    kinds: dict[str, Json] = {
        "bandwidth": {
            **chained,
            "ingressRate": 8_000_000,
            "ingressBurst": 8_000_000,
            "egressRate": 8_000_000,
            "egressBurst": 8_000_000,
            "unshapedSubnets": ["10.0.0.0/8"],
        },
        "bridge": {
            "bridge": "cni9",
            "isGateway": True,
            "isDefaultGateway": True,
            "forceAddress": True,
            "ipMasq": True,
            "ipMasqBackend": "nftables",
            "mtu": 1400,
            "hairpinMode": True,
            "promiscMode": False,
            "enabledad": False,
            "portIsolation": True,
            "macspoofchk": True,
            "disableContainerInterface": False,
            "dns": {"nameservers": ["10.0.0.1"], "domain": "d", "search": ["s"], "options": ["o"]},
            "args": {"cni": {"mac": "c2:11:22:33:44:55", "ips": ["10.99.0.9"]}},
            "runtimeConfig": {"mac": "c2:11:22:33:44:56"},
            "ipam": ipam,
        },
        "firewall": {
            **chained,
            "backend": "iptables",
            "iptablesAdminChainName": "CNI-A",
            "ingressPolicy": "same-bridge",
        },
        "flannel": {
            "subnetFile": "/run/flannel.env",
            "dataDir": "/var/lib/flannel",
            "delegate": {"bridge": "cni8", "isDefaultGateway": True, "hairpinMode": True, "forceAddress": True},
            "ipam": {"dataDir": "/var/lib/nets", "routes": [{"dst": "10.97.0.0/16"}]},
            "runtimeConfig": {"mac": "c2:11:22:33:44:57"},
        },
        "host-local": {
            "ipam": ipam,
            "runtimeConfig": {"ips": ["10.99.0.20"], "ipRanges": [[{"subnet": "10.96.0.0/24"}]]},
        },
        "loopback": {},
        "portmap": {
            **chained,
            "snat": True,
            "masqAll": False,
            "markMasqBit": 13,
            "conditionsV4": ["-d", "10.0.0.0/8"],
            "conditionsV6": ["-d", "fd00::/8"],
            "backend": "iptables",
            "runtimeConfig": {
                "portMappings": [
                    {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
                    {"hostPort": 8081, "containerPort": 81, "protocol": "udp", "hostIP": "10.1.1.1"},
                ]
            },
        },
        "ptp": {"ipMasq": True, "mtu": 1400, "dns": {"nameservers": ["10.0.0.1"]}, "ipam": ipam},
        "sbr": {**chained, "table": 77},
        "static": {
            "ipam": {
                "type": "static",
                "addresses": [{"address": "10.94.0.5/24", "gateway": "10.94.0.1"}],
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.94.0.1"}],
                "dns": {"nameservers": ["10.0.0.1"], "domain": "d"},
            },
            "args": {"cni": {"ips": ["10.94.0.7/24"]}},
            "runtimeConfig": {"ips": ["10.94.0.6/24"]},
        },
        "tuning": {
            **chained,
            "dataDir": "/var/lib/tuned",
            "sysctl": {"net.ipv4.conf.all.log_martians": "1", "net/ipv4/conf/IFNAME/arp_filter": "1"},
            "mac": "c2:11:22:33:44:58",
            "mtu": 1380,
            "promisc": True,
            "allmulti": True,
            "txQLen": 500,
            "args": {"cni": {"mtu": 1390}},
            "runtimeConfig": {"mac": "c2:11:22:33:44:59"},
        },
    }
    common = {"cni.dev/valid-attachments": [{"containerID": "c7", "ifname": "eth0"}], "capabilities": {"mac": True}}
    missing = sorted(set(registry.NAMES) - set(kinds))
    assert not missing, f"give {missing} configurations that can be spoilt"
    return {name: {"name": "net", "type": name, **kinds[name], **common} for name in registry.NAMES}
