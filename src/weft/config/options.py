"""Declares each flag of the daemon, and holds what they were given as (flannel.md §1.2), as one value.

Names, defaults and meanings are flanneld's, but for those whose `origin` is weft. Parsing, help text and docs are made
from the annotations of `Options`. Nothing here reads argv or the environment.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Final, Literal

from weft.config import flagvalues
from weft.config.flag import Flag
from weft.config.flagvalues import MESH_PORT, PeerAddress
from weft.config.kubernetes import Surroundings, annotation_prefix
from weft.config.re2 import Pattern
from weft.model.net import Ip
from weft.model.value import Secret, Value

LogFormat = Literal["text", "json"]
PolicyMode = Literal["off", "audit", "enforce"]

_STORE: Final = "Store"
_UPLINK: Final = "Uplink: the interface that carries traffic between nodes"
_NODE: Final = "Node"
_RULES: Final = "Rules and routes"
_POLICIES: Final = "Policies of pods"
_HEALTH: Final = "Health and logs"
_KUBERNETES: Final = "Kubernetes"
_MESH: Final = "Mesh: leases without a store, which the nodes keep among themselves"


class Options(Value):
    """Every flag of the daemon, in the order of the help text. An empty text means "not given".

    `subnet_lease_renew_margin` is in minutes, `iptables_resync` in seconds; `healthz_port` 0 means no server.
    `etcd_endpoints` are URLs with a scheme. `warnings` are for the log: what was accepted but should change.
    `public_where` says for people where each public address was given: by its flag, or by an operator in the store.
    `surroundings` are read with `kube_subnet_mgr` only; `wireguard_key_file` is WIREGUARD_KEY_FILE; `mesh_config` is
    `net_config_path` if that is given with `mesh`.
    With `help` or `version` set, nothing else was looked at and all other fields hold their defaults.
    """

    help: bool
    etcd_endpoints: Annotated[
        tuple[str, ...],
        Flag(
            _STORE,
            "etcd client URLs, separated by commas",
            "URL,URL",
            "http://127.0.0.1:4001,http://127.0.0.1:2379",
            read=flagvalues.endpoints,
        ),
    ]
    etcd_prefix: Annotated[str, Flag(_STORE, "root of all keys in etcd", "KEY", "/coreos.com/network")]
    etcd_cafile: Annotated[str, Flag(_STORE, "CA bundle that verifies the server (PEM)", "FILE")]
    etcd_certfile: Annotated[str, Flag(_STORE, "client certificate (PEM)", "FILE")]
    etcd_keyfile: Annotated[str, Flag(_STORE, "private key of the certificate (PEM)", "FILE")]
    etcd_username: Annotated[str, Flag(_STORE, "etcd user", "NAME")]
    etcd_password: Annotated[
        Secret | None,
        Flag(
            _STORE,
            "etcd password; every user of this machine can read it in the process list: use --etcd-password-file",
            "TEXT",
            read=flagvalues.secret,
            secret=True,
        ),
    ]
    etcd_password_file: Annotated[
        str, Flag(_STORE, "file that holds the etcd password (one line)", "FILE", origin="weft")
    ]
    subnet_lease_renew_margin: Annotated[
        int, Flag(_STORE, "how long before its end the lease is renewed (1 to 1439)", "MINUTES", "60", low=1, high=1439)
    ]
    mesh: Annotated[
        bool,
        Flag(_MESH, "keep leases among the nodes themselves, without etcd or Kubernetes", origin="weft"),
    ]
    peer: Annotated[
        tuple[PeerAddress, ...],
        Flag(
            _MESH,
            f"a node of the mesh to begin with, by name or address; repeatable; its port is {MESH_PORT} unless given",
            "HOST[:PORT]",
            repeats=True,
            read=flagvalues.peer_address,
            origin="weft",
        ),
    ]
    password_file: Annotated[
        str,
        Flag(
            _MESH,
            "file that holds the mesh's password (12 characters or more); a second line may hold the one before, "
            "which is still accepted",
            "FILE",
            origin="weft",
        ),
    ]
    mesh_create: Annotated[
        bool,
        Flag(
            _MESH,
            "create the mesh's ring once every --peer has said that it knows none, or at once without --peer; "
            "give each node this flag and the same list of peers",
            origin="weft",
        ),
    ]
    mesh_relay: Annotated[
        bool,
        Flag(
            _MESH,
            "relay packets between nodes that do not reach each other; with =false, other nodes have to",
            default="true",
            origin="weft",
        ),
    ]
    iface: Annotated[
        tuple[str, ...],
        Flag(_UPLINK, "interface name, or an address of it; repeatable, tried in order", "NAME|IP", repeats=True),
    ]
    iface_regex: Annotated[
        tuple[Pattern, ...],
        Flag(
            _UPLINK,
            "pattern for addresses, then names; repeatable, tried after every --iface",
            "RE2",
            repeats=True,
            read=flagvalues.pattern,
        ),
    ]
    iface_can_reach: Annotated[
        Ip | None,
        Flag(
            _UPLINK,
            "take the interface through which the kernel reaches this address",
            "IP",
            read=flagvalues.optional_ip,
        ),
    ]
    public_ip: Annotated[
        IPv4Address | None,
        Flag(
            _UPLINK,
            "address at which other nodes reach this one; without an --iface flag, also names the interface",
            "IPv4",
            read=flagvalues.public_ip(IPv4Address),
        ),
    ]
    public_ipv6: Annotated[
        IPv6Address | None, Flag(_UPLINK, "the same for IPv6", "IPv6", read=flagvalues.public_ip(IPv6Address))
    ]
    subnet_file: Annotated[
        str,
        Flag(
            _NODE,
            "where the node's subnet is written for the CNI plugin; read at start",
            "FILE",
            "/run/flannel/subnet.env",
            read=flagvalues.path,
        ),
    ]
    state_dir: Annotated[
        str,
        Flag(
            _NODE,
            "what outlives a restart: MAC addresses, own lease, last view of the cluster",
            "DIR",
            "/var/lib/weft",
            read=flagvalues.path,
            origin="weft",
        ),
    ]
    cni_socket: Annotated[
        str,
        Flag(
            _NODE,
            "socket that the CNI plugins call",
            "PATH",
            "/run/weft/cni.sock",
            read=flagvalues.socket_path,
            origin="weft",
        ),
    ]
    ip_masq: Annotated[bool, Flag(_RULES, "masquerade what leaves the pod network")]
    ip_masq_fully_random_disable: Annotated[bool, Flag(_RULES, "never choose source ports fully at random")]
    iptables_resync: Annotated[
        int,
        Flag(
            _RULES,
            "how often rules (and the blackhole route) are checked, at least; 1 or more",
            "SECONDS",
            "5",
            low=1,
            high=2**31 - 1,
        ),
    ]
    iptables_forward_rules: Annotated[bool, Flag(_RULES, "accept forwarded traffic of the pod network", default="true")]
    ip_blackhole_route: Annotated[
        bool, Flag(_RULES, "keep a blackhole route for this node's subnet, for set-ups without a bridge")
    ]
    network_policy: Annotated[
        PolicyMode,
        Flag(
            _POLICIES,
            "what becomes of packets that NetworkPolicies forbid: enforce drops them, audit counts them",
            "off|audit|enforce",
            "off",
            read=flagvalues.one_of(PolicyMode),
            origin="weft",
        ),
    ]
    network_policy_files: Annotated[
        str,
        Flag(
            _POLICIES,
            "file or directory with NetworkPolicies, and the Pods and Namespaces that they mean (YAML or JSON); read "
            "again when it changes",
            "PATH",
            origin="weft",
        ),
    ]
    healthz_ip: Annotated[Ip, Flag(_HEALTH, "address of the health server", "IP", "0.0.0.0", read=flagvalues.ip)]  # noqa: S104 - flanneld's
    healthz_port: Annotated[
        int,
        Flag(
            _HEALTH,
            "port of the health server (/healthz, /livez, /readyz, /metrics); 0: none",
            "PORT",
            "0",
            low=0,
            high=65535,
        ),
    ]
    pod_metrics: Annotated[
        bool,
        Flag(
            _HEALTH,
            "have /metrics name pods and count their traffic; all clients of the port can read that",
            origin="weft",
        ),
    ]
    v: Annotated[int, Flag(_HEALTH, "log verbosity; 0: what an operator needs", "LEVEL", "0")]
    log_format: Annotated[
        LogFormat,
        Flag(
            _HEALTH,
            "form of the log: lines of text, or of JSON; systemd's journal gets priorities with both",
            "text|json",
            "text",
            read=flagvalues.one_of(LogFormat),
            origin="weft",
        ),
    ]
    vmodule: Annotated[str, Flag(_HEALTH, "log level per file", "PATTERN=N", later="log levels per file (use -v)")]
    log_backtrace_at: Annotated[
        str,
        Flag(
            _HEALTH,
            "stack trace at a log line",
            "FILE:N",
            later="stack traces at log lines (use -v)",
            name="log_backtrace_at",
        ),
    ]
    version: Annotated[bool, Flag(_HEALTH, "print the version and exit")]
    kube_subnet_mgr: Annotated[bool, Flag(_KUBERNETES, "keep leases in the Kubernetes API instead of etcd")]
    kube_api_url: Annotated[str, Flag(_KUBERNETES, "API server; not needed in a pod", "URL")]
    kubeconfig_file: Annotated[str, Flag(_KUBERNETES, "kubeconfig; not needed in a pod", "FILE")]
    kube_annotation_prefix: Annotated[
        str,
        Flag(
            _KUBERNETES, "prefix of the node annotations", "PREFIX", "flannel.alpha.coreos.com", read=annotation_prefix
        ),
    ]
    net_config_path: Annotated[
        str,
        Flag(
            _KUBERNETES,
            "network configuration, also of a mesh that is created; with etcd, the key PREFIX/config holds it instead",
            "FILE",
            "/etc/kube-flannel/net-conf.json",
        ),
    ]
    set_node_network_unavailable: Annotated[
        bool, Flag(_KUBERNETES, "clear the node's NetworkUnavailable condition", default="true")
    ]
    public_where: tuple[str, str] = ("--public-ip", "--public-ipv6")
    surroundings: Surroundings = Surroundings()
    wireguard_key_file: str = ""
    mesh_config: str = ""
    warnings: tuple[str, ...] = ()


# Not by typing.get_type_hints, which takes as long as all else here.
FLAGS: Final = tuple(
    kind.__metadata__[0].of_field(field, kind.__origin__)
    for field, kind in Options.__annotations__.items()
    if hasattr(kind, "__metadata__")
)
BY_NAME: Final = {flag.name: flag for flag in FLAGS}
