"""tuning's configuration, its list of allowed settings, and what it keeps of a link (cni.md §6.4).

Texts of errors are upstream's. A name of a setting becomes a path here, and none leads out of `net`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from weft.config.re2 import compile_re2
from weft.model.net import Mac
from weft.wire import cnijson
from weft.wire.cni import failure, parse_args
from weft.wire.cnijson import JsonError, Object

T = TypeVar("T")

DATA_DIR: Final = "/run/cni/tuning"
ALLOW_LIST: Final = "/etc/cni/tuning/allowlist.conf"

_NET: Final = "net"
_SWAPPED: Final = str.maketrans("./", "/.")
_LARGEST: Final = 0xFFFFFFFF
_REPEATED: Final = "duplicated sysctl keys are not allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTuning:
    """Settings of a link; None: left alone, or not known."""

    mac: Mac | None = None
    promisc: bool | None = None
    mtu: int | None = None
    allmulti: bool | None = None
    queue_length: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not None, by name."""
        every = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningConf:
    """What tuning is asked. `sysctls` are name, as it was written, and value; `mac` is `link.mac` as it was written."""

    link: LinkTuning
    sysctls: tuple[tuple[str, str], ...] = ()
    mac: str = ""
    data_dir: str = DATA_DIR


def parse(config: Object, stdin: bytes, args: str) -> TuningConf:
    """Read a request: decoded, as it came (only there a repeated key can be seen), and CNI_ARGS. Raises `CniError`."""
    try:
        conf = _parse(config, args)
    except JsonError as error:
        raise failure(f"failed to load netconf: {error}") from error
    if _repeats(stdin):
        raise failure(_REPEATED)
    return conf


def data_dir(config: Object) -> str:
    """Return where the backup is: all that DEL needs. Raises `JsonError`."""
    return cnijson.text(config, "dataDir") or DATA_DIR


def _parse(config: Object, args: str) -> TuningConf:
    of_cni = cnijson.member(cnijson.member(config, "args"), "cni")
    sysctls: dict[str, str] = {}
    for source in (cnijson.member(config, "sysctl"), cnijson.member(of_cni, "sysctl")):
        sysctls |= {name: _encodable(cnijson.as_text(value, f"sysctl {name!r}")) for name, value in source.items()}
    mac = (
        cnijson.text(of_cni, "mac")
        or cnijson.text(cnijson.member(config, "runtimeConfig"), "mac")
        or parse_args(args, {"MAC"}).get("MAC", "")
        or cnijson.text(config, "mac")
    )
    link = LinkTuning(
        mac=_mac(mac),
        # False does nothing: a link that something else has made promiscuous stays so.
        promisc=_last(config, of_cni, "promisc", cnijson.flag) or None,
        mtu=_last(config, of_cni, "mtu", cnijson.integer) or None,
        allmulti=_last(config, of_cni, "allmulti", cnijson.flag),
        queue_length=_last(config, of_cni, "txQLen", cnijson.integer),
    )
    for key, value in (("mtu", link.mtu), ("txQLen", link.queue_length)):
        if value is not None and not 0 <= value <= _LARGEST:
            raise failure(f"invalid {key} {value}")
    return TuningConf(link=link, sysctls=tuple(sysctls.items()), mac=mac, data_dir=data_dir(config))


def _last(config: Object, of_cni: Object, key: str, read: Callable[[Object, str], T]) -> T | None:
    """Return a key of `args.cni`, else of the configuration, else None."""
    source = next((one for one in (of_cni, config) if cnijson.value_of(one, key) is not None), None)
    return None if source is None else read(source, key)


def _mac(text: str) -> Mac | None:
    if not text:
        return None
    try:
        return Mac.parse(text)
    except ValueError as error:
        raise failure(f"invalid args {text} for MAC addr: address {text}: invalid MAC address") from error


