"""flannel: makes another plugin's configuration of subnet.env and runs that plugin (flannel.md §10).

What it told the delegate is kept in a file, from which DEL works without subnet.env. The file stays until the
delegate's DEL has succeeded; upstream drops it before, and leaks the address (Q-56).
"""

import hashlib
import json
from contextlib import ExitStack, suppress
from typing import Final

from weft.cni import delegate
from weft.cni.host import ClientGone, Done
from weft.cni.interface import reason
from weft.cni.skel import Call, Plugin, about
from weft.model.errors import ConfigError
from weft.wire import cni, cnijson, flannelconf, subnetenv
from weft.wire.cni import CniError, failure
from weft.wire.cnijson import JsonError
from weft.wire.flannelconf import FlannelConf
from weft.wire.subnetenv import PluginEnv

NAME: Final = "flannel"

# Who has a container's first state file: below our own state directory.
_FIRST: Final = "/flannel"


def _add(call: Call) -> bytes:
    conf = flannelconf.parse(call.config)
    made = flannelconf.delegate_config(conf, _read_env(call, conf))
    stdin = flannelconf.render(made)
    path, before = _choose_state(call, conf)
    with ExitStack() as undo:
        undo.callback(_restore_state, call, conf, path, before)
        _hold(call, conf, path)
        call.host.files.replace(path, stdin, parents=0o700)
        done = _run(call, made["type"], stdin, undo)
        _pass_on(call, done.stderr)
        if done.exit:
            call.note(f"flannel: the delegate was told {stdin.decode()}")
        delegate.check(done)
        undo.pop_all()
    return done.stdout


def _run(call: Call, plugin: str, stdin: bytes, undo: ExitStack) -> Done:
    """Run the delegate. One of ours leaves nothing when it fails; of another that ran something may be left for DEL."""
    ours = call.find(plugin) is not None
    try:
        done = delegate.run(call, plugin, "ADD", stdin)
    except ClientGone:
        if not ours:
            undo.pop_all()
        raise
    if not ours:
        undo.pop_all()
    return done


def _delete(call: Call) -> None:
    conf = flannelconf.parse(call.config)
    found = _find_state(call, conf)
    if found is None:
        _let_go(call, conf)
        return
    path, stdin = found
    try:
        plugin = cnijson.text(cnijson.load(stdin), "type")
    except JsonError as error:
        call.note(f"flannel: {path} is no configuration and stays as it is: {error}")
        return
    done = delegate.run(call, plugin, "DEL", stdin)
    _pass_on(call, done.stderr)
    delegate.check(done)
    _drop_state(call, conf, path)


def _pass_on(call: Call, stderr: bytes) -> None:
    if stderr:
        call.note(stderr.decode("utf-8", "replace").rstrip("\n"))


def _read_env(call: Call, conf: FlannelConf) -> PluginEnv:
    try:
        text = call.host.files.read(conf.subnet_file).decode("utf-8", "replace")
    except FileNotFoundError as error:
        absent = subnetenv.absent(conf.subnet_file, f"open {conf.subnet_file}: {reason(error).lower()}")
        # Try again later: the daemon writes it as soon as it has a lease.
        raise CniError(cni.TRY_AGAIN, str(absent), call.host.lease_problem()) from error
    except OSError as error:
        raise failure(str(subnetenv.absent(conf.subnet_file, reason(error)))) from error
    try:
        return subnetenv.parse_for_cni(text, conf.subnet_file)
    except ConfigError as error:
        raise failure(str(error)) from error


def _own_path(call: Call, conf: FlannelConf) -> str:
    """Return the state file of a further attachment of the container (decisions.md §9)."""
    attachment = f"{call.network}\0{call.ifname}".encode("utf-8", "surrogateescape")
    return f"{conf.data_dir}/{call.container_id}.{hashlib.sha256(attachment).hexdigest()[:16]}"


def _choose_state(call: Call, conf: FlannelConf) -> tuple[str, bytes | None]:
    """Return where the state goes, and what is there now.

    It is upstream's file for the container's first attachment, one of its own for a further one.
    """
    first = f"{conf.data_dir}/{call.container_id}"
    before = _read(call, first)
    if before is None or _holder(call, conf) == [call.network, call.ifname]:
        return first, before
    own = _own_path(call, conf)
    return own, _read(call, own)


def _hold(call: Call, conf: FlannelConf, path: str) -> None:
    """Write down, before the file itself, whose the container's first state file is."""
    if path != _own_path(call, conf):
        attachment = json.dumps([call.network, call.ifname]).encode()
        call.host.state.replace(_holder_path(call, conf), attachment, parents=0o700)


def _find_state(call: Call, conf: FlannelConf) -> tuple[str, bytes] | None:
    """Return this attachment's state file and its content, None if there is none."""
    own = _own_path(call, conf)
    content = _read(call, own)
    if content is not None:
        return own, content
    first = f"{conf.data_dir}/{call.container_id}"
    content = _read(call, first)
    if content is None:
        return None
    if _holder(call, conf) not in (None, [call.network, call.ifname]):
        return None
    with suppress(JsonError):
        if cnijson.text(cnijson.load(content), "name") != call.network:
            return None
    return first, content


def _read(call: Call, path: str) -> bytes | None:
    try:
        return call.host.files.read(path)
    except FileNotFoundError:
        return None


def _restore_state(call: Call, conf: FlannelConf, path: str, before: bytes | None) -> None:
    """Put back what was there: an ADD that is repeated fails, and its first one must still find its state."""
    if before is None:
        _drop_state(call, conf, path)
    else:
        call.host.files.replace(path, before)


def _drop_state(call: Call, conf: FlannelConf, path: str) -> None:
    with suppress(FileNotFoundError):
        call.host.files.unlink(path)
    if path != _own_path(call, conf):
        _let_go(call, conf)


def _let_go(call: Call, conf: FlannelConf) -> None:
    """Forget that the container's first state file is this attachment's, if it is so."""
    if _holder(call, conf) == [call.network, call.ifname]:
        with suppress(FileNotFoundError):
            call.host.state.unlink(_holder_path(call, conf))


def _holder(call: Call, conf: FlannelConf) -> list[str] | None:
    """Return network and interface that the container's first state file belongs to, None if we do not know."""
    try:
        holder = json.loads(call.host.state.read(_holder_path(call, conf)))
    except (FileNotFoundError, ValueError):
        return None
    return holder if isinstance(holder, list) else None


def _holder_path(call: Call, conf: FlannelConf) -> str:
    file = f"{conf.data_dir}\0{call.container_id}".encode("utf-8", "surrogateescape")
    return f"{_FIRST}/{hashlib.sha256(file).hexdigest()[:32]}.json"


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, about=about(NAME))
