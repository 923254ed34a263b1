"""What decides about the tables of policies beside policies and pods: the node, and what is attached to it."""

from typing import Final, Literal

from weft.model.net import Family, Ip, Net
from weft.model.policy import Pod
from weft.model.value import Value

Mode = Literal["enforce", "audit"]
# Of an attachment of which it is not known whose it is; no pod has this name.
UNKNOWN: Final = "?/?"


class PolicySettings(Value):
    """`networks` are all pods', `subnets` this node's; each node's subnet has `subnet_lens` bits, by family.

    `node` is this node's name, as pods have it that are to run here; empty where it is not known. `ipvs` tells whether
    the node's Services are IPVS's.
    """

    mode: Mode
    networks: tuple[Net, ...]
    subnets: tuple[Net, ...]
    subnet_lens: dict[int, int]
    node: str = ""
    ipvs: bool = False

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(sorted({net.version for net in self.networks}))


class Attached(Value):
    """A pod's attachment to this node. `pod` is `namespace/name`; empty for what is no pod of Kubernetes.

    `port` is the host's end of its links, `link` what the packet filter takes its packets to come from: the port's
    bridge, or the port itself.
    """

    pod: str
    ips: tuple[Ip, ...]
    uid: str = ""
    port: str = ""
    link: str = ""

    def is_of(self, pod: Pod) -> bool:
        """Tell whether it is of this pod, not of an earlier one with the same name."""
        return not (self.uid and pod.uid) or self.uid == pod.uid
