"""What a runtime does with a network: which plugin, in which order, with which input (cni.md §1.10, §2.6).

Each function is a generator: it yields a `Step`, is sent how the program ended, or thrown the `CniError` for why it
could not run, and returns the outcome. `cni.runtime.library` runs the steps on this machine, the lab in its nodes.
"""

import json
from collections.abc import Generator, Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar

from weft.model.attachment import Result
from weft.model.keyed import Key
from weft.model.value import Value, field
from weft.wire import cni, cnijson, cnilist, cniresult
from weft.wire.cni import CniError, Ran, failure
from weft.wire.cnijson import JsonError, Object
from weft.wire.cnilist import NetworkList, PluginConf

T = TypeVar("T")

_DUMMY: Final = {"CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"}
_NOBODY: Final = {"CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_IFNAME": "", "CNI_ARGS": ""}


class RuntimeConf(Value):
    """A runtime's data of one attachment, with the keys of libcni's cache.

    `capability_args` go to the plugins that have declared them.
    """

    container_id: Annotated[str, Key("containerId")]
    netns: Annotated[str, Key("netns")] = ""
    ifname: Annotated[str, Key("ifName")]
    args: Annotated[tuple[tuple[str, str], ...], Key("cniArgs")] = ()
    capability_args: Annotated[Object, Key("capabilityArgs")] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """Without CNI_COMMAND and CNI_PATH (cni.md §1.2)."""
        return {
            "CNI_CONTAINERID": self.container_id,
            "CNI_NETNS": self.netns,
            "CNI_IFNAME": self.ifname,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in self.args),
        }


class Step(Value):
    """A program to run: the plugin's type, the CNI variables (often without CNI_PATH), its input."""

    plugin: str
    variables: Mapping[str, str]
    stdin: bytes


class Outcome(Value):
    """`obj` is as the plugin printed it."""

    obj: Object
    version: str
    result: Result


Chain = Generator[Step, Ran, T]


def add(network: NetworkList, conf: RuntimeConf) -> Chain[Outcome]:
    """Each plugin gets the result of the one before it. Stops at the first that fails."""
    outcome: Outcome | None = None
    for plugin in network.plugins:
        try:
            _check_names(network, conf)
            previous = None if outcome is None else outcome.obj
            ran = yield _step(network, plugin, "ADD", conf, previous)
            raise_for(ran)
            outcome = read_outcome(ran.stdout, network.version)
        except CniError as error:
            raise _within(error, f"plugin {plugin} failed (add): ") from error
    return outcome or Outcome(obj={}, version=network.version, result=Result())


def delete(network: NetworkList, conf: RuntimeConf, previous: Object | None) -> Chain[None]:
    """The plugins in reverse, each with the result of the whole ADD. Stops at the first that fails."""
    for plugin in reversed(network.plugins):
        try:
            raise_for((yield _step(network, plugin, "DEL", conf, previous)))
        except CniError as error:
            raise _within(error, f"plugin {plugin} failed (delete): ") from error


def check(network: NetworkList, conf: RuntimeConf, previous: Object | None) -> Chain[None]:
    """Raises the first error as it is."""
    for plugin in network.plugins:
        raise_for((yield _step(network, plugin, "CHECK", conf, previous)))


def collect_garbage(network: NetworkList, valid: Iterable[tuple[str, str]] | None) -> Chain[list[CniError]]:
    """Have plugins free what belongs to no valid attachment (container id, interface); returns failures.

    An empty list means that none is valid; None leaves the list out, as libcni does.
    """
    more: dict[str, Any] = {}
    if valid is not None:
        listed = [{"containerID": container, "ifname": ifname} for container, ifname in valid]
        more = {"cni.dev/valid-attachments": listed, "cni.dev/attachments": listed}
    failed = []
    for plugin in network.plugins:
        stdin = cnilist.request(network, plugin, more=more)
        try:
            raise_for((yield Step(plugin=plugin.type, variables={"CNI_COMMAND": "GC", **_NOBODY}, stdin=stdin)))
        except CniError as error:
            failed.append(_within(error, f"failed to GC plugin {plugin.type}: "))
    return failed


def status(network: NetworkList) -> Chain[None]:
    """Ask every plugin whether it could serve an ADD. Raises the first error as it is."""
    for plugin in network.plugins:
        stdin = cnilist.request(network, plugin)
        raise_for((yield Step(plugin=plugin.type, variables={"CNI_COMMAND": "STATUS", **_NOBODY}, stdin=stdin)))


