"""All flags of the daemon, as a table: name, kind, default, help. Parsing, help text and docs are made from it.

Names, defaults and meanings of the first part are flanneld's (flannel.md §1.2); the second part is our own.
"""

from typing import Final, Literal

from weft.model.value import Value

Kind = Literal["bool", "int", "text", "list"]


class Flag(Value):
    """One flag. `default` is written as a user would write it; `value` names the value in the help text.

    Whole numbers lie between `low` and `high`, both inclusive; Go's `int` has 64 bits.
    `origin` says whose meaning the flag has. `later` names the part that a value other than the default needs
    and that this build does not have; such a value ends the start. `secret` values are never shown.
    """

    name: str
    kind: Kind
    default: str = ""
    value: str = ""
    help: str
    group: str
    origin: Literal["flannel", "weft"] = "flannel"
    later: str = ""
    secret: bool = False
    low: int = -(2**63)
    high: int = 2**63 - 1

    @property
    def field(self) -> str:
        """The name of the field of `Options`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable that stands for the flag (flannel.md §1.3)."""
        return "FLANNELD_" + self.field.upper()


_STORE = "Store"
_UPLINK = "Uplink: the interface that carries traffic between nodes"
_NODE = "Node"
_RULES = "Rules and routes"
_HEALTH = "Health and logs"
_KUBERNETES = "Kubernetes"

