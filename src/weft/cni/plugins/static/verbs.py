"""static: an IPAM plugin that gives a container the addresses of its configuration, and keeps no state."""

from typing import Final

from weft.cni.plugins.static import conf as staticconf
from weft.cni.sdk.startup import Call, Plugin, about
from weft.model.attachment import IpConfig, Result
from weft.wire import cniresult
from weft.wire.cni import failure

NAME: Final = "static"


def _read(call: Call) -> None:
    """Refuse what no plugin of ours can set up. Called by others, we tell it as upstream does."""
    conf = staticconf.parse(call.config, call.version, call.args)
    cniresult.check_families(conf.addresses, conf.routes)


def _add(call: Call) -> bytes:
    conf = staticconf.parse(call.config, call.version, call.args)
    return cniresult.render(Result(ips=conf.addresses, routes=conf.routes, dns=conf.dns), call.version)


def _delete(_: Call) -> None:
    """Nothing was made: whatever the configuration says, there is nothing to undo."""


def _check(call: Call) -> None:
    conf = staticconf.parse(call.config, call.version, call.args)
    previous = call.previous()
    for wanted in conf.addresses:
        there = [ip for ip in previous.ips if ip.address.ip == wanted.address.ip]
        if not any(wanted.gateway in (None, ip.gateway) for ip in there):
            raise failure(
                f"static: Failed to match addr {wanted.address.ip} on interface {call.ifname}",
                f"expected {_show(wanted)}, there is {', '.join(map(_show, there)) or 'no such address'}",
            )


def _show(ip: IpConfig) -> str:
    return f"{ip.address.ip} with gateway {ip.gateway}" if ip.gateway else f"{ip.address.ip}"


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, check=_check, about=about(NAME), read=_read)
