"""What is decided of policies while a node's settings stay the same, and whether packets are led by it."""

from collections.abc import Callable
from socket import if_nametoindex
from typing import Final, Protocol

from weft.config.netconf import NetConf
from weft.daemon.planes.contract import Plane
from weft.daemon.planes.plane import Keeper
from weft.desired.inputs import Inputs
from weft.desired.policy.decide import PolicyDecider
from weft.desired.policy.frame import senders
from weft.desired.policy.inputs import Attached, Mode, PolicySettings
from weft.desired.policy.names import MAP
from weft.model.kernel.objects import Key
from weft.model.kernel.policytable import INET, PolicyChain
from weft.model.node.nodestate import Durations

_IPVS: Final = "kube-ipvs0"


class PolicyPlane(Plane, Protocol):
    @property
    def transactions(self) -> Durations: ...

    @property
    def made(self) -> int: ...


class Term:
    """As long as the settings are the same."""

    def __init__(self, settings: PolicySettings, keep: Callable[[PolicyDecider], Keeper]) -> None:
        self.settings = settings
        self.decider = PolicyDecider(settings)
        self.keeper = keep(self.decider)
        self._base = [
            key for key, thing in self.decider.wanted.items() if isinstance(thing, PolicyChain) and thing.hook
        ]

    @property
    def holds(self) -> bool:
        """Tell whether packets are led to what is wanted, as far as the kernel is known."""
        return all(map(self.keeper.is_as_wanted, self._base))

    def judges(self, key: str, attached: Attached) -> bool:
        """Tell whether packets of the attachment are."""
        if not self.decider.ready(key) or not self.holds:
            return False
        keys: list[Key] = [thing.key for thing in senders(attached, self.settings.mode)]
        for ip in attached.ips:
            keys += [("polelement", INET, f"{way}{ip.version}", ip.packed) for way in MAP.values()]
        return all(each in self.decider.wanted and self.keeper.is_as_wanted(each) for each in keys)


def settings_of(mode: Mode, inputs: Inputs, node: str) -> PolicySettings:
    """All nodes have subnets as long as this one's: where that was given, the network configuration does not say."""
    netconf: NetConf = inputs.netconf
    subnets = tuple(net for net in (inputs.v4, inputs.v6) if net is not None)
    return PolicySettings(
        mode=mode,
        networks=netconf.networks,
        subnets=subnets,
        subnet_lens={**netconf.subnet_lens, **{net.version: net.prefixlen for net in subnets}},
        node=node,
        ipvs=_has_ipvs(),
    )


def _has_ipvs() -> bool:
    """Tell whether kube-proxy has IPVS's device, which holds the addresses of Services."""
    try:
        return bool(if_nametoindex(_IPVS))
    except OSError:
        return False
