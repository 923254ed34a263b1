"""tuning's configuration, and the administrator's list of allowed settings (cni.md §6.4).

Texts of errors are upstream's. A name of a setting becomes a path here, and none leads out of `net`.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from weft.config.re2 import Pattern
from weft.model.net import Mac
from weft.model.value import Value, fields_of, replace
from weft.wire import cnijson, confkey
from weft.wire.cni import failure, parse_args
from weft.wire.cnijson import JsonError, Object
from weft.wire.confkey import Key

T = TypeVar("T")

DATA_DIR: Final = "/run/cni/tuning"
ALLOW_LIST: Final = "/etc/cni/tuning/allowlist.conf"

_LARGEST: Final = 0xFFFFFFFF
_ARGS: Final = "`args.cni`"
_SYSCTL: Final = confkey.member(
    "sysctl",
    "Settings by name, as `net.ipv4.conf.IFNAME.arp_notify`: `IFNAME` is the interface. Only below `net`.",
    kind="object of strings",
)
_MAC: Final = confkey.text("mac", "The interface's MAC.", meaning="as it is")
_PROMISC: Final = confkey.maybe_flag("promisc", "Make the interface promiscuous; `false` does nothing.")
_MTU: Final = confkey.maybe_integer("mtu", "The interface's MTU.", default="as it is", least=0, most=_LARGEST)
_ALLMULTI: Final = confkey.maybe_flag("allmulti", "Receive all multicast packets.", default="as it is")
_QUEUE_LENGTH: Final = confkey.maybe_integer(
    "txQLen", "The interface's queue length.", default="as it is", least=0, most=_LARGEST
)
_DATA_DIR: Final = confkey.text(
    "dataDir", "Where a file for each attachment says what its interface was like.", default=DATA_DIR
)
_RUNTIME_MAC: Final = confkey.text(
    "mac", "The MAC, instead of the configuration's (capability `mac`).", place="`runtimeConfig`"
)
_OVERRIDES: Final = tuple(
    replace(key, about="Instead of the same above.", default="", place=_ARGS)
    for key in (_MAC, _PROMISC, _MTU, _ALLMULTI, _QUEUE_LENGTH)
)
_MORE_SYSCTLS: Final = replace(_SYSCTL, about="More settings; of the same name these count.", place=_ARGS)
KEYS: Final = (
    _SYSCTL,
    _MAC,
    _PROMISC,
    _MTU,
    _ALLMULTI,
    _QUEUE_LENGTH,
    _DATA_DIR,
    _RUNTIME_MAC,
    _MORE_SYSCTLS,
    *_OVERRIDES,
)
ARGS: Final = {"MAC": "The MAC, instead of the configuration's."}

_NET: Final = "net"
_SWAPPED: Final = str.maketrans("./", "/.")
_REPEATED: Final = "duplicated sysctl keys are not allowed"


class LinkTuning(Value):
    """Settings of a link; None: left alone, or not known."""

    mac: Mac | None = None
    promisc: bool | None = None
    mtu: int | None = None
    allmulti: bool | None = None
    queue_length: int | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not None, by name."""
        every = fields_of(self)
        return {name: value for name, value in every.items() if value is not None}


class TuningConf(Value):
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
    return _DATA_DIR(config)


def _parse(config: Object, args: str) -> TuningConf:
    of_cni = _of_cni(config)
    sysctls: dict[str, str] = {}
    for source in (config, of_cni):
        values = _SYSCTL(source).items()
        sysctls |= {name: _encodable(cnijson.as_text(value, f"sysctl {name!r}")) for name, value in values}
    mac = (
        _MAC(of_cni)
        or _RUNTIME_MAC(cnijson.member(config, "runtimeConfig"))
        or parse_args(args, ARGS).get("MAC", "")
        or _MAC(config)
    )
    link = LinkTuning(
        mac=_mac(mac),
        # False does nothing: a link that something else has made promiscuous stays so.
        promisc=_last(_PROMISC, config, of_cni) or None,
        mtu=_last(_MTU, config, of_cni) or None,
        allmulti=_last(_ALLMULTI, config, of_cni),
        queue_length=_last(_QUEUE_LENGTH, config, of_cni),
    )
    return TuningConf(link=link, sysctls=tuple(sysctls.items()), mac=mac, data_dir=data_dir(config))


def _of_cni(config: Object) -> Object:
    return cnijson.member(cnijson.member(config, "args"), "cni")


def _last(key: Key[T | None], config: Object, of_cni: Object) -> T | None:
    """Return a key of `args.cni`, else of the configuration."""
    overriding = key(of_cni)
    return key(config) if overriding is None else overriding


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


def _repeats(stdin: bytes) -> bool:
    """Tell whether the text has a setting twice in one object: the reader of JSON keeps only the last."""
    repeating: list[Object] = []

    def read(pairs: list[tuple[str, Any]]) -> Object:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeating.append(found)
        return found

    config = json.loads(stdin, object_pairs_hook=read)
    return any(_SYSCTL(source) is one for source in (config, _of_cni(config)) for one in repeating)


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
        patterns = [Pattern(line) for line in lines]
    except ValueError as error:
        raise failure(f"{ALLOW_LIST}: {error}") from error
    for name in names:
        if not any(pattern.search(name) for pattern in patterns):
            listed = " ".join(lines)
            raise failure(f"Sysctl {name} is not allowed. Only the following sysctls are allowed: [{listed}]")
