"""The flannel plugin's configuration, and the delegate's that it makes of subnet.env (flannel.md §10.2, §10.4)."""

import json
from typing import Any, Final

from weft.model.value import Value
from weft.wire import cnijson, confkey
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cniresult import read_route, write_route
from weft.wire.subnetenv import PluginEnv

SUBNET_FILE: Final = "/run/flannel/subnet.env"
DATA_DIR: Final = "/var/lib/cni/flannel"

_SUBNET_FILE: Final = confkey.text("subnetFile", "The daemon's file with the node's subnet.", default=SUBNET_FILE)
_DATA_DIR: Final = confkey.text(
    "dataDir", "Where a file for each container says what its delegate was told.", default=DATA_DIR
)
_DELEGATE: Final = confkey.member(
    "delegate",
    "The plugin that does the work, `bridge` if it has no `type`, with any keys of its own. `name` and `ipam` are set "
    "here; `mtu`, `ipMasq` and, for bridge, `isGateway` too unless given.",
)
_IPAM: Final = confkey.member("ipam", "Goes to the delegate, with the subnet's ranges and the network's routes.")
_ROUTES: Final = confkey.items(
    "routes", "More routes for the container.", read_route, place="`ipam`", kind="list of routes"
)
KEYS: Final = (_SUBNET_FILE, _DATA_DIR, _DELEGATE, _IPAM, _ROUTES)

_SET_BY_FLANNEL: Final = ("name", "ipam")


class FlannelConf(Value):
    """What the plugin is asked. `runtime` is None when the runtime sent none."""

    name: str
    version: str
    subnet_file: str
    data_dir: str
    delegate: Object
    ipam: Object
    runtime: Any


def parse(config: Object) -> FlannelConf:
    """Read a request. What flannel itself sets must not be in it. Raises `CniError` or `JsonError`."""
    delegate = _DELEGATE(config)
    if not isinstance(delegate.get("type", ""), str):
        raise failure("'delegate' must have a string as 'type', if it has one")
    for key in _SET_BY_FLANNEL:
        if cnijson.value_of(delegate, key) is not None:
            raise failure(f"'delegate' must not have '{key}': flannel sets it")
    return FlannelConf(
        name=cnijson.text(config, "name"),
        version=cnijson.text(config, "cniVersion"),
        subnet_file=_SUBNET_FILE(config),
        data_dir=_DATA_DIR(config),
        delegate=delegate,
        ipam=_IPAM(config),
        runtime=cnijson.value_of(config, "runtimeConfig"),
    )


def delegate_config(conf: FlannelConf, env: PluginEnv) -> Object:
    """Return the delegate's configuration: what the operator wrote, completed (flannel.md §10.4)."""
    made: Object = {**conf.delegate, "name": conf.name}
    made.setdefault("type", "bridge")
    made.setdefault("ipMasq", not env.ip_masq)
    made.setdefault("mtu", env.mtu)
    if made["type"] == "bridge":
        made.setdefault("isGateway", True)
    if conf.version:
        made["cniVersion"] = conf.version
    if conf.runtime is not None:
        made["runtimeConfig"] = conf.runtime
    routes = [write_route(route) for route in _ROUTES(conf.ipam)]
    made["ipam"] = {
        "type": "host-local",
        **conf.ipam,
        "ranges": [[{"subnet": str(subnet)}] for subnet in env.subnets],
        "routes": [*routes, *({"dst": str(network)} for network in env.networks)],
    }
    return made


def render(config: Object) -> bytes:
    """Return a configuration as the state file holds it: compact, keys sorted."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
