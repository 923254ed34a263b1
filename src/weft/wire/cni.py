"""The CNI protocol: errors, versions, names, and the environment of a call (cni.md §1)."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from weft.model.value import Value
from weft.wire import cnijson
from weft.wire.cnijson import JsonError, Object

VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
NEWEST: Final = VERSIONS[-1]

# Error codes (cni.md §1.8).
INCOMPATIBLE_VERSION: Final = 1
UNKNOWN_CONTAINER: Final = 3
BAD_ENVIRONMENT: Final = 4
IO_FAILURE: Final = 5
UNDECODABLE: Final = 6
BAD_CONFIG: Final = 7
BAD_NETNS: Final = 8
TRY_AGAIN: Final = 11
UNAVAILABLE: Final = 50
UNAVAILABLE_AND_LIMITED: Final = 51
INTERNAL: Final = 999

_MAX_IFNAME = 15
# The longest name of a file is 255 bytes; a further attachment's is `ID.HASH` (`cni/plugins/flannel/state.py`).
_MAX_CONTAINER_ID: Final = 255 - len(".") - 16
_plain: Final = json.JSONEncoder(ensure_ascii=False).encode
_quoted: Final = json.encoder.encode_basestring  # what `_plain` finds for text in the end, in C
_VERSION_PARTS = 3
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")


class CniError(Exception):
    """An error for the runtime. `code` 999 is any failure without a code of its own."""

    def __init__(self, code: int, msg: str, details: str = "") -> None:
        super().__init__(msg)
        self.code = code
        self.msg = msg
        self.details = details

    def __str__(self) -> str:
        return f"{self.msg}; {self.details}" if self.details else self.msg

    def within(self, prefix: str) -> "CniError":
        """Put words before the message, unless the error has a code of its own (cni.md §1.3)."""
        if self.code != INTERNAL:
            return self
        error = type(self).__new__(type(self))  # whatever a subclass is made of
        error.__dict__.update(self.__dict__)
        CniError.__init__(error, self.code, f"{prefix}{self.msg}", self.details)
        return error

    def render(self) -> bytes:
        """The error object (cni.md §1.8)."""
        error: dict[str, object] = {"code": self.code, "msg": self.msg}
        if self.details:
            error["details"] = self.details
        return encode(error)


class Ran(Value):
    """How a plugin ended. `ending` says so in words where the exit status does not (a signal)."""

    exit: int
    stdout: bytes = b""
    stderr: bytes = b""
    ending: str = ""


def failure(msg: str, details: str = "") -> CniError:
    """A plugin's own failure, code 999."""
    return CniError(INTERNAL, msg, details)


def encode(value: object) -> bytes:
    """JSON as plugins print it: indented by four, no newline at the end.

    A lone surrogate of a hostile input is replaced, because an answer must be readable.
    """
    return _indented(value, "\n").encode("utf-8", "replace")


def _indented(value: object, newline: str) -> str:
    """As `json.dumps(value, indent=4, ensure_ascii=False)`, which is not in C and takes three times as long."""
    if isinstance(value, str):
        return _quoted(value)
    inner = f"{newline}    "
    if value and isinstance(value, dict):
        members = [f"{_quoted(key)}: {_indented(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(members)}{newline}}}"
    if value and isinstance(value, list):
        return f"[{inner}{f',{inner}'.join([_indented(item, inner) for item in value])}{newline}]"
    return _plain(value)


def parse_version(text: str) -> tuple[int, int, int]:
    """Up to three decimal parts; missing ones are 0, and an empty text is 0.1.0. Raises `ValueError`."""
    parts = (text or VERSIONS[0]).split(".")
    if len(parts) > _VERSION_PARTS or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"invalid version {text!r}")
    major, minor, micro = (*(int(part) for part in parts), 0, 0)[:3]
    return major, minor, micro


def at_least(version: str, other: str) -> bool:
    return parse_version(version) >= parse_version(other)


def versions_from(first: str) -> tuple[str, ...]:
    return tuple(version for version in VERSIONS if at_least(version, first))


def reconcile(config_version: str, supported: Collection[str]) -> None:
    """Refuse a version that the plugin does not support exactly (cni.md §1.6)."""
    if config_version not in supported:
        listed = " ".join(f'"{version}"' for version in supported)
        raise CniError(
            INCOMPATIBLE_VERSION,
            "incompatible CNI versions",
            f'config is "{config_version}", plugin supports [{listed}]',
        )


def render_versions(supported: Iterable[str]) -> bytes:
    """The answer to VERSION: the newest version we know, whatever the request says (cni.md §1.7)."""
    answer = {"cniVersion": NEWEST, "supportedVersions": list(supported)}
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"


def check_container_id(container_id: str) -> None:
    """Raises `CniError` (cni.md §1.5)."""
    if not _NAME.fullmatch(container_id):
        raise CniError(BAD_ENVIRONMENT, "invalid characters in containerID", container_id)
    if len(container_id) > _MAX_CONTAINER_ID:
        seen = f"{len(container_id)} characters; files are named after it, which allows {_MAX_CONTAINER_ID}"
        raise CniError(BAD_ENVIRONMENT, "containerID is too long", seen)


