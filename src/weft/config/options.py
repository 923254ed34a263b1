"""What the daemon was told by flags and variables (flannel.md §1.2), parsed once, as one value.

No defaults live here: the table in `weft.config.flagtable` has them. Nothing here reads argv or the environment.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from weft.config.kubernetes import Surroundings
from weft.config.re2 import Pattern
from weft.model.net import Ip
from weft.model.secret import Secret
from weft.model.value import Value

LogFormat = Literal["text", "json"]


class Options(Value):
    """Every flag of the daemon, by its name with `_` for `-`. An empty text means "not given".

    `subnet_lease_renew_margin` is in minutes, `iptables_resync` in seconds; `healthz_port` 0 means no server.
    `etcd_endpoints` are URLs with a scheme. `warnings` are for the log: what was accepted but should change.
    `public_where` says for people where each public address was given: by its flag, or by an operator in the store.
    `surroundings` are read with `kube_subnet_mgr` only; `wireguard_key_file` is WIREGUARD_KEY_FILE.
    With `help` or `version` set, nothing else was looked at and all other fields hold their defaults.
    """

    help: bool
    version: bool
    etcd_endpoints: tuple[str, ...]
    etcd_prefix: str
    etcd_keyfile: str
    etcd_certfile: str
    etcd_cafile: str
    etcd_username: str
    etcd_password: Secret | None
    etcd_password_file: str
    iface: tuple[str, ...]
    iface_regex: tuple[Pattern, ...]
    iface_can_reach: Ip | None
    subnet_file: str
    public_ip: IPv4Address | None
    public_ipv6: IPv6Address | None
    subnet_lease_renew_margin: int
    ip_masq: bool
    ip_masq_fully_random_disable: bool
    kube_subnet_mgr: bool
    kube_api_url: str
    kube_annotation_prefix: str
    kubeconfig_file: str
    net_config_path: str
    set_node_network_unavailable: bool
    healthz_ip: Ip
    healthz_port: int
    pod_metrics: bool
    iptables_resync: int
    iptables_forward_rules: bool
    ip_blackhole_route: bool
    v: int
    log_format: LogFormat
    vmodule: str
    log_backtrace_at: str
    state_dir: str
    cni_socket: str
    public_where: tuple[str, str] = ("--public-ip", "--public-ipv6")
    surroundings: Surroundings = Surroundings()
    wireguard_key_file: str = ""
    warnings: tuple[str, ...] = ()
