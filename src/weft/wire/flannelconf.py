"""The flannel plugin's configuration, and the delegate's that it makes of subnet.env (flannel.md §10.2, §10.4)."""

import json
from dataclasses import dataclass
from typing import Any, Final

from weft.wire import cnijson
from weft.wire.cni import failure
from weft.wire.cnijson import Object
from weft.wire.cniresult import read_route, write_route
from weft.wire.subnetenv import PluginEnv

SUBNET_FILE: Final = "/run/flannel/subnet.env"
DATA_DIR: Final = "/var/lib/cni/flannel"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlannelConf:
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
    delegate = cnijson.member(config, "delegate")
    if not isinstance(delegate.get("type", ""), str):
        raise failure("'delegate' must have a string as 'type', if it has one")
    for key in ("name", "ipam"):
        if cnijson.value_of(delegate, key) is not None:
            raise failure(f"'delegate' must not have '{key}': flannel sets it")
    return FlannelConf(
        name=cnijson.text(config, "name"),
        version=cnijson.text(config, "cniVersion"),
        subnet_file=cnijson.text(config, "subnetFile") or SUBNET_FILE,
        data_dir=cnijson.text(config, "dataDir") or DATA_DIR,
        delegate=delegate,
        ipam=cnijson.member(config, "ipam"),
        runtime=cnijson.value_of(config, "runtimeConfig"),
    )


def delegate_config(conf: FlannelConf, env: PluginEnv) -> Object:
    """Return the delegate's configuration: what the operator wrote, completed (§10.4)."""
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
    routes = [write_route(route) for route in cnijson.items(conf.ipam, "routes", read_route)]
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
