"""The flannel plugin's configuration, and the delegate's that it makes of subnet.env (flannel.md §10.2, §10.4)."""

import json
from typing import Annotated, Any, Final

from weft.model.attachment import RouteConfig
from weft.model.keyed import Key
from weft.model.value import Value, field
from weft.wire import cnijson, cniresult
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cnivalue import decode, encode
from weft.wire.subnetenv import PluginEnv

SUBNET_FILE: Final = "/run/flannel/subnet.env"
DATA_DIR: Final = "/var/lib/cni/flannel"

_SET_BY_FLANNEL: Final = ("name", "ipam")


class DeleteConf(Value):
    data_dir: Annotated[
        str, Key("dataDir", "Where a file for each container keeps the configuration of its delegate.")
    ] = DATA_DIR


class FlannelConf(DeleteConf):
    """`runtime` is None when the runtime sent none."""

    name: Annotated[str, Key("name")] = ""
    version: Annotated[str, Key("cniVersion")] = ""
    subnet_file: Annotated[str, Key("subnetFile", "The daemon's file with the node's subnet.")] = SUBNET_FILE
    delegate: Annotated[
        Object,
        Key(
            "delegate",
            "The plugin that does the work, `bridge` if it has no `type`, with any keys of its own. `name` and `ipam` "
            "are set here; `mtu`, `ipMasq` and, for bridge, `isGateway` too unless given.",
        ),
    ] = field(default_factory=dict)
    ipam: Annotated[Object, Key("ipam", "Goes to the delegate, with the subnet's ranges and the network's routes.")] = (
        field(default_factory=dict)
    )
    runtime: Annotated[Any, Key("runtimeConfig")] = None


class Ipam(Value):
    """What is read of `ipam` only when the delegate is called: to detach, it need not be right."""

    routes: Annotated[tuple[RouteConfig, ...], Key("routes", "More routes for the container.")] = ()


def parse(config: Object) -> FlannelConf:
    """What flannel itself sets must not be in it. Raises `CniError` or `JsonError`."""
    conf = decode(FlannelConf, config)
    if not isinstance(conf.delegate.get("type", ""), str):
        raise failure("'delegate' must have a string as 'type', if it has one")
    for key in _SET_BY_FLANNEL:
        if cnijson.value_of(conf.delegate, key) is not None:
            raise failure(f"'delegate' must not have '{key}': flannel sets it")
    return conf


def parse_for_delete(config: Object) -> DeleteConf:
    return decode(DeleteConf, config)


def delegate_config(conf: FlannelConf, env: PluginEnv) -> Object:
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
    own = decode(Ipam, conf.ipam).routes
    cniresult.check_usable(routes=own)
    routes = [encode(route) for route in own]
    made["ipam"] = {
        "type": "host-local",
        **conf.ipam,
        "ranges": [[{"subnet": str(subnet)}] for subnet in env.subnets],
        "routes": [*routes, *({"dst": str(network)} for network in env.networks)],
    }
    return made


def render(config: Object) -> bytes:
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
