"""Network configurations as a runtime reads them, and its requests to plugins (cni.md §2.3, §1.10).

Keys of the list match exactly, keys of a plugin in any letter case, as in libcni.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from weft.model.value import Value, replace
from weft.wire import cni, cnijson
from weft.wire.cni import CniError
from weft.wire.cnijson import JsonError, Object

_KINDS: Final = {dict: "object", list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
_TRUTH: Final = {"true": True, "false": False}


class PluginConf(Value):
    """One plugin of a network. `capabilities` are those it declares as true."""

    type: str
    name: str
    capabilities: frozenset[str]
    obj: Object

    def __str__(self) -> str:
        name = f' name="{self.name}"' if self.name else ""
        return f'type="{self.type}"{name}'

    @property
    def named(self) -> tuple[str, ...]:
        """The plugin, its delegate and its IPAM plugin. Raises `JsonError`."""
        named = (cnijson.text(cnijson.member(self.obj, key), "type") for key in ("delegate", "ipam"))
        return self.type, *filter(None, named)


class NetworkList(Value):
    """A network: its plugins in order. `version` may be empty or unknown."""

    name: str
    version: str
    plugins: tuple[PluginConf, ...]
    disable_check: bool = False
    disable_gc: bool = False
    only_inlined: bool = False
    raw: bytes

    def at_least(self, version: str) -> bool:
        try:
            return cni.at_least(self.version, version)
        except ValueError as error:
            raise _bad(str(error)) from error


def parse_list(data: bytes) -> NetworkList:
    """Checks come in the order of cni.md §2.3, with its texts; `CniError` 7."""
    prefix = "error parsing configuration list: "
    try:
        obj = cnijson.load(data)
    except JsonError as error:
        raise _bad(f"{prefix}{error}") from error
    try:
        name = _name(obj)
        version = _version(obj)
        flags = [_flag(obj, key) for key in ("disableCheck", "disableGC", "loadOnlyInlinedPlugins")]
        items = _plugins(obj, only_inlined=flags[2])
    except JsonError as error:
        raise _bad(f"{prefix}{error}") from error
    plugins = []
    for index, item in enumerate(items):
        try:
            plugins.append(_plugin(item))
        except CniError as error:
            raise _bad(f"{prefix}failed to parse plugin config {index}: {error}") from error
    return NetworkList(
        name=name,
        version=version,
        plugins=tuple(plugins),
        disable_check=flags[0],
        disable_gc=flags[1],
        only_inlined=flags[2],
        raw=data,
    )


def parse_plugin(data: bytes) -> PluginConf:
    try:
        return _plugin(cnijson.load(data))
    except JsonError as error:
        raise _bad(f"error parsing configuration: {error}") from error


def from_single(data: bytes) -> NetworkList:
    """Make a list of a file with a single plugin, which is older than lists."""
    plugin = parse_plugin(data)
    try:
        name, version = plugin.name, cnijson.text(plugin.obj, "cniVersion")
    except JsonError as error:
        raise _bad(f"error parsing configuration: {error}") from error
    raw = json.dumps({"name": name, "cniVersion": version, "plugins": [plugin.obj]}).encode()
    return NetworkList(name=name, version=version, plugins=(plugin,), raw=raw)


def extended(network: NetworkList, dropped_in: Iterable[PluginConf]) -> NetworkList:
    """Append the plugins of drop-in files. At least one plugin must be there in the end."""
    plugins = (*network.plugins, *dropped_in)
    if not plugins:
        raise _bad("no plugin configs found")
    return replace(network, plugins=plugins)


def request(
    network: NetworkList,
    plugin: PluginConf,
    *,
    previous: Object | None = None,
    capability_args: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """A plugin's input (cni.md §1.10), without capability arguments that it has not declared."""
    injected: dict[str, Any] = {"name": network.name, "cniVersion": network.version}
    wanted = {key: value for key, value in (capability_args or {}).items() if key in plugin.capabilities}
    if wanted:
        injected["runtimeConfig"] = wanted
    if previous is not None:
        injected["prevResult"] = previous
    return json.dumps(inject(plugin.obj, {**injected, **(more or {})})).encode()


def inject(obj: Object, values: Mapping[str, Any]) -> Object:
    for key, value in values.items():
        if not key:
            raise ValueError("keys cannot be empty")
        if value is None:
            raise ValueError(f"key '{key}' value must not be nil")
    return {**obj, **values}


def _bad(message: str) -> CniError:
    return CniError(cni.BAD_CONFIG, message)


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "null")


def _name(obj: Object) -> str:
    if "name" not in obj:
        raise JsonError("no name")
    name = obj["name"]
    if not isinstance(name, str):
        raise JsonError(f"invalid name type {_kind(name)}")
    return name


def _version(obj: Object) -> str:
    """The highest one offered that we know, else `cniVersion`."""
    version = obj.get("cniVersion", "")
    if not isinstance(version, str):
        raise JsonError(f"invalid cniVersion type {_kind(version)}")
    if "cniVersions" not in obj:
        return version
    listed = obj["cniVersions"]
    if not isinstance(listed, list):
        raise JsonError(f"invalid type for cniVersions: {_kind(listed)}")
    for index, entry in enumerate(listed):
        if not isinstance(entry, str):
            raise JsonError(f"invalid type for cniVersions index {index}: {_kind(entry)}")
        _check_version(entry, f"invalid cniVersions entry {entry} at index {index}")
    _check_version(version, f"invalid cniVersion {version}")
    offered = [*listed, version] if version else listed
    known = [each for each in offered if cni.at_least(cni.NEWEST, each)]
    return max(known, key=cni.parse_version, default=version)


def _check_version(text: str, prefix: str) -> None:
    try:
        cni.parse_version(text)
    except ValueError as error:
        raise JsonError(f"{prefix}: {error}") from error


def _flag(obj: Object, key: str) -> bool:
    """A boolean, or the word for one."""
    value = obj.get(key, False)
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise JsonError(f"invalid type {_kind(value)} for {key}")
    word = value.lower()
    if word not in _TRUTH:
        raise JsonError(f'invalid value "{word}" for {key}')
    return _TRUTH[word]


def _plugins(obj: Object, *, only_inlined: bool) -> list[Any]:
    if "plugins" not in obj:
        if only_inlined:
            raise JsonError("`loadOnlyInlinedPlugins` is true, and no 'plugins' key")
        return []
    plugins = obj["plugins"]
    if not isinstance(plugins, list):
        raise JsonError(f"invalid 'plugins' type {_kind(plugins)}")
    if not plugins:
        raise JsonError("no plugins in list")
    return plugins


def _plugin(value: Any) -> PluginConf:
    try:
        obj = cnijson.as_object(value, "a plugin")
        type_ = cnijson.text(obj, "type")
        if not type_:
            raise JsonError("missing 'type'")
        declared = cnijson.member(obj, "capabilities")
        capabilities = frozenset(key for key in declared if cnijson.flag(declared, key))
        return PluginConf(type=type_, name=cnijson.text(obj, "name"), capabilities=capabilities, obj=obj)
    except JsonError as error:
        raise _bad(f"error parsing configuration: {error}") from error
