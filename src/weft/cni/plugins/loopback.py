"""loopback: `lo` of the container up, and its addresses reported (cni.md §6.1). CNI_IFNAME does not matter."""

from typing import Final

from weft.cni.attachment import interface, veth
from weft.cni.host.host import Container
from weft.cni.sdk.startup import Call, Plugin, about
from weft.model.attachment import Interface, IpConfig, Result
from weft.model.kernel.reported import LinkInfo
from weft.model.net import FAMILIES
from weft.wire import cniresult
from weft.wire.cni import failure

NAME: Final = "loopback"

_LO: Final = "lo"


def _add(call: Call) -> bytes:
    container = call.container()
    previous = cniresult.read_previous(call.config, call.version)
    lo = _lo(container)
    container.rtnl.set_link(lo.index, up=True)
    addresses = interface.addresses_on(container.rtnl, lo.index)
    for address in addresses:
        if not address.ip.is_loopback:
            raise failure(f'loopback interface found with non-loopback address "{address}"')
    if previous is None:
        first = [next((one for one in addresses if one.version == family), None) for family in FAMILIES]
        previous = Result(
            interfaces=(Interface(name=_LO, mac="00:00:00:00:00:00", sandbox=call.netns),),
            ips=tuple(IpConfig(address=address, interface=0) for address in first if address is not None),
        )
    return cniresult.render(previous, call.version)


def _check(call: Call) -> None:
    if not _lo(call.container()).up:
        raise failure("loopback interface is down", "CHECK-001: somebody has set lo down in the container")


def _delete(call: Call) -> None:
    container = call.container_if_any()
    if container is not None and not veth.is_anothers_namespace(call, container):
        container.rtnl.set_link(_lo(container).index, up=False)


def _lo(container: Container) -> LinkInfo:
    lo = container.rtnl.link(_LO)
    if lo is None:
        raise failure('failed to lookup "lo": link not found')
    return lo


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, check=_check, about=about(NAME))
