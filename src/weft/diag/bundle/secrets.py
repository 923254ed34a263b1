"""Takes secrets out of text and JSON that leave a node. Pure.

What bears a secret's name loses its value, whatever program it belongs to; so do credentials in URLs, tokens and keys
of a known form. A name too many costs a word of a report, a name too few a password: so it is generous.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

GONE: Final = "REDACTED"
_COMMANDS: Final = frozenset({"PreStartupCommand", "PostStartupCommand", "SubnetAddCommand", "SubnetRemoveCommand"})

# Of lists and plugins: the specification's, and those of the plugins that weft has or stands beside.
_CNI_KEYS: Final = frozenset(
    """
    cniVersion cniVersions name type plugins disableCheck disableGC loadOnlyInlinedPlugins ipam dns args cni
    labels capabilities runtimeConfig prevResult delegate portMappings bandwidth ips mac ipRanges aliases
    portMapping nameservers domain search options resolvConf dataDir ranges subnet rangeStart rangeEnd gateway
    routes dst gw mtu advmss priority table scope addresses address bridge isGateway isDefaultGateway
    forceAddress ipMasq ipMasqBackend hairpinMode promiscMode vlan preserveDefaultVlan vlanTrunk id minID maxID
    enabledad macspoofchk disableContainerInterface portIsolation master mode linkInContainer subnetFile snat
    backend markMasqBit externalSetMarkChain conditionsV4 conditionsV6 masqAll ingressRate ingressBurst
    egressRate egressBurst unshapedSubnets shapedSubnets sysctl allmulti promisc txQLen iptablesAdminChainName
    firewalldZone ingressPolicy hostPort containerPort protocol hostIP
    """.split()  # noqa: SIM905 - easier to read
)
_CNI_TABLES: Final = frozenset({"sysctl", "capabilities"})  # of names that are anybody's, without secrets

_NAMES: Final = (
    r"passw(?:or)?d|passphrase|psk|pre[ _-]?shared[ _-]?key|private[ _-]?key|secret|token|credential|api[ _-]?key"
    r"|access[ _-]?key|key[ _-]?data|fastopen_key|authorization|etcd[ _-]?key|\b(?:auth|pass|pwd)\b"
)
_NO_PATH: Final = r"(?![\w.-]{0,60}(?:file|path|dir)\b)"  # `--etcd-password-file FILE` says where, not what
_NAME: Final = re.compile(rf"(?:{_NAMES}){_NO_PATH}", re.IGNORECASE)
_VALUE: Final = (
    r"""(?:\\?"(?:[^"\\\n]|\\[^\n])*(?:"|$)|'[^'\n]*(?:'|$)|(?:Bearer|Basic)\s+[^\s"',;]+|[^\s"',;&}\])]+)"""
)
_WORD: Final = r"""(?:"[^"\n]*(?:"|$)|'[^'\n]*(?:'|$)|[^\s"']\S*)"""
# Repetitions before a name are bounded: a line may be a megabyte of base64.
_FORMS: Final = (
    # A private key in PEM, to its end or that of the text.
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        GONE,
    ),
    # The rest of one whose begin is cut off.
    (re.compile(r"\A[\w+/=\s]+-----END [A-Z ]{0,40}PRIVATE KEY-----"), GONE),
    # A JSON Web Token (RFC 7519): Kubernetes' tokens are such.
    (re.compile(r"(?<![\w-])eyJ[\w-]{4,}\.[\w-]+\.[\w-]*"), GONE),
    (re.compile(r"\b(Bearer|Basic)\s+[\w+/=.~-]{6,}", re.IGNORECASE), rf"\1 {GONE}"),
    # The user's part of a URL (RFC 3986 §3.2.1), up to the last `@` before the path.
    (re.compile(r"""\b([A-Za-z][\w+.-]{0,20}://)[^/\s"'<>]*@"""), rf"\1{GONE}@"),
    # NAME: several words, to the end of the line, as YAML has them.
    (
        re.compile(
            rf"""^([ \t]*(?:- )?[\w.-]{{0,60}}(?:{_NAMES}){_NO_PATH}[\w.-]{{0,60}}:[ \t]+)[^\s"'{{\[|>&][^\n]*""",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{GONE}",
    ),
    # NAME=VALUE, NAME: VALUE, "NAME": "VALUE".
    (
        re.compile(
            rf"""((?:{_NAMES}){_NO_PATH}[\w.-]{{0,60}}\\?["']?\s*[:=]\s*){_VALUE}""",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{GONE}",
    ),
    # --NAME VALUE.
    (
        re.compile(
            rf"((?<![\w-])--?[\w-]{{0,60}}(?:{_NAMES}){_NO_PATH}[\w-]{{0,60}}[ \t]+)(?!-){_WORD}",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{GONE}",
    ),
)


def text_without(text: str) -> str:
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return text


def data_without(data: Any) -> Any:
    """Replace what stands at a secret's name whole, and secrets in each other text.

    A number is replaced by one, so that what reads the JSON finds what it expects.
    """
    if isinstance(data, dict):
        return {name: _value_without(name, inner) for name, inner in data.items()}
    if isinstance(data, list):
        return [data_without(inner) for inner in data]
    return text_without(data) if isinstance(data, str) else data


def _value_without(name: str, value: Any) -> Any:
    if name in _COMMANDS:
        return _program(value)
    return _hidden(value) if _NAME.search(name) else data_without(value)


def _program(command: Any) -> Any:
    """A user's command without its arguments, which may hold credentials under any name."""
    words = command.split() if isinstance(command, str) else command
    if not isinstance(words, list) or not words:
        return command
    shown = [data_without(words[0]), *(GONE for _ in words[1:])]
    return " ".join(map(str, shown)) if isinstance(command, str) else shown


def _hidden(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return type(value)(0) if isinstance(value, int | float) else GONE


def list_without(text: str) -> str:
    """A network's list for CNI: weft's own keys with their values, those of other programs without.

    Nobody can guess what they call a password: `pw`, `jwt`, `community`, `kubeconfig_data`.
    """
    try:
        return json.dumps(_known(json.loads(text)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return f"{len(text)} characters that are not JSON\n"


def _known(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _value_known(name, inner) for name, inner in data.items()}
    if isinstance(data, list):
        return [_known(inner) for inner in data]
    return text_without(data) if isinstance(data, str) else data


def _value_known(name: str, value: Any) -> Any:
    if name in _CNI_TABLES:
        return data_without(value)
    return _known(value) if name in _CNI_KEYS and not _NAME.search(name) else _there(value)


def _there(value: Any) -> Any:
    if isinstance(value, dict):
        return _known(value)
    return [_there(inner) for inner in value] if isinstance(value, list) else _hidden(value)


def words_without(words: Iterable[str]) -> str:
    """A command line for people: a secret flag's value may be a word of its own, with spaces in it."""
    shown, secret = list[str](), False
    for word in words:
        name, has_value, _ = word.partition("=")
        is_flag = name.startswith("-") and _NAME.search(name) is not None
        shown.append(GONE if secret else f"{name}={GONE}" if is_flag and has_value else text_without(word))
        secret = is_flag and not has_value
    return " ".join(shown)
