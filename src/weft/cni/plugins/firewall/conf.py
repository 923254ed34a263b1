"""firewall's configuration (cni.md §6.3), checked so that every name in it can stand in a rule."""

import re
from typing import Annotated, Final, TypeVar

from weft.model.keyed import Key
from weft.model.value import Value, replace
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode_or_fail

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
_LONGEST_CHAIN: Final = 28

# What neither a rule program nor its text input takes for anything but a name; "+" would be a wildcard.
_WORD: Final = re.compile(r"[A-Za-z0-9_.:@/][A-Za-z0-9_.:@/-]*")


class DeleteConf(Value):
    backend: Annotated[
        str,
        Key(
            "backend",
            "`iptables`, `nftables` (or `nft`) or `firewalld`.",
            default="`firewalld` if it runs, else `iptables`, else `nftables`",
        ),
    ] = ""
    zone: Annotated[str, Key("firewalldZone", "firewalld's zone for the addresses.")] = "trusted"


K = TypeVar("K", bound=DeleteConf)


class FirewallConf(DeleteConf):
    admin_chain: Annotated[
        str,
        Key(
            "iptablesAdminChainName",
            "An administrator's chain that comes before what the plugin accepts. With `nftables` it is always `admin`.",
        ),
    ] = "CNI-ADMIN"
    policy: Annotated[
        str,
        Key(
            "ingressPolicy",
            "Who may reach pods of the bridge: `open`, everybody; `same-bridge`, not pods of other bridges with a "
            "policy; `isolated`, not each other either, where bridged packets are filtered.",
        ),
    ] = OPEN


def parse(config: Object) -> FirewallConf:
    conf = _read(FirewallConf, config)
    if conf.backend not in _BACKENDS:
        raise failure(f'unknown backend: "{conf.backend}"', f"there are {', '.join(_BACKENDS[1:])}")
    if conf.policy not in _POLICIES:
        raise failure(f'unknown ingress policy: "{conf.policy}"')
    if len(conf.admin_chain) > _LONGEST_CHAIN or not is_word(conf.admin_chain):
        why = f"at most {_LONGEST_CHAIN} letters, digits and _ . : @ / -"
        raise failure(f'invalid iptablesAdminChainName: "{conf.admin_chain}"', why)
    return conf


def parse_for_delete(config: Object) -> DeleteConf:
    return _read(DeleteConf, config)


def _read(kind: type[K], config: Object) -> K:
    conf = decode_or_fail(kind, config, failed="failed to load netconf")
    return replace(conf, backend=_SPELLINGS.get(conf.backend, conf.backend))


def is_word(name: str) -> bool:
    return _WORD.fullmatch(name) is not None
