"""flannel: makes another plugin's configuration of subnet.env and runs that plugin (flannel.md §10).

What the delegate got is kept in a file, from which DEL works without subnet.env. The file stays until the delegate's
DEL has succeeded; upstream drops it before, and leaks the address (Q-56).
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from weft.cni.attachment.interface import reason
from weft.cni.host.host import ClientGone
from weft.cni.plugins.flannel import conf as flannelconf
from weft.cni.plugins.flannel import state as flannelstate
from weft.cni.plugins.flannel.conf import DeleteConf, FlannelConf
from weft.cni.sdk import delegate, record
from weft.cni.sdk.startup import Call, Plugin, Subject, about
from weft.model.errors import ConfigError
from weft.wire import cni, cnichain, cnijson, subnetenv
from weft.wire.cni import CniError, Ran, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.subnetenv import PluginEnv

NAME: Final = "flannel"

# What a GC goes by if there is no subnet.env: what is gone is gone without it too.
_NO_LEASE: Final = PluginEnv(networks=(), subnets=(), mtu=0, ip_masq=False)


def _add(call: Call) -> bytes:
    conf = flannelconf.parse(call.config)
    made = flannelconf.delegate_config(conf, _await_env(call, conf))
    stdin = flannelconf.render(made)
    path, before = flannelstate.choose(call, conf)
    held = record.recall(call.host, flannelstate.SUBJECT, call.attachment)
    with ExitStack() as undo:
        undo.callback(record.put_back, call, flannelstate.SUBJECT, held)
        undo.callback(_restore_state, call, path, before)
        record.keep(call, flannelstate.SUBJECT, {"path": path, **_first(call, made["type"])})  # before the file itself
        call.host.files.replace(path, stdin, parents=0o700)
        done = _run(call, made["type"], stdin, undo)
        if done.exit:
            call.note(f"flannel: called the delegate with {stdin.decode()}")
        cnichain.raise_for(done)
        undo.pop_all()
    return done.stdout


def _first(call: Call, plugin: str) -> Object:
    """Say if there is no interface yet: then one that is there after a death is that of a delegate that is not ours."""
    container = None if call.build.find(plugin) else call.host.container
    return {"first": True} if container is not None and container.rtnl.link(call.ifname) is None else {}


def _run(call: Call, plugin: str, stdin: bytes, undo: ExitStack) -> Ran:
    """One of ours leaves nothing when it fails; of another that ran something may be left for DEL."""
    ours = call.build.find(plugin) is not None
    try:
        done = delegate.run(call, plugin, "ADD", stdin)
    except ClientGone:
        if not ours:
            undo.pop_all()
        raise
    if not ours:
        undo.pop_all()
    return done


def _restore_state(call: Call, path: str, before: bytes | None) -> None:
    """Put back what was there: an ADD that is repeated fails, and its first one must still find its state."""
    if before is None:
        flannelstate.drop(call, path)
    else:
        call.host.files.replace(path, before)


def _delete(call: Call) -> None:
    found = flannelstate.find(call, call.read_for_delete(flannelconf.parse_for_delete, otherwise=DeleteConf()))
    if found is None:
        record.forget(call.host, flannelstate.SUBJECT, call.attachment)
        return
    path, stdin = found
    try:
        plugin = cnijson.text(cnijson.load(stdin), "type")
    except JsonError as error:
        call.note(f"flannel: {path} is no configuration and stays as it is: {error}")
        return
    delegate.ask(call, plugin, "DEL", stdin)
    flannelstate.drop(call, path)


def _check(call: Call) -> None:
    """Have the delegate check what it got in ADD, with the result as the runtime knows it now."""
    conf = flannelconf.parse(call.config)
    found = flannelstate.find(call, conf)
    if found is None:
        hint = f"CNI-002: neither {conf.data_dir}/{call.container_id} nor a file beside it has its configuration"
        raise failure(f"flannel: no state of container {call.container_id}, interface {call.ifname}", hint)
    path, stdin = found
    try:
        told = cnijson.load(stdin)
        plugin = cnijson.text(told, "type")
    except JsonError as error:
        raise failure(f"flannel: {path} is no configuration", f"CNI-002: {error}") from error
    # The runtime has converted the result to its version of today, which need not be ADD's.
    told |= {"cniVersion": call.version, "prevResult": cnijson.member(call.config, "prevResult")}
    delegate.ask(call, plugin, "CHECK", flannelconf.render(told))


def _gc(call: Call) -> None:
    """Have the delegates collect, then remove the state of what is gone: if one fails, all state stays."""
    conf = flannelconf.parse(call.config)
    stale = list(flannelstate.stale(call, conf))
    keys = {key: call.config[key] for key in cni.VALID_ATTACHMENTS if key in call.config}
    errors: list[Exception] = []
    for made in _told(call, conf, [content for _, content in stale]):
        try:
            delegate.ask(call, cnijson.text(made, "type"), "GC", flannelconf.render(made | keys))
        except CniError as error:
            errors.append(error)
    for path, _ in () if errors else stale:
        try:
            call.host.files.unlink(path)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else failure("; ".join(map(str, errors)))
    record.collect(call, flannelstate.SUBJECT)


def _told(call: Call, conf: FlannelConf, contents: list[bytes]) -> Iterator[Object]:
    """Give a configuration for each delegate with its own IPAM that this network has or had, today's first."""
    try:
        env = _read_env(call, conf)
    except CniError:
        env = _NO_LEASE
    configs = [flannelconf.delegate_config(conf, env)]
    for content in contents:
        try:
            configs.append(cnijson.load(content))
        except JsonError as error:
            call.note(f"flannel: state that is no configuration is not forwarded: {error}")
    seen = set()
    for config in configs:
        ipam = cnijson.member(config, "ipam")
        who = cnijson.text(config, "type"), cnijson.text(ipam, "type"), cnijson.text(ipam, "dataDir")
        if who not in seen:
            seen.add(who)
            yield {**config, "cniVersion": call.version}


def _status(call: Call) -> None:
    """Fail with the daemon's own reason if there is no lease or the node cannot serve pods, else ask the delegate."""
    conf = flannelconf.parse(call.config)
    problem = call.host.unready()
    try:
        env = _read_env(call, conf)
    except CniError as error:
        raise CniError(_unavailable(call, conf), error.msg, error.details) from error
    if problem:
        raise CniError(_unavailable(call, conf), f"weftd: this node is not ready: {problem}")
    made = flannelconf.delegate_config(conf, env)
    delegate.ask(call, made["type"], "STATUS", flannelconf.render(made))


def _unavailable(call: Call, conf: FlannelConf) -> int:
    return cni.UNAVAILABLE_AND_LIMITED if flannelstate.is_used(call, conf) else cni.UNAVAILABLE


def _await_env(call: Call, conf: FlannelConf) -> PluginEnv:
    """Read subnet.env, for which the first pods of a node wait: a runtime tries again only after ten seconds."""
    try:
        return _read_env(call, conf)
    except CniError as error:
        if error.code != cni.TRY_AGAIN or not call.host.lease_comes(lambda: _is_there(call, conf)):
            raise
    return _read_env(call, conf)


def _is_there(call: Call, conf: FlannelConf) -> bool:
    try:
        call.host.files.modified(conf.subnet_file)
    except OSError:
        return False
    return True


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


PLUGIN: Final = Plugin(
    name=NAME,
    add=_add,
    delete=_delete,
    check=_check,
    gc=_gc,
    status=_status,
    about=about(NAME),
    keeps=Subject(name=flannelstate.SUBJECT, undo=flannelstate.undo),
)
