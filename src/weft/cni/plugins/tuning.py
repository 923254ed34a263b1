"""tuning: settings of the container's namespace and of its interface (cni.md §6.4).

What the interface was like is kept in upstream's backup file, which DEL puts back. Settings are written through the
container's own directories, so that none can reach the host's. Texts of errors are upstream's.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Annotated, Any, Final

from weft.cni.attachment import veth
from weft.cni.attachment.interface import reason
from weft.cni.host.host import Container, Host
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.config.re2 import Pattern
from weft.kernel.rtnetlink.link import set_link
from weft.kernel.rtnetlink.netlink import Message
from weft.model.attachment import Attachment
from weft.model.kernel.reported import LinkInfo
from weft.model.keyed import Arg, Key
from weft.model.net import Mac
from weft.model.value import Value, field, fields_of, replace
from weft.wire import cnijson, cniresult
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnivalue import decode, decode_or_fail, encode

NAME: Final = "tuning"

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
            mac=_mac(keys.mac),
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


def _mac(text: str) -> Mac | None:
    if not text:
        return None
    try:
        return Mac.parse(text)
    except ValueError as error:
        raise failure(f"invalid args {text} for MAC addr: address {text}: invalid MAC address") from error


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


def _add(call: Call) -> bytes:
    conf, sysctls = _read(call)
    with suppress(FileNotFoundError):  # the administrator need not have made a list
        allowed = call.host.files.read(ALLOW_LIST).decode("utf-8", "replace")
        check_allowed((name for name, _ in conf.sysctls), allowed)
    result = call.previous()
    container = call.container()
    for path, value in sysctls.items():
        try:
            container.sysctls.write(path, value)
        except OSError as error:
            verb = "open" if error.filename else "write"
            raise failure(f"{verb} /proc/sys/{path}: {reason(error)}") from error
    with ExitStack() as undo:
        if conf.link.given:
            link = _link(container, call.ifname, f'failed to get "{call.ifname}": Link not found')
            before = LinkTuning(**{name: was for name, was in _seen(link).given.items() if name in conf.link.given})
            undo.callback(_restore, call, container, link.index, before)
            _back_up(call, undo, conf.data_dir, before)
            for what, message in _messages(link.index, conf.link):
                for refusal in container.rtnl.batch([message]).values():
                    raise failure(f"failed to set {what} of {link.name}: {reason(refusal)}") from refusal
            if conf.mac:
                named = (replace(one, mac=conf.mac) if one.name == call.ifname else one for one in result.interfaces)
                result = replace(result, interfaces=tuple(named))
        output = cniresult.render(result, call.version)
        undo.pop_all()
    return output


def _read(call: Call) -> tuple[TuningConf, dict[str, str]]:
    conf = parse(call.config, call.request.stdin, call.args)
    return conf, paths(conf.sysctls, call.ifname)


def _link(container: Container, ifname: str, missing: str) -> LinkInfo:
    link = container.rtnl.link(ifname)
    if link is None:
        raise failure(missing)
    return link


def _seen(link: LinkInfo) -> LinkTuning:
    return LinkTuning(
        mac=link.mac, promisc=link.promisc, mtu=link.mtu, allmulti=link.allmulti, queue_length=link.queue_length
    )


def _back_up(call: Call, undo: ExitStack, data_dir: str, before: LinkTuning) -> None:
    """What is kept already counts more: an earlier tuning of the chain has written it."""
    path = _path(call, data_dir)
    try:
        content = call.host.files.read(path)
    except FileNotFoundError:
        content = b""
    earlier = LinkTuning()
    with suppress(JsonError):
        earlier = parse_backup(content)
    undo.callback(record.put_back, call, NAME, record.recall(call.host, NAME, call.attachment))
    undo.callback(_put_back, call, path, content)
    record.keep(call, NAME, {"path": path})
    call.host.files.replace(path, render_backup(replace(before, **earlier.given)), parents=0o700)


def _put_back(call: Call, path: str, content: bytes) -> None:
    if content:
        call.host.files.replace(path, content)
    else:
        with suppress(FileNotFoundError):
            call.host.files.unlink(path)


def _path(call: Call, data_dir: str) -> str:
    return f"{data_dir}/{call.container_id}_{call.ifname}.json"


def _messages(index: int, wanted: LinkTuning) -> Iterator[tuple[str, Message]]:
    if wanted.mac is not None:
        yield f"the MAC {wanted.mac}", set_link(index, mac=wanted.mac)
    if wanted.promisc is not None:
        yield "promiscuous mode", set_link(index, promisc=wanted.promisc)
    if wanted.mtu is not None:
        yield f"the MTU {wanted.mtu}", set_link(index, mtu=wanted.mtu)
    if wanted.allmulti is not None:
        yield "all-multicast mode", set_link(index, allmulti=wanted.allmulti)
    if wanted.queue_length is not None:
        yield f"the queue length {wanted.queue_length}", set_link(index, queue_length=wanted.queue_length)


def _restore(call: Call, container: Container, index: int, before: LinkTuning) -> None:
    for what, message in _messages(index, before):
        for error in container.rtnl.batch([message]).values():
            call.note(f"tuning: cannot put back {what}: {reason(error)}")


def _delete(call: Call) -> None:
    """Put back what the backup says and forget it; what cannot be done is only noted (cni.md §6.4)."""
    known = record.recall(call.host, NAME, call.attachment) or {}
    try:
        path = str(known.get("path") or _path(call, data_dir(call.config)))
        with suppress(FileNotFoundError):
            before = parse_backup(call.host.files.read(path))
            link = veth.own_end(call, later=True)
            if link is not None:
                _restore(call, call.container(), link.index, before)
            call.host.files.unlink(path)
        record.forget(call.host, NAME, call.attachment)
    except (OSError, ValueError, CniError) as error:
        call.note(f"tuning: {error}")


def _undo_leaked(host: Host, attachment: Attachment, known: Object) -> None:
    """The interface has gone; the backup goes after it."""
    with suppress(FileNotFoundError):
        host.files.unlink(cnijson.text(known, "path"))
    record.forget(host, NAME, attachment)


def _gc(call: Call) -> None:
    problems = record.undo_gone(call, NAME, _undo_leaked)
    if problems:
        raise failure(f"failed to remove backups: {'; '.join(problems)}")


def _check(call: Call) -> None:
    conf, sysctls = _read(call)
    call.previous()
    container = call.container()
    for path, expected in sysctls.items():
        try:
            there = container.sysctls.read(path)
        except OSError as error:
            raise failure(f"open /proc/sys/{path}: {reason(error)}") from error
        # A setting of several numbers is written with blanks and read with tabs.
        if expected.split() != there.split():
            name = f"value of /proc/sys/{path}"
            raise failure(f"Error: Tuning configured {name} is {expected}, current value is {there}")
    seen = _seen(_link(container, call.ifname, f"Cannot find container link {call.ifname}"))
    _check_link(call.ifname, conf.link, seen)


def _check_link(ifname: str, wanted: LinkTuning, seen: LinkTuning) -> None:
    promisc = bool(wanted.promisc)
    for what, expected, there in (
        (f"configured Ethernet of {ifname}", wanted.mac, seen.mac),
        (f"link {ifname} configured promisc", promisc, int(bool(seen.promisc))),
        (f"configured MTU of {ifname}", wanted.mtu, seen.mtu),
        (f"configured all-multicast mode of {ifname}", wanted.allmulti, seen.allmulti),
        (f"configured Transmit Queue Length of {ifname}", wanted.queue_length, seen.queue_length),
    ):
        if expected is not None and expected != there:
            raise failure(f"Error: Tuning {what} is {_show(expected)}, current value is {_show(there)}")


def _show(value: object) -> str:
    return str(value).lower()


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=_delete,
    check=_check,
    gc=_gc,
    about=about(NAME),
    keeps=Subject(name=NAME, undo=_undo_leaked),
)