FLAGS: Final[tuple[Flag, ...]] = (
    Flag(
        name="etcd-endpoints",
        kind="text",
        default="http://127.0.0.1:4001,http://127.0.0.1:2379",
        value="URL,URL",
        help="etcd client URLs, separated by commas",
        group=_STORE,
    ),
    Flag(
        name="etcd-prefix",
        kind="text",
        default="/coreos.com/network",
        value="KEY",
        help="root of all keys in etcd",
        group=_STORE,
    ),
    Flag(name="etcd-cafile", kind="text", value="FILE", help="CA bundle that verifies the server (PEM)", group=_STORE),
    Flag(name="etcd-certfile", kind="text", value="FILE", help="client certificate (PEM)", group=_STORE),
    Flag(name="etcd-keyfile", kind="text", value="FILE", help="private key of the certificate (PEM)", group=_STORE),
    Flag(name="etcd-username", kind="text", value="NAME", help="etcd user", group=_STORE),
    Flag(
        name="etcd-password",
        kind="text",
        value="TEXT",
        help="etcd password; every user of this machine can read it in the process list: use --etcd-password-file",
        group=_STORE,
        secret=True,
    ),
    Flag(
        name="etcd-password-file",
        kind="text",
        value="FILE",
        help="file that holds the etcd password (one line)",
        group=_STORE,
        origin="weft",
    ),
    Flag(
        name="subnet-lease-renew-margin",
        kind="int",
        default="60",
        value="MINUTES",
        help="how long before its end the lease is renewed (1 to 1439)",
        group=_STORE,
        low=1,
        high=1439,
    ),
    Flag(
        name="iface",
        kind="list",
        value="NAME|IP",
        help="interface name, or an address of it; repeatable, tried in order",
        group=_UPLINK,
    ),
    Flag(
        name="iface-regex",
        kind="list",
        value="RE2",
        help="pattern for addresses, then names; repeatable, tried after every --iface",
        group=_UPLINK,
    ),
    Flag(
        name="iface-can-reach",
        kind="text",
        value="IP",
        help="take the interface through which the kernel reaches this address",
        group=_UPLINK,
    ),
    Flag(
        name="public-ip",
        kind="text",
        value="IPv4",
        help="address at which other nodes reach this one; without an --iface flag, also names the interface",
        group=_UPLINK,
    ),
    Flag(name="public-ipv6", kind="text", value="IPv6", help="the same for IPv6", group=_UPLINK),
    Flag(
        name="subnet-file",
        kind="text",
        default="/run/flannel/subnet.env",
        value="FILE",
        help="where the node's subnet is written for the CNI plugin; read at start",
        group=_NODE,
    ),
    Flag(
        name="state-dir",
        kind="text",
        default="/var/lib/weft",
        value="DIR",
        help="what outlives a restart: MAC addresses, own lease, last view of the cluster",
        group=_NODE,
        origin="weft",
    ),
    Flag(
        name="cni-socket",
        kind="text",
        default="/run/weft/cni.sock",
        value="PATH",
        help="socket that the CNI plugins call",
        group=_NODE,
        origin="weft",
    ),
    Flag(name="ip-masq", kind="bool", default="false", help="masquerade what leaves the pod network", group=_RULES),
    Flag(
        name="ip-masq-fully-random-disable",
        kind="bool",
        default="false",
        help="never choose source ports fully at random",
        group=_RULES,
    ),
    Flag(
        name="iptables-resync",
        kind="int",
        default="5",
        value="SECONDS",
        help="how often rules (and the blackhole route) are checked, at least; 1 or more",
        group=_RULES,
        low=1,
        high=2**31 - 1,
    ),
    Flag(
        name="iptables-forward-rules",
        kind="bool",
        default="true",
        help="accept forwarded traffic of the pod network",
        group=_RULES,
    ),
    Flag(
        name="ip-blackhole-route",
        kind="bool",
        default="false",
        help="keep a blackhole route for this node's subnet, for set-ups without a bridge",
        group=_RULES,
    ),
    Flag(
        name="healthz-ip",
        kind="text",
        default="0.0.0.0",  # noqa: S104 flanneld's default; the server is off until a port is given
        value="IP",
        help="address of the health server",
        group=_HEALTH,
    ),
    Flag(
        name="healthz-port",
        kind="int",
        default="0",
        value="PORT",
        help="port of the health server (/healthz, /livez, /readyz, /metrics); 0: none",
        group=_HEALTH,
        high=65535,
        low=0,
    ),
    Flag(
        name="pod-metrics",
        kind="bool",
        default="false",
        help="have /metrics name pods and count their traffic; all clients of the port can read that",
        group=_HEALTH,
        origin="weft",
    ),
    Flag(
        name="v", kind="int", default="0", value="LEVEL", help="log verbosity; 0: what an operator needs", group=_HEALTH
    ),
    Flag(
        name="log-format",
        kind="text",
        default="text",
        value="text|json",
        help="form of the log: lines of text, or of JSON; systemd's journal gets priorities with both",
        group=_HEALTH,
        origin="weft",
    ),
    Flag(
        name="vmodule",
        kind="text",
        value="PATTERN=N",
        help="log level per file",
        group=_HEALTH,
        later="log levels per file (use -v)",
    ),
    Flag(
        name="log_backtrace_at",
        kind="text",
        value="FILE:N",
        help="stack trace at a log line",
        group=_HEALTH,
        later="stack traces at log lines (use -v)",
    ),
    Flag(name="version", kind="bool", default="false", help="print the version and exit", group=_HEALTH),
    Flag(
        name="kube-subnet-mgr",
        kind="bool",
        default="false",
        help="keep leases in the Kubernetes API instead of etcd",
        group=_KUBERNETES,
    ),
    Flag(
        name="kube-api-url",
        kind="text",
        value="URL",
        help="API server; not needed in a pod",
        group=_KUBERNETES,
    ),
    Flag(
        name="kubeconfig-file",
        kind="text",
        value="FILE",
        help="kubeconfig; not needed in a pod",
        group=_KUBERNETES,
    ),
    Flag(
        name="kube-annotation-prefix",
        kind="text",
        default="flannel.alpha.coreos.com",
        value="PREFIX",
        help="prefix of the node annotations",
        group=_KUBERNETES,
    ),
    Flag(
        name="net-config-path",
        kind="text",
        default="/etc/kube-flannel/net-conf.json",
        value="FILE",
        help="network configuration; with etcd it is the key PREFIX/config",
        group=_KUBERNETES,
    ),
    Flag(
        name="set-node-network-unavailable",
        kind="bool",
        default="true",
        help="clear the node's NetworkUnavailable condition",
        group=_KUBERNETES,
    ),
)

BY_NAME: Final = {flag.name: flag for flag in FLAGS}