def check_network_name(name: str) -> None:
    """Raises `CniError` in the words of the plugin framework (cni.md §1.5)."""
    if not name:
        raise CniError(BAD_CONFIG, "missing network name")
    if not _NAME.fullmatch(name):
        raise CniError(BAD_CONFIG, "invalid characters found in network name", name)


def check_ifname(name: str) -> None:
    """Raises `CniError` (cni.md §1.5). The limit is in bytes, as the kernel counts."""
    if not name:
        raise CniError(BAD_ENVIRONMENT, "interface name is empty")
    if len(name.encode("utf-8", "surrogateescape")) > _MAX_IFNAME:
        details = "interface name should be less than 16 characters"
        raise CniError(BAD_ENVIRONMENT, "interface name is too long", details)
    if name in (".", ".."):
        raise CniError(BAD_ENVIRONMENT, "interface name is . or ..")
    if any(char in "/:" or char.isspace() for char in name):
        raise CniError(BAD_ENVIRONMENT, "interface name contains / or : or whitespace characters")


class _Variable(Value, kw_only=False):
    name: str
    required: frozenset[str]
    check: Callable[[str], None] | None = None


_ATTACHED: Final = frozenset({"ADD", "CHECK", "DEL"})
_VARIABLES: Final = (
    _Variable("CNI_CONTAINERID", _ATTACHED, check_container_id),
    _Variable("CNI_NETNS", frozenset({"ADD", "CHECK"})),
    _Variable("CNI_IFNAME", _ATTACHED, check_ifname),
    _Variable("CNI_PATH", _ATTACHED | {"GC", "STATUS"}),
)


def check_environment(command: str, env: Mapping[str, str]) -> None:
    """Refuse missing, empty or malformed variables, in the order of cni.md §1.3."""
    missing = [] if command else ["CNI_COMMAND"]
    for variable in _VARIABLES:
        if command not in variable.required:
            continue
        value = env.get(variable.name, "")
        if not value:
            missing.append(variable.name)
        elif variable.check:
            variable.check(value)
    if missing:
        raise CniError(BAD_ENVIRONMENT, f"required env variables [{','.join(missing)}] missing")


def truth(text: str) -> bool:
    """A boolean of CNI_ARGS (cni.md §1.12). Raises `ValueError`."""
    match text.lower():
        case "1" | "true":
            return True
        case "0" | "false":
            return False
    raise ValueError(f"invalid boolean {text!r}")


# Every plugin of a chain and every delegate sees the same CNI_ARGS, so what one of them understands must not make
# another one fail (cni.md §1.12, a fault of upstream's).
_UNDERSTOOD_BY_SOMEONE: Final = frozenset({"IP", "MAC"})


def parse_args(text: str, known: Collection[str]) -> dict[str, str]:
    """Read the `known` keys of CNI_ARGS (cni.md §1.12). Others are refused without `IgnoreUnknown`."""
    if not text:
        return {}
    found: dict[str, str] = {}
    unknown: list[str] = []
    ignore = False
    for pair in text.split(";"):
        if pair.count("=") != 1:
            raise failure(f'ARGS: invalid pair "{pair}"')
        key, _, value = pair.partition("=")
        if key == "IgnoreUnknown":
            try:
                ignore = truth(value)
            except ValueError as error:
                raise failure(f'ARGS: error parsing value of pair "{pair}": {error}') from error
        elif key in known:
            found[key] = value
        elif key not in _UNDERSTOOD_BY_SOMEONE:
            unknown.append(pair)
    if unknown and not ignore:
        listed = " ".join(f'"{pair}"' for pair in unknown)
        raise failure(f"ARGS: unknown args [{listed}]")
    return found


# Where a GC's list is, the first that is there; the second name is of the first drafts, and runtimes send both.
VALID_ATTACHMENTS: Final = ("cni.dev/valid-attachments", "cni.dev/attachments")


def valid_attachments(config: Object) -> frozenset[tuple[str, str]]:
    """Container id and interface of the attachments that a GC must keep (cni.md §1.9).

    An empty list means that none is valid. A request without a list is refused: it would free what is alive.
    """
    key = next((key for key in VALID_ATTACHMENTS if key in config), None)
    if key is None:
        raise CniError(BAD_CONFIG, f'GC needs the key "{VALID_ATTACHMENTS[0]}"', "an empty list: nothing is valid")
    try:
        return frozenset(cnijson.items(config, key, _attachment))
    except JsonError as error:
        raise CniError(UNDECODABLE, str(error)) from error


def _attachment(value: object, where: str) -> tuple[str, str]:
    item = cnijson.as_object(value, where)
    return cnijson.text(item, "containerID"), cnijson.text(item, "ifname")
