"""The chains that packets of this node's pods pass, and the sets that they look into, as long as a pod needs them."""

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator

from weft.desired.policy.names import peers_set, port_element, ports_set
from weft.desired.policy.needed import Needed, Uses
from weft.desired.policy.selections import Move, Selections
from weft.desired.policy.text import Rendered
from weft.model.kernel.objects import Object
from weft.model.kernel.policytable import INET, PolicyElement
from weft.model.net import Family
from weft.model.policy import Id, Namespace, Pod, PodPeer
from weft.model.value import Value


class Class(Value):
    """The policies that are asked in one direction, of one pod or of several; the chain jumps to `parts`."""

    chain: Rendered
    parts: tuple[Rendered, ...]


class Chains:
    """`needed` are the objects, also others that have nothing to do with chains. `peers` selects of all pods."""

    def __init__(self, families: Collection[Family]) -> None:
        self.needed = Needed()
        self.peers = Selections()
        self._families = families
        self._uses = Uses()  # of chains, peers and ports of pods

    def hold(self, each: Class) -> None:
        self._change(each, self._uses.first, self.needed.need, self.peers.use)

    def release(self, each: Class) -> None:
        self._change(each, self._uses.last, self.needed.unneed, self.peers.leave)

    def set_namespace(self, name: str, namespace: Namespace | None) -> None:
        self._move(self.peers.set_namespace(name, namespace))

    def set_pod(self, name: Id, pod: Pod | None) -> None:
        for each, step in ((self.peers.pod(name), self.needed.unneed), (pod, self.needed.need)):
            if each is not None:
                for thing in _port_elements(each, self._uses):
                    step(thing)
        self._move(self.peers.set_pod(name, pod))

    def _change(
        self,
        each: Class,
        counts: Callable[[Hashable], bool],
        step: Callable[[Object], None],
        select: Callable[[PodPeer], Iterable[Move]],
    ) -> None:
        """`counts` tells whether the use is the first, or was the last."""
        if not counts(each.chain.chain.name):
            return
        for part in (each.chain, *(part for part in each.parts if part.chain.rules and counts(part.chain.name))):
            step(part.chain)
            for peer in filter(counts, part.peers):
                for family in self._families:
                    step(peers_set(peer, family))
                self._move(select(peer))
            for port in filter(counts, part.ports):
                for family in self._families:
                    step(ports_set(port, family))
                for pod in self.peers.pods:
                    for thing in _port_elements(pod, (port,)):
                        step(thing)

    def _move(self, moves: Iterable[Move]) -> None:
        for peer, pod, joined in moves:
            for ip in pod.ips:
                element = PolicyElement(table=INET, set=peers_set(peer, ip.version).name, element=ip.packed)
                (self.needed.need if joined else self.needed.unneed)(element)


def _port_elements(pod: Pod, names: Container[Hashable]) -> Iterator[PolicyElement]:
    for each in pod.ports:
        if (port := (each.name, each.protocol)) in names:
            yield from (port_element(port, ip, each.number) for ip in pod.ips)