def _encodable(text: str) -> str:
    """Refuse what cannot be written to a file: a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise JsonError(f"sysctl: {text!r} is no Unicode") from error
    return text


class _Repeating(dict[str, Any]):
    """An object that has a key more than once."""


def _repeats(stdin: bytes) -> bool:
    """Tell whether the text has a setting twice in one object: the reader of JSON keeps only the last."""

    def read(pairs: list[tuple[str, Any]]) -> Object:
        found = dict(pairs)
        return found if len(found) == len(pairs) else _Repeating(found)

    config = json.loads(stdin, object_pairs_hook=read)
    of_cni = _within(_within(config, "args"), "cni")
    return any(isinstance(_within(one, "sysctl"), _Repeating) for one in (config, of_cni))


def _within(value: Any, key: str) -> Any:
    return cnijson.value_of(value, key) if isinstance(value, dict) else None


def paths(sysctls: Iterable[tuple[str, str]], ifname: str) -> dict[str, str]:
    """Return the values by path below /proc/sys: `net/ipv4/conf/eth0/arp_notify` (cni.md §1.18). Raises `CniError`.

    Two names of one setting are refused as a repeated one is, if their values differ: which one wins is chance.
    """
    found: dict[str, str] = {}
    for name, value in sysctls:
        path = path_of(name, ifname)
        if found.setdefault(path, value) != value:
            raise failure(_REPEATED, f"{path}: {found[path]!r} and {value!r}")
    return found


def path_of(name: str, ifname: str) -> str:
    """Return the path of one setting; the first `IFNAME` is the interface, whose name may hold a dot."""
    dot, slash = name.find("."), name.find("/")
    if dot >= 0 and not 0 <= slash < dot:
        name = name.translate(_SWAPPED)
    parts = [part for part in name.replace("IFNAME", ifname, 1).split("/") if part not in ("", ".")]
    if len(parts) < len((_NET, "file")) or parts[0] != _NET or ".." in parts or not "".join(parts).isprintable():
        raise failure(f'invalid net sysctl key: "{name}"')
    return "/".join(parts)


def check_allowed(names: Iterable[str], allow_list: str) -> None:
    """Refuse a name that no line of the administrator's list matches. Raises `CniError`."""
    lines = [line.removesuffix("\r") for line in allow_list.split("\n")]
    lines = [line for line in lines if line]
    try:
        patterns = [compile_re2(line) for line in lines]
    except ValueError as error:
        raise failure(f"{ALLOW_LIST}: {error}") from error
    for name in names:
        if not any(pattern.search(name) for pattern in patterns):
            listed = " ".join(lines)
            raise failure(f"Sysctl {name} is not allowed. Only the following sysctls are allowed: [{listed}]")


def render_backup(before: LinkTuning) -> bytes:
    """Return what upstream's backup file holds for these settings."""
    mac = None if before.mac is None else str(before.mac)
    known: Mapping[str, Any] = {
        "mac": mac,
        "promisc": before.promisc,
        "mtu": before.mtu,
        "allmulti": before.allmulti,
        "txQLen": before.queue_length,
    }
    return json.dumps({key: value for key, value in known.items() if value is not None}, indent=1).encode()


def parse_backup(data: bytes) -> LinkTuning:
    """Read a backup file, ours or upstream's. Raises `JsonError`."""
    known = cnijson.load(data)
    try:
        mac = Mac.parse(cnijson.text(known, "mac")) if cnijson.text(known, "mac") else None
    except ValueError as error:
        raise JsonError(str(error)) from error
    return LinkTuning(
        # All zero means "not set" and can never be written back.
        mac=mac if mac is not None and any(mac) else None,
        promisc=_last(known, {}, "promisc", cnijson.flag),
        mtu=cnijson.maybe_integer(known, "mtu") or None,
        allmulti=_last(known, {}, "allmulti", cnijson.flag),
        queue_length=cnijson.maybe_integer(known, "txQLen"),
    )
