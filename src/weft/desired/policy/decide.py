"""Deciding: from policies, pods and attachments to the objects of a node's tables, and what a change touches.

The daemon's rounds and `weft plan` ask the same `PolicyDecider`. It looks at nothing and does nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from weft.desired.policy.chains import Chains, Class
from weft.desired.policy.connections import Connections
from weft.desired.policy.frame import frame, refusal, senders
from weft.desired.policy.inputs import Attached, PolicySettings
from weft.desired.policy.names import MAP, comment, subject_of
from weft.desired.policy.selections import Selections
from weft.desired.policy.text import Rendered, admin, rendered, restricted, unrestricted
from weft.desired.policy.verdict import World
from weft.model.kernel.nftset import field
from weft.model.kernel.objects import Key, Object, Objects, Ownership
from weft.model.kernel.policytable import INET, PolicyElement
from weft.model.net import Ip
from weft.model.policy import DIRECTIONS, ClusterPolicy, Direction, Id, Namespace, Pod, PodPeer, Policy, Thing, Tier
from weft.model.value import Value, replace

_NOTHING_ELSE: Final = Ownership(devices=frozenset(), networks=())


class _Placed(Value):
    objects: tuple[Object, ...]
    classes: tuple[Class, ...]


class PolicyDecider:
    """What a node wants of its tables of policies.

    Policies in effect here, those that select a pod that is attached here, have chains, and sets of their peers.
    An attached pod that is not known, or known by another UID, has no elements: what comes from it or goes to it is
    refused. A pod that is to run here has its chains before it is attached: nft takes longer than what elements take.
    Methods that change something return the keys of what was wanted before or is now.
    """

    ownership = _NOTHING_ELSE

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings
        self._chains = Chains(settings.families)
        self._needed = self._chains.needed
        self._peers = self._chains.peers
        self._selecting = Selections()  # of those that are attached here, by policies
        self._told: dict[Id, Pod] = {}
        self._policies: dict[Id, Policy | ClusterPolicy] = {}
        self._subjects: dict[PodPeer, dict[Id, Policy | ClusterPolicy]] = {}
        self._rendered: dict[tuple[Id, Direction], Rendered] = {}
        self._attached: dict[str, Attached] = {}
        self._here: dict[Id, set[str]] = {}  # attachments, by pod
        self._placed: dict[str, _Placed] = {}
        self._dirty: set[str] = set()
        for thing in frame(settings):
            self._needed.need(thing)

    @property
    def wanted(self) -> Objects:
        """The same mapping for ever."""
        return self._needed.objects

    def change(self, put: Iterable[Thing] = (), gone: Iterable[Id] = ()) -> set[Key]:
        for kind, namespace, name in gone:
            if kind in ("policy", "clusterpolicy"):
                self._set_policy((kind, namespace, name), None)
            elif kind == "pod":
                self._expect((kind, namespace, name), None)
                self._told.pop((kind, namespace, name), None)
                self._refresh((kind, namespace, name))
            else:
                self._set_namespace(name, None)
        for thing in put:
            if isinstance(thing, Policy | ClusterPolicy):
                self._set_policy(thing.id, thing)
            elif isinstance(thing, Pod):
                if self._told.get(thing.id) != thing:
                    self._told[thing.id] = thing
                    self._refresh(thing.id)
                    self._expect(thing.id, thing)
            else:
                self._set_namespace(thing.name, thing)
        return self._settled()

    def attached(self, key: str, attached: Attached) -> set[Key]:
        """`key` names the attachment."""
        self._attach(key, attached)
        return self._settled()

    def detached(self, key: str) -> set[Key]:
        self._detach(key)
        return self._settled()

    def ready(self, key: str) -> bool:
        """Tell whether the elements are wanted by which packets of the attachment are judged."""
        attached = self._attached.get(key)
        return attached is not None and (not attached.pod or self._known(attached) is not None)

    @property
    def elements(self) -> int:
        return self._needed.elements

    def isolated(self, direction: Direction) -> int:
        """How many attachments policies are asked about."""
        name = f"{MAP[direction]}-"
        placed = (put for key, put in self._placed.items() if self._attached[key].ips)  # no pods that are to come
        return sum(any(each.chain.chain.name.startswith(name) for each in put.classes) for put in placed)

    @property
    def denies(self) -> bool:
        """Tell whether a rule may refuse what is in a set: those of NetworkPolicies only allow."""
        return any(isinstance(each, ClusterPolicy) for each in self._policies.values())

    def connections(self, own: Callable[[], Collection[Ip]]) -> Connections:
        """A judge of what is open, by what is known now."""
        policies = self._policies.values()
        world = World(
            namespaces=dict(self._peers.namespaces),
            pods=tuple(self._peers.pods),
            policies=tuple(each for each in policies if isinstance(each, Policy)),
            cluster=tuple(each for each in policies if isinstance(each, ClusterPolicy)),
            networks=self._settings.networks,
            subnet_lens=self._settings.subnet_lens,
        )
        return Connections(world, tuple(self._attached.values()), self._settings, own)

    def policies_of(self, pod: Id, direction: Direction) -> tuple[Policy, ...]:
        """Those that restrict it in this direction."""
        restricting = (
            each for each in self._asked(pod) if isinstance(each, Policy) and each.rules(direction) is not None
        )
        return tuple(sorted(restricting, key=lambda each: each.name))

    def cluster_policies_of(self, pod: Id, direction: Direction, tier: Tier) -> tuple[ClusterPolicy, ...]:
        """Those with rules for this direction, in the order in which they are asked."""
        asked = (
            each
            for each in self._asked(pod)
            if isinstance(each, ClusterPolicy) and each.tier == tier and each.rules(direction)
        )
        return tuple(sorted(asked, key=lambda each: each.order))

    def _asked(self, pod: Id) -> Iterator[Policy | ClusterPolicy]:
        return (each for peer in self._selecting.of(pod) for each in self._subjects.get(peer, {}).values())

    def _settled(self) -> set[Key]:
        dirty, self._dirty = self._dirty, set()
        for key in dirty:
            self._place(key)
        return self._needed.touched()

    # What is known

    def _set_namespace(self, name: str, namespace: Namespace | None) -> None:
        if self._peers.namespaces.get(name) == namespace:
            return
        known_before = name in self._peers.namespaces
        self._chains.set_namespace(name, namespace)
        for _, pod, _ in self._selecting.set_namespace(name, namespace):
            self._dirty.update(self._here[pod.id])
        if known_before != (namespace is not None):
            self._dirty.update(key for (_, each, _), keys in self._here.items() if each == name for key in keys)

    def _set_policy(self, name: Id, policy: Policy | ClusterPolicy | None) -> None:
        before = self._policies.pop(name, None)
        if before is not None:
            subject = subject_of(before)
            self._mark_members(subject)
            del self._subjects[subject][name]
            if not self._subjects[subject]:
                del self._subjects[subject]
                self._selecting.leave(subject)
            for direction in DIRECTIONS:
                self._rendered.pop((name, direction), None)
        if policy is not None:
            subject = subject_of(policy)
            self._policies[name] = policy
            if subject not in self._subjects:
                self._selecting.use(subject)
            self._subjects.setdefault(subject, {})[name] = policy
            self._mark_members(subject)

    def _mark_members(self, subject: PodPeer) -> None:
        self._dirty.update(
            key for pod, keys in self._here.items() if subject in self._selecting.of(pod) for key in keys
        )

    def _refresh(self, pod: Id) -> None:
        """Take a pod as it is now: its addresses are those of its attachments here, before the API has them."""
        keys, told = self._here.get(pod, ()), self._told.get(pod)
        before = self._peers.pod(pod)
        now = told if told is not None and told.counts else None
        if now is not None:
            here = [each for each in map(self._attached.__getitem__, sorted(keys)) if each.is_of(now)]
            ips = tuple(dict.fromkeys(ip for each in here for ip in each.ips))
            now = replace(now, ips=ips) if ips else now
        self._dirty.update(keys)
        if keys or self._selecting.pod(pod) is not None:
            self._selecting.set_pod(pod, now if keys else None)
        if now != before:
            self._chains.set_pod(pod, now)

    # What is attached

    def _expect(self, name: Id, pod: Pod | None) -> None:
        """As if it were attached, without an address or a link."""
        key = f"expected {name[1]}/{name[2]}"
        if pod is not None and pod.counts and pod.node and pod.node == self._settings.node:
            self._attach(key, Attached(pod=str(pod), ips=()))
        else:
            self._detach(key)

    def _attach(self, key: str, attached: Attached) -> None:
        if self._attached.get(key) != attached:
            self._detach(key)
            self._attached[key] = attached
            self._here.setdefault(pod_of(attached), set()).add(key)
            self._refresh(pod_of(attached))
            self._dirty.add(key)

    def _detach(self, key: str) -> None:
        attached = self._attached.pop(key, None)
        if attached is not None:
            pod = pod_of(attached)
            self._here[pod].discard(key)
            if not self._here[pod]:
                del self._here[pod]
            self._refresh(pod)
            self._dirty.add(key)

    def _known(self, attached: Attached) -> Pod | None:
        pod = self._peers.pod(pod_of(attached))
        known = pod is not None and pod.namespace in self._peers.namespaces and attached.is_of(pod)
        return pod if known else None

    def _place(self, key: str) -> None:
        former, attached = self._placed.pop(key, None), self._attached.get(key)
        if attached is not None:
            self._placed[key] = placed = self._placing(attached)
            for thing in placed.objects:
                self._needed.need(thing)
            for each in placed.classes:
                self._chains.hold(each)
        if former is not None:
            for thing in former.objects:
                self._needed.unneed(thing)
            for each in former.classes:
                self._chains.release(each)

    def _placing(self, attached: Attached) -> _Placed:
        objects, classes = [*senders(attached, self._settings.mode)], list[Class]()
        pod = self._known(attached)
        if attached.pod and pod is None:
            return _Placed(objects=tuple(objects), classes=())
        for ip in attached.ips:
            twice = field(ip.packed) * 2  # nobody can keep a pod from itself
            objects.append(PolicyElement(table=INET, set=f"self{ip.version}", element=twice))
        said = comment(attached.uid, attached.pod)
        for direction in DIRECTIONS:
            verdict, found = "accept", None if pod is None else self._class(pod.id, direction)
            if found is not None:
                classes.append(found)
                verdict = found.chain.chain.name
            for ip in attached.ips:
                name = f"{MAP[direction]}{ip.version}"
                objects.append(PolicyElement(table=INET, set=name, element=ip.packed, verdict=verdict, comment=said))
        return _Placed(objects=tuple(objects), classes=tuple(classes))

    def _class(self, pod: Id, direction: Direction) -> Class | None:
        """None where no policy is asked."""
        policies = self.policies_of(pod, direction)
        first, last = (self.cluster_policies_of(pod, direction, tier) for tier in ("Admin", "Baseline"))
        if not (policies or first or last):
            return None
        refused = refusal(direction, self._settings.mode).name
        tier = admin(first, direction, self._settings, refused) if first else None
        parts = tuple(self._render(each, direction) for each in policies)
        if policies:
            chain = restricted(dict(zip(map(str, policies), parts, strict=True)), direction, refused, tier)
        else:
            chain = unrestricted(last, direction, self._settings, refused, tier)
        return Class(chain=chain, parts=parts if tier is None else (*parts, tier))

    def _render(self, policy: Policy, direction: Direction) -> Rendered:
        key = policy.id, direction
        if key not in self._rendered:
            self._rendered[key] = rendered(policy, direction, self._settings)
        return self._rendered[key]


def pod_of(attached: Attached) -> Id:
    """The pod that it is of."""
    namespace, _, name = attached.pod.partition("/")
    return "pod", namespace, name
