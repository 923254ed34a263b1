"""Policies in effect on a node, over a kernel that is a dictionary: what is waited for, and what is refused."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Network, ip_address, ip_network
from typing import NoReturn

import pytest

from tests.support.builders import inputs
from tests.support.waiting import comes
from weft.cluster.policysource import Change, TakeChange
from weft.daemon import enforcement, policygate, policyterm
from weft.daemon.commands.preview import _of_policies, _problems_of_policies
from weft.daemon.enforcement import Enforcement
from weft.daemon.policygate import PolicyGate
from weft.desired.policy.inputs import UNKNOWN, Attached, Mode
from weft.model.errors import ConfigError, Failure, Problem
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.kernel.policytable import KINDS, PolicyElement
from weft.model.node.history import History
from weft.model.node.nodestate import Durations
from weft.model.policy import NAME_LABEL, Id, Namespace, Pod, Policy, Selector, Thing
from weft.model.value import replace
from weft.plan.diff import Put, Step
from weft.wire.policyobjects import Objects as World

WEB = Attached(pod="default/web", ips=(ip_address("10.5.1.2"),), port="veth1", link="cni0")
OTHER = replace(WEB, pod="default/other", ips=(ip_address("10.5.1.9"),))
SHUT = Policy(namespace="default", name="shut", pods=Selector(), ingress=())
PODS = World(
    namespaces=(Namespace(name="default", labels={NAME_LABEL: "default"}),),
    pods=(Pod(namespace="default", name="web", labels={}),),
)


class Kernel:
    kinds = KINDS
    sweep = 60.0
    announces = True
    blind = False
    counts: Mapping[str, int] = {}
    transactions = Durations()

    def __init__(self) -> None:
        self.holds: dict[Key, Object] = {}
        self.refuses = False
        self.made = 0

    async def look(self, _: Objects, only: Collection[Key] | None, /) -> dict[Key, Object]:
        await asyncio.sleep(0)  # others go on meanwhile
        return {key: thing for key, thing in self.holds.items() if only is None or key in only}

    async def apply(self, steps: Sequence[Step], /) -> list[Failure]:
        if self.refuses:
            return [Failure(step=step, errno=1, message="refused") for step in steps]
        for step in steps:
            if isinstance(step, Put):
                self.holds[step.object.key] = step.object
                self.made += not isinstance(step.object, PolicyElement)
            else:
                del self.holds[step.object.key]
        return []

    def verdicts(self, name: str) -> dict[str, str]:
        elements = (thing for thing in self.holds.values() if isinstance(thing, PolicyElement) and thing.set == name)
        return {str(ip_address(each.element)): each.verdict.partition("-")[0] for each in elements}


class Told:
    """A source that says what a test tells it."""

    advice = "Add it there"
    node = ""
    files = ""

    def __init__(self) -> None:
        self.words: asyncio.Queue[World | Change | ConfigError] = asyncio.Queue()
        self.things: dict[Id, Thing] = {}
        self.asked: list[Id] = []
        self.settled = True

    async def run(self, take: TakeChange) -> NoReturn:
        while True:
            found = await self.words.get()
            if isinstance(found, World):
                before, self.things = self.things, {each.id: each for each in found.things}
                put = tuple(each for name, each in self.things.items() if before.get(name) != each)
                gone = tuple(before.keys() - self.things.keys())
                take(Change(put=put, gone=gone, problems=found.problems, written=found.written))
            else:
                take(found)

    def form(self, name: Id) -> str:
        return repr(self.things.get(name, "")).strip("'")

    async def ask(self, pod: Id) -> None:
        self.asked.append(pod)


class Node:
    def __init__(self, mode: Mode = "enforce") -> None:
        self.kernel, self.source, self.inputs = Kernel(), Told(), inputs()
        clock = asyncio.get_running_loop().time
        self.policies = Enforcement(self.source, self.kernel, mode=mode, clock=clock, history=History())

    def begin(self, world: World | ConfigError | None = PODS, **live: Attached) -> None:
        if world is not None:
            self.source.words.put_nowait(world)
        self.policies.look_at_pods(lambda: live)
        self.running = asyncio.ensure_future(self.policies.run(lambda: self.inputs))

    async def add(self, key: str = "k1", attached: Attached = WEB) -> str:
        told = {name: getattr(attached, name) for name in ("pod", "uid", "ips", "port", "link")}
        return await asyncio.to_thread(lambda: self.policies.gate.admit(key, **told))

    async def delete(self, key: str = "k1") -> None:
        await asyncio.to_thread(lambda: self.policies.gate.release(key))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(policygate, "_SECONDS", 0.5)
    monkeypatch.setattr(policygate, "_AUDIT_SECONDS", 0.1)
    monkeypatch.setattr(enforcement, "_SETTINGS_SECONDS", 0.01)


@pytest.fixture
async def node():
    made = Node()
    yield made
    if hasattr(made, "running"):
        made.running.cancel()


async def test_a_pod_waits_for_its_elements_and_leaves_before_its_address_is_free(node):
    node.begin(replace(PODS, policies=(SHUT,)))
    assert await node.add() == ""
    assert node.kernel.verdicts("in4") == {"10.5.1.2": "in"}
    assert node.kernel.verdicts("out4") == {"10.5.1.2": "accept"}
    assert (node.policies.problem, node.policies.loss) == (None, None)
    state = node.policies.state()
    assert (state.policies, state.pods, state.unknown) == (1, 1, 0)
    assert (state.isolated, state.age) == ({"ingress": 1, "egress": 0}, 0.0)
    assert state.elements == sum(isinstance(each, PolicyElement) for each in node.kernel.holds.values())
    assert sum(state.waited.counts) == 1
    await node.delete()
    assert node.kernel.verdicts("in4") == {}


async def test_nothing_is_written_before_all_is_known(node):
    node.begin(None)
    assert "not all of them is known yet" in await node.add()
    assert node.kernel.holds == {}
    assert node.policies.problem is not None
    assert (node.policies.keeper, node.policies.state()) == (None, None)
    node.source.words.put_nowait(ConfigError(Problem(code="POL-003", where="/p", seen="cannot be read")))
    await comes(lambda: "cannot be read" in str(node.policies.problem))
    assert "cannot be read" in await node.add()
    node.source.words.put_nowait(PODS)
    assert await node.add() == ""


def test_nodes_have_subnets_as_long_as_this_one():
    """Kubernetes gives them, and the network configuration has another length, or none."""
    settings = policyterm.settings_of("enforce", replace(inputs(), v4=IPv4Network("10.5.4.0/22")), "node1")
    assert settings.subnet_lens[4] == 22


async def test_a_pod_that_is_told_while_it_waits_is_attached(node):
    node.begin(World())
    waiting = asyncio.ensure_future(node.add())
    await asyncio.sleep(0.05)
    node.source.words.put_nowait(PODS)
    assert await waiting == ""


async def test_a_pod_that_was_not_heard_of_is_asked_for(node, monkeypatch):
    async def ask(pod: Id) -> None:
        node.source.asked.append(pod)
        node.source.words.put_nowait(PODS)

    monkeypatch.setattr(node.source, "ask", ask)
    monkeypatch.setattr(policygate, "_ASK_SECONDS", 0.05)
    node.begin(World())
    assert await node.add() == ""
    assert node.source.asked == [("pod", "default", "web")]
    assert await node.add("k2") == ""
    assert len(node.source.asked) == 1, "it is known by now"


async def test_a_pod_is_attached_while_others_change_without_end(node):
    node.begin(replace(PODS, policies=(SHUT,)), k9=OTHER)
    assert await node.add("k8") == ""
    keeper = node.policies.keeper
    busy = asyncio.ensure_future(_changing(keeper))
    await asyncio.sleep(0.01)
    assert await node.add() == ""
    busy.cancel()


async def _changing(keeper):
    """Marks come in each turn of the loop, so that no round is the last one."""
    while True:
        keeper.unseen([("polelement", "inet", "in4", b"1234")])
        await asyncio.sleep(0)


async def test_a_pod_of_which_nothing_is_known_is_refused_by_name(node):
    node.begin(World())
    assert (await node.add()).startswith("POL-003 pod default/web: no such Pod is known")
    assert node.kernel.verdicts("in4") == {}


async def test_pods_that_run_and_of_which_nothing_is_read_are_named_once(node, caplog):
    others = {f"k{number}": replace(WEB, pod=f"default/other-{number}") for number in range(7)}
    node.begin(PODS, k9=WEB, **others)
    await comes(lambda: node.policies.loss is not None)
    listed = ", ".join(f"default/other-{number}" for number in range(5))
    assert str(node.policies.loss).startswith(
        f"POL-003 policies: no Pod is read for what runs here as {listed} and 2 more: packets are refused"
    )
    node.source.words.put_nowait(replace(PODS, policies=(SHUT,)))
    await comes(lambda: node.kernel.verdicts("in4").get("10.5.1.2") == "in")
    assert caplog.text.count("no Pod is read") == 1
    for key in others:
        await node.delete(key)
    assert node.policies.loss is None


async def test_what_is_no_pod_of_kubernetes_is_let_through(node):
    node.begin()
    assert await node.add("k2", replace(WEB, pod="")) == ""
    assert node.kernel.verdicts("in4") == {"10.5.1.2": "accept"}


async def test_while_the_kernel_refuses_no_pod_is_attached_and_it_is_said(node):
    node.kernel.refuses = True
    node.begin()
    assert (await node.add()).endswith("its policies are not in the kernel after 5 s: refused")
    assert str(node.policies.problem).startswith("NFT-001 policies: cannot be written: refused")


async def test_audit_refuses_nobody():
    node = Node("audit")
    node.begin(World())
    assert await node.add() == ""
    node.running.cancel()


async def test_who_lives_at_the_start_is_judged_but_for_those_that_left_meanwhile(node):
    gone = replace(WEB, ips=(ip_address("10.5.1.9"),))

    def live():
        node.policies.gate.release("k2")
        return {"k1": WEB, "k2": gone}

    node.source.words.put_nowait(PODS)
    node.policies.look_at_pods(live)
    node.policies.look_at_pods(dict)  # by a server of plugins that was started again
    node.running = asyncio.ensure_future(node.policies.run(lambda: node.inputs))
    await comes(lambda: node.policies.problem is None)
    assert node.kernel.verdicts("in4") == {"10.5.1.2": "accept"}


async def test_a_plan_has_what_is_missing_of_the_tables_and_why_it_is_not_made(node):
    assert await _of_policies(None) == ([], {})
    assert await _of_policies(node.policies) == ([], {}), "nothing is decided before all is known"
    node.begin(replace(PODS, policies=(SHUT,)), k1=WEB)
    await comes(lambda: node.policies.problem is None)
    assert await _of_policies(node.policies) == ([], node.kernel.holds)
    lost = node.kernel.holds.popitem()[1]
    steps, _ = await _of_policies(node.policies)
    assert steps == [Put(lost)]
    assert _problems_of_policies(node.policies) == ()
    node.source.words.put_nowait(ConfigError(Problem(code="POL-003", where="/p", seen="cannot be read")))
    await comes(lambda: [each.where for each in _problems_of_policies(node.policies)] == ["/p"])


async def test_what_cannot_be_read_makes_what_is_known_old_until_it_can(node):
    node.begin()
    await comes(lambda: node.policies.state() is not None)
    node.source.words.put_nowait(ConfigError(Problem(code="POL-003", where="/p", seen="cannot be read")))
    await comes(lambda: node.policies.state().age > 0)
    node.source.words.put_nowait(PODS)
    await comes(lambda: node.policies.state().age == 0)
    for _ in range(2):
        old = Problem(code="POL-003", where="policies", seen="what is known may be old")
        node.source.words.put_nowait(Change(problems=(old,), current=False))
        await comes(lambda: node.policies.state().age > 0.02)
    node.source.words.put_nowait(PODS)
    await comes(lambda: node.policies.state().age == 0)


async def test_attachments_without_a_record_are_known_by_the_address_that_they_were_given(node):
    """Also once their pod is told, and only where one pod alone has that address."""
    first, second = (ip_address(f"10.5.1.{last}") for last in (2, 3))
    lost = {
        "k1": replace(WEB, pod=UNKNOWN),
        "k2": replace(WEB, pod=UNKNOWN, ips=(second,), port="veth2"),
        "k3": replace(WEB, pod=UNKNOWN, ips=(), port="veth3"),
    }
    web = replace(PODS.pods[0], ips=(first,))
    node.begin(replace(PODS, pods=(web,), policies=(SHUT,)), **lost)
    await comes(lambda: node.kernel.verdicts("in4") == {"10.5.1.2": "in"})
    assert "runs here as ?/?, ?/?" in str(node.policies.loss)
    late = replace(web, name="late", ips=(second,))
    twin = replace(late, name="twin")
    node.source.words.put_nowait(replace(PODS, pods=(web, late, twin), policies=(SHUT,)))
    await asyncio.sleep(0.05)
    assert node.kernel.verdicts("in4") == {"10.5.1.2": "in"}
    node.source.words.put_nowait(replace(PODS, pods=(web, replace(late, uid="2")), policies=(SHUT,)))
    await comes(lambda: node.kernel.verdicts("in4") == {"10.5.1.2": "in", "10.5.1.3": "in"})


async def test_what_is_not_understood_of_a_change_leaves_the_rest_as_it_was(node):
    node.begin(replace(PODS, policies=(SHUT,)), k1=WEB)
    await comes(lambda: node.kernel.verdicts("in4") == {"10.5.1.2": "in"})
    node.source.words.put_nowait(ConfigError(Problem(code="POL-005", where="/p", seen="nonsense")))
    await comes(lambda: "nonsense" in str(node.policies.loss))
    assert node.policies.problem is None
    assert node.kernel.verdicts("in4") == {"10.5.1.2": "in"}
    strange = Problem(code="POL-005", where="spec.ingress[0]", seen="strange")
    node.source.words.put_nowait(replace(PODS, problems=(strange,)))
    await comes(lambda: node.kernel.verdicts("in4") == {"10.5.1.2": "accept"})
    assert node.policies.loss == strange


async def test_another_subnet_is_decided_anew(node):
    node.begin(k1=WEB)
    await comes(lambda: node.policies.problem is None)
    before = {key for key in node.kernel.holds if key[0] == "polchain"}
    node.inputs = replace(node.inputs, v4=ip_network("10.5.77.0/24"))
    await comes(lambda: before != {key for key in node.kernel.holds if key[0] == "polchain"})
    await comes(lambda: node.policies.problem is None)
    assert node.kernel.verdicts("in4") == {"10.5.1.2": "accept"}


async def test_what_ipvs_sends_is_judged_once_its_device_is_there(node, monkeypatch):
    def hooks():
        return {thing.hook.split()[3] for thing in node.kernel.holds.values() if getattr(thing, "hook", "")}

    node.begin(k1=WEB)
    await comes(lambda: node.policies.problem is None)
    assert "output" not in hooks()
    monkeypatch.setattr(policyterm, "_IPVS", "lo")
    await comes(lambda: "output" in hooks())


def test_when_the_loop_has_ended_nobody_waits():
    async def begin() -> PolicyGate:
        return Node().policies.gate

    gate = asyncio.run(begin())
    gate.release("k1")
    assert "weftd is ending" in gate.admit("k1", pod="default/web", uid="", ips=(), port="veth1", link="cni0")


async def test_since_when_policies_are_in_effect_and_what_is_not_yet(node):
    node.begin(PODS)
    assert await node.add() == ""
    await comes(lambda: node.policies.state().effect.since is not None)
    first = node.policies.state().effect
    assert (first.found, first.changing) == (False, ())
    node.kernel.refuses = True
    node.source.words.put_nowait(replace(PODS, policies=(SHUT,)))
    await comes(lambda: node.policies.state().effect.changing)
    assert node.policies.state().effect == replace(first, changing=("NetworkPolicy default/shut",))
    told = node.policies.told(["NetworkPolicy default/shut", "NetworkPolicy default/none", "no kind"])
    assert (told.settled, list(told.forms)) == (False, ["NetworkPolicy default/shut"])
    node.kernel.refuses = False
    node.policies.keeper.try_again()
    await comes(lambda: not node.policies.state().effect.changing)
    now = node.policies.state().effect
    assert now.since > first.since
    assert node.policies.told([]).settled
    node.source.settled = False
    assert not node.policies.told([]).settled, "what is read and not told may mean more"


async def test_pods_that_come_and_go_change_no_policies(node):
    node.begin(replace(PODS, policies=(SHUT,)))
    assert await node.add() == ""
    await comes(lambda: node.policies.state().effect.since is not None)
    before = node.policies.state().effect
    more = Pod(namespace="default", name="more", labels={})
    node.source.words.put_nowait(replace(PODS, policies=(SHUT,), pods=(*PODS.pods, more)))
    await comes(lambda: more.id in node.source.things)
    assert node.policies.state().effect == before


async def test_what_the_kernel_has_at_a_restart_was_in_effect_before(node):
    node.begin(replace(PODS, policies=(SHUT,)))
    assert await node.add() == ""
    again = Node()
    again.kernel.holds = node.kernel.holds
    again.begin(replace(PODS, policies=(SHUT,)), k1=WEB)
    try:
        await comes(lambda: again.policies.term is not None and again.policies.state().effect.since is not None)
        assert again.policies.state().effect.found
    finally:
        again.running.cancel()
