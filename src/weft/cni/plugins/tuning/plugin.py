"""tuning: settings of the container's namespace and of its interface (cni.md §6.4).

What the interface was like is kept in upstream's backup file, which DEL puts back. Settings are written through the
container's own directories, so that none can reach the host's. Texts of errors are upstream's.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final

from weft.cni.attachment import veth
from weft.cni.attachment.interface import reason
from weft.cni.host.host import Container, Host
from weft.cni.plugins.tuning.conf import (
    ALLOW_LIST,
    LinkTuning,
    TuningConf,
    check_allowed,
    data_dir,
    parse,
    parse_backup,
    paths,
    render_backup,
)
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.kernel.rtnetlink.link import set_link
from weft.kernel.rtnetlink.netlink import Message
from weft.model.attachment import Attachment
from weft.model.kernel.reported import LinkInfo
from weft.model.value import replace
from weft.wire import cnijson, cniresult
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError, Object

NAME: Final = "tuning"
_WORDS: Final = {
    "mac": "the MAC {}",
    "promisc": "promiscuous mode",
    "mtu": "the MTU {}",
    "allmulti": "all-multicast mode",
    "queue_length": "the queue length {}",
}


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
    for name, value in wanted.given.items():
        yield _WORDS[name].format(value), set_link(index, **{name: value})


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
