"""firewall's configuration (cni.md §6.3), checked so that every name in it can stand in a rule."""

import re
from typing import Final

from weft.model.value import Value
from weft.wire import confkey
from weft.wire.cni import failure
from weft.wire.cnijson import JsonError, Object

IPTABLES: Final = "iptables"
NFTABLES: Final = "nftables"
FIREWALLD: Final = "firewalld"

OPEN: Final = "open"
SAME_BRIDGE: Final = "same-bridge"
ISOLATED: Final = "isolated"

_BACKENDS: Final = ("", IPTABLES, NFTABLES, FIREWALLD)
# The rule program's own name for it, which users write as well.
_SPELLINGS: Final = {"nft": NFTABLES}
_POLICIES: Final = (OPEN, SAME_BRIDGE, ISOLATED)
_ZONE: Final = "trusted"
_ADMIN_CHAIN: Final = "CNI-ADMIN"
_LONGEST_CHAIN: Final = 28

_BACKEND: Final = confkey.text(
    "backend",
    "`iptables`, `nftables` (or `nft`) or `firewalld`.",
    meaning="`firewalld` if it runs, else `iptables`, else `nftables`",
)
_FIREWALLD_ZONE: Final = confkey.text("firewalldZone", "firewalld's zone for the addresses.", default=_ZONE)
_CHAIN: Final = confkey.text(
    "iptablesAdminChainName",
    "An administrator's chain that comes before what the plugin accepts. With `nftables` it is always `admin`.",
    default=_ADMIN_CHAIN,
)
_POLICY: Final = confkey.text(
    "ingressPolicy",
    "Who may reach pods of the bridge: `open`, everybody; `same-bridge`, not pods of other bridges with a policy; "
    "`isolated`, not each other either, where bridged packets are filtered.",
    default=OPEN,
)
KEYS: Final = (_BACKEND, _FIREWALLD_ZONE, _CHAIN, _POLICY)

# What neither a rule program nor its text input takes for anything but a name; "+" would be a wildcard.
_WORD: Final = re.compile(r"[A-Za-z0-9_.:@/][A-Za-z0-9_.:@/-]*")


class FirewallConf(Value):
    """What firewall is asked. `backend` is empty for whichever is there."""

    backend: str = ""
    zone: str = _ZONE
    admin_chain: str = _ADMIN_CHAIN
    policy: str = OPEN


def parse(config: Object) -> FirewallConf:
    """Read a request. Raises `CniError`."""
    conf = parse_for_delete(config)
    if conf.backend not in _BACKENDS:
        raise failure(f'unknown backend: "{conf.backend}"', f"there are {', '.join(_BACKENDS[1:])}")
    if conf.policy not in _POLICIES:
        raise failure(f'unknown ingress policy: "{conf.policy}"')
    if len(conf.admin_chain) > _LONGEST_CHAIN or not is_word(conf.admin_chain):
        why = f"at most {_LONGEST_CHAIN} letters, digits and _ . : @ / -"
        raise failure(f'invalid iptablesAdminChainName: "{conf.admin_chain}"', why)
    return conf


def parse_for_delete(config: Object) -> FirewallConf:
    """Read a request for DEL, which must work whatever the values are. Raises `CniError`."""
    try:
        backend = _BACKEND(config)
        return FirewallConf(
            backend=_SPELLINGS.get(backend, backend),
            zone=_FIREWALLD_ZONE(config),
            admin_chain=_CHAIN(config),
            policy=_POLICY(config),
        )
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error


def is_word(name: str) -> bool:
    """Tell whether a name can stand in a rule as it is."""
    return _WORD.fullmatch(name) is not None