def versions(plugin: str) -> Chain[tuple[str, ...]]:
    """The versions that a plugin supports (cni.md §2.5)."""
    variables = {**_NOBODY, **_DUMMY, "CNI_COMMAND": "VERSION"}
    ran = yield Step(plugin=plugin, variables=variables, stdin=json.dumps({"cniVersion": cni.NEWEST}).encode())
    try:
        raise_for(ran)
    except CniError as error:
        # A plugin from before the command existed.
        if error.msg == "unknown CNI_COMMAND: VERSION":
            return cni.VERSIONS[:1]
        raise
    return read_versions(ran.stdout)


def validate(network: NetworkList) -> Chain[frozenset[str]]:
    """Require every plugin in the network's version; returns the declared capabilities. Raises all errors together."""
    wrong = []
    for plugin in network.plugins:
        try:
            if (network.version or cni.VERSIONS[0]) not in (yield from versions(plugin.type)):
                wrong.append(f'plugin {plugin.type} does not support config version "{network.version}"')
        except CniError as error:
            wrong.append(str(error))
    if wrong:
        raise failure(f"[{' '.join(wrong)}]")
    return frozenset[str]().union(*(plugin.capabilities for plugin in network.plugins))


def previous_of(network: NetworkList, cached: Object) -> Object:
    """A cached result of any version as `prevResult` of the network's version."""
    try:
        own = cnijson.text(cached, "cniVersion") or network.version
    except JsonError as error:
        raise failure(str(error)) from error
    if own == network.version:
        return {**cached, "cniVersion": own}
    try:
        result = cniresult.read(cached, own)
        return cniresult.to_json(result, network.version)
    except CniError as error:
        prefix = f'failed to convert cached result to config version "{network.version}": '
        raise _within(error, prefix) from error


def raise_for(ran: Ran) -> None:
    """Raise a failed plugin's error (cni.md §2.5); one without a code has 999."""
    if ran.exit == 0:
        return
    out, err = ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace").strip()
    ending = ran.ending or f"exit status {ran.exit}"
    if not out and not err:
        raise failure(f"netplugin failed with no error message: {ending}")
    if not out:
        raise failure(f'netplugin failed: "{err}": {ending}')
    try:
        said = cnijson.load(ran.stdout)
        code, msg = cnijson.integer(said, "code"), cnijson.text(said, "msg")
        error = CniError(code or cni.INTERNAL, msg, cnijson.text(said, "details"))
    except JsonError as bad:
        raise failure(f'netplugin failed but error parsing its diagnostic message "{out}": {bad}') from bad
    if not code and not msg:
        raise failure(f'netplugin failed but its diagnostic message has neither code nor message: "{out}"')
    raise error


def read_outcome(data: bytes, version: str) -> Outcome:
    """Read the answer to ADD; one without a version has the request's (cni.md §2.5)."""
    try:
        obj = cnijson.load(data)
        own = cnijson.text(obj, "cniVersion") or version
    except JsonError as error:
        raise failure(f"failed to unmarshal raw result: {error}") from error
    obj = {**obj, "cniVersion": own}
    return Outcome(obj=obj, version=own, result=cniresult.read(obj, own))


def read_versions(data: bytes) -> tuple[str, ...]:
    """Read the answer to VERSION (cni.md §1.7)."""
    prefix = "decoding version info: "
    try:
        obj = cnijson.load(data)
        version = cnijson.text(obj, "cniVersion")
        supported = cnijson.items(obj, "supportedVersions", cnijson.as_text)
    except JsonError as error:
        raise failure(f"{prefix}{error}") from error
    if not version:
        raise failure(f"{prefix}missing field cniVersion")
    if supported:
        return supported
    if version == "0.2.0":
        return cni.VERSIONS[:2]
    raise failure(f"{prefix}missing field supportedVersions")


def _step(network: NetworkList, plugin: PluginConf, command: str, conf: RuntimeConf, previous: Object | None) -> Step:
    stdin = cnilist.request(network, plugin, previous=previous, capability_args=conf.capability_args)
    return Step(plugin=plugin.type, variables={"CNI_COMMAND": command, **conf.variables()}, stdin=stdin)


def _check_names(network: NetworkList, conf: RuntimeConf) -> None:
    """Refuse names in the words of libcni (cni.md §1.5)."""
    if not conf.container_id:
        raise CniError(cni.UNKNOWN_CONTAINER, "missing containerID")
    cni.check_container_id(conf.container_id)
    if not network.name:
        raise CniError(cni.BAD_CONFIG, "missing network name:")
    cni.check_network_name(network.name)
    cni.check_ifname(conf.ifname)


def _within(error: CniError, prefix: str) -> CniError:
    """Put words before a message. Unlike in a plugin, any error keeps its code."""
    return CniError(error.code, f"{prefix}{error.msg}", error.details)
