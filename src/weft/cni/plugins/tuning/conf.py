"""What tuning is asked, what its backup file holds, and which settings are allowed (cni.md §6.4)."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Final

from weft.cni.attachment.conf import parse_mac
from weft.config.re2 import Pattern
from weft.model.keyed import Arg, Key
from weft.model.net import Mac
from weft.model.value import Value, field, fields_of, replace
from weft.wire import cnijson
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode, decode_or_fail, encode

DATA_DIR: Final = "/run/cni/tuning"
ALLOW_LIST: Final = "/etc/cni/tuning/allowlist.conf"

_LARGEST: Final = 0xFFFFFFFF
_FAILED: Final = "failed to load netconf"
_INSTEAD: Final = "Instead of the same above."
_NET: Final = "net"
_SWAPPED: Final = str.maketrans("./", "/.")
_REPEATED: Final = "duplicated sysctl keys are not allowed"
DataDir = Annotated[str, Key("dataDir", "Where a file for each attachment says what its interface was like.")]


class LinkTuning(Value):
    """None: left alone, or not known. The keys are those of the backup file."""

    mac: Annotated[Mac | None, Key("mac")] = None
    promisc: Annotated[bool | None, Key("promisc")] = None
    mtu: Annotated[int | None, Key("mtu")] = None
    allmulti: Annotated[bool | None, Key("allmulti")] = None
    queue_length: Annotated[int | None, Key("txQLen")] = None

    @property
    def given(self) -> dict[str, Any]:
        every = fields_of(self)
        return {name: value for name, value in every.items() if value is not None}


def render_backup(before: LinkTuning) -> bytes:
    return json.dumps(encode(before), indent=1).encode()


def parse_backup(data: bytes) -> LinkTuning:
    known = decode(LinkTuning, cnijson.load(data))
    # All zero means "not set" and can never be written back.
    return replace(known, mac=known.mac if any(known.mac or ()) else None, mtu=known.mtu or None)


class TuningConf(Value):
    """`sysctls` are name and value; they and `mac` are as they were written."""

    link: LinkTuning
    sysctls: tuple[tuple[str, str], ...] = ()
    mac: str = ""
    data_dir: str = DATA_DIR


class DeleteConf(Value):
    data_dir: DataDir = DATA_DIR


class Sysctls(Value):
    own: Annotated[
        dict[str, str],
        Key(
            "sysctl",
            "Settings by name, as `net.ipv4.conf.IFNAME.arp_notify`: `IFNAME` is the interface. Only below `net`.",
        ),
    ] = field(default_factory=dict)
    of_cni: Annotated[dict[str, str], Key("sysctl", "More settings, which count more.", at="args.cni")] = field(
        default_factory=dict
    )


class TuningKeys(Sysctls):
    mac: Annotated[
        str,
        Key("mac", _INSTEAD, at="args.cni"),
        Key("mac", "The MAC, instead of the configuration's (capability `mac`).", at="runtimeConfig"),
        Arg("MAC", "The MAC, instead of the configuration's."),
        Key("mac", "The interface's MAC.", default="as it is"),
    ] = ""
    promisc: Annotated[
        bool | None,
        Key("promisc", _INSTEAD, at="args.cni"),
        Key("promisc", "Make the interface promiscuous; `false` does nothing."),
    ] = None
    mtu: Annotated[
        int | None,
        Key("mtu", _INSTEAD, at="args.cni", least=0, most=_LARGEST),
        Key("mtu", "The interface's MTU.", default="as it is", least=0, most=_LARGEST),
    ] = None
    allmulti: Annotated[
        bool | None,
        Key("allmulti", _INSTEAD, at="args.cni"),
        Key("allmulti", "Receive all multicast packets.", default="as it is"),
    ] = None
    queue_length: Annotated[
        int | None,
        Key("txQLen", _INSTEAD, at="args.cni", least=0, most=_LARGEST),
        Key("txQLen", "The interface's queue length.", default="as it is", least=0, most=_LARGEST),
    ] = None
    data_dir: DataDir = DATA_DIR


def parse(config: Object, stdin: bytes, args: str) -> TuningConf:
    """`stdin` is the request as it came: only there a repeated key can be seen. Raises `CniError`."""
    keys = decode_or_fail(TuningKeys, config, args, failed=_FAILED)
    conf = TuningConf(
        link=LinkTuning(
            mac=parse_mac(keys.mac, f"invalid args {keys.mac} for MAC addr"),
            # False does nothing: a link that something else has made promiscuous stays so.
            promisc=keys.promisc or None,
            mtu=keys.mtu or None,
            allmulti=keys.allmulti,
            queue_length=keys.queue_length,
        ),
        sysctls=tuple((name, _encodable(value)) for name, value in (keys.own | keys.of_cni).items()),
        mac=keys.mac,
        data_dir=keys.data_dir,
    )
    if _repeats(stdin):
        raise failure(_REPEATED)
    return conf


def data_dir(config: Object) -> str:
    """All that DEL needs. Raises `JsonError`."""
    return decode(DeleteConf, config).data_dir


def _encodable(text: str) -> str:
    """Refuse a lone surrogate, which cannot be written to a file."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise failure(f"{_FAILED}: sysctl: {text!r} is no Unicode") from error
    return text


def _repeats(stdin: bytes) -> bool:
    """Tell whether the text has a setting twice in one object: the reader of JSON keeps only the last."""
    repeating: list[Object] = []

    def read(pairs: list[tuple[str, Any]]) -> Object:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeating.append(found)
        return found

    sysctls = decode(Sysctls, json.loads(stdin, object_pairs_hook=read))
    return any(source is one for source in (sysctls.own, sysctls.of_cni) for one in repeating)


def paths(sysctls: Iterable[tuple[str, str]], ifname: str) -> dict[str, str]:
    """Two names of one setting are refused if their values differ: which one wins is chance (cni.md §1.18)."""
    found: dict[str, str] = {}
    for name, value in sysctls:
        path = path_of(name, ifname)
        if found.setdefault(path, value) != value:
            raise failure(_REPEATED, f"{path}: {found[path]!r} and {value!r}")
    return found


def path_of(name: str, ifname: str) -> str:
    """The first `IFNAME` is the interface, whose name may hold a dot."""
    dot, slash = name.find("."), name.find("/")
    if dot >= 0 and not 0 <= slash < dot:
        name = name.translate(_SWAPPED)
    parts = [part for part in name.replace("IFNAME", ifname, 1).split("/") if part not in ("", ".")]
    if len(parts) < len((_NET, "file")) or parts[0] != _NET or ".." in parts or not "".join(parts).isprintable():
        raise failure(f'invalid net sysctl key: "{name}"')
    return "/".join(parts)


def check_allowed(names: Iterable[str], allow_list: str) -> None:
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
