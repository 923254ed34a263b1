"""Random sequences of ADD, DEL, CHECK and GC with everything going wrong: GC leaves what is live, and nothing else.

Clients and the daemon are killed at random steps, namespaces are missing, disks full, state files torn; runtimes
repeat, forget and give up. The seed is printed, and another one each time; set WEFT_SEED to repeat a run, and
WEFT_SEQUENCE as well to repeat one sequence of it.
"""

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.campaign.cnichain import (
    CNI,
    DISKS,
    NETWORK,
    ROOM,
    STATE,
    SUBJECTS,
    ChainNode,
    Meanwhile,
    Pod,
    violations,
    violations_soon,
)
from tests.campaign.cnikills import CLIENT, DAEMON, POINTS, STAND_IN, VICTIMS
from tests.support.netns import Netns
from weft.cni import build
from weft.cni.install.executables import install
from weft.cni.sdk import record
from weft.model.attachment import Attachment

PODS = 5
STEPS = 12
SECONDS = 20

CHAINS: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
    ({}, {}),
    ({}, {"snat": False}),
    ({"ipMasq": True, "ipMasqBackend": "nftables"}, {}),
    ({"ipMasq": True, "ipMasqBackend": "iptables"}, {"backend": "iptables"}),
    ({"macspoofchk": True}, {"backend": "nftables"}),
)


class Sequence:
    """What one runtime does to a node, and what it knows of its pods."""

    def __init__(self, node: ChainNode, chance: random.Random, did: Counter[str]) -> None:
        self.node = node
        self.chance = chance
        self.did = did
        self.live: dict[str, Pod] = {}
        # Their namespaces may live; whether anything is attached nobody knows.
        self.given_up: list[Pod] = []
        self.ended: list[Pod] = []
        self.history: list[str] = []
        self._number = 0

    def run(self) -> None:
        """Do some steps, have GC clean up, and look; then end everything, and look again."""
        self.node.delegate, self.node.portmap = self.chance.choice(CHAINS)
        for _ in range(STEPS):
            self._step()
            self.node.relieve()
            self.node.serve()
            if self.chance.random() < 0.15:
                self._collect()
        self._collect()
        for pod in list(self.live.values()):
            self._note("end", pod)
            assert self.node.delete(pod), self.node.said[-1]
            self._detached(pod)
        self._collect()

    def close(self) -> None:
        for pod in (*self.live.values(), *self.given_up, *self.ended):
            pod.netns.close()

    def _step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [(5 if len(self.live) < PODS else 0, self._add)]
        if self.live:
            steps += [(3, self._delete), (2, self._check), (1, self._add_again), (1, self._vanish), (2, self._tear)]
        steps += [(1, self._delete_stranger), (1, self._gc_with_faults)]
        (step,) = self.chance.choices([step for _, step in steps], [weight for weight, _ in steps])
        self.did[step.__name__.lstrip("_")] += 1
        step()

    # --- what runtimes do

    def _add(self) -> None:
        pod = self._new_pod()
        fault = self._fault("ADD")
        self._note(f"ADD {fault}", pod)
        if self.node.add(pod, self._meanwhile(fault)):
            self._clear(fault)
            self.live[pod.name] = pod
            return
        self._clear(fault)
        full = "no IP addresses available" in self.node.said[-1]
        assert fault or (full and len(self.live) + len(self.given_up) >= ROOM), self.node.said[-1]
        self._give_up(pod)

    def _add_again(self) -> None:
        pod = self._any()
        self._note("ADD again", pod)
        assert not self.node.add(Pod(name=pod.name, port=pod.port, netns=pod.netns))

    def _delete(self) -> None:
        pod = self._any()
        fault = self._fault("DEL")
        path = None if _unknown(pod) else self.chance.choice([None, None, None, "", "/var/run/netns/gone"])
        forgetful = self.chance.random() < 0.3
        self._note(f"DEL {fault} path={path!r} forgetful={forgetful}", pod)
        del self.live[pod.name]
        done = self.node.delete(pod, self._meanwhile(fault), path=path, forgetful=forgetful)
        self._clear(fault)
        assert done or fault, self.node.said[-1]
        if done and not pod.torn:
            self._detached(pod)
        else:
            self._give_up(pod)

    def _delete_stranger(self) -> None:
        """DEL of what was never there, or has been detached already."""
        pod = self.chance.choice(self.ended) if self.ended and self.chance.random() < 0.5 else self._new_pod()
        self._note("DEL of what is not there", pod)
        assert self.node.delete(pod, path=self.chance.choice([None, ""])), self.node.said[-1]
        if pod not in self.ended:
            self.ended.append(pod)

    def _check(self) -> None:
        pod = self._any()
        fault = self._fault("CHECK")
        self._note(f"CHECK {fault}", pod)
        good = self.node.check(pod, self._meanwhile(fault))
        self._clear(fault)
        assert good or fault or pod.torn, self.node.said[-1]

    def _gc_with_faults(self) -> None:
        fault = self._fault("GC")
        self._note(f"GC {fault}")
        done = self.node.gc(self.live, self._meanwhile(fault))
        self._clear(fault)
        assert done or fault, self.node.said[-2:]

    def _vanish(self) -> None:
        """A sandbox whose namespace ends, and nobody says so."""
        pod = self._any()
        self._note("vanish", pod)
        del self.live[pod.name]
        _end_namespace(pod)
        self.given_up.append(pod)

    def _tear(self) -> None:
        """Damage a file of a live pod, as a crash or a person may. Of two nobody would know whose they were."""
        pod = self._any()
        if pod.torn:
            return
        key = record.key_of(Attachment(network=NETWORK, container_id=pod.name, ifname="eth0"))
        files = {
            "flannel's state": self.node.see(CNI, "flannel", pod.name),
            "reservation": self.node.see(CNI, "networks", NETWORK, pod.address),
            "last reserved": self.node.see(CNI, "networks", NETWORK, "last_reserved_ip.0"),
        }
        files |= {subject: self.node.see(STATE, "cni", subject, f"{key}.json") for subject in SUBJECTS}
        what = self.chance.choice(sorted(files))
        if what == "portmap" and self.node.portmap.get("backend") == "nftables":
            return  # the comments of upstream's nft rules do not name the network: only the record does
        self._note(f"tear {what}", pod)
        content = files[what].read_bytes()
        files[what].write_bytes(content[: self.chance.randrange(len(content))])
        pod.torn.add(what)

    # --- what goes wrong

    def _fault(self, command: str) -> str:
        """Choose a fault, perhaps none, and prepare it; `_clear` ends it."""
        chance = self.chance.random()
        if chance < 0.5:
            return ""
        if chance < 0.6:
            self.node.end()
            return "" if self.chance.random() < 0.5 else self._full()
        if chance < 0.72:
            return self._full()
        points = [point for point in POINTS if point.command == command and not point.fresh]
        if not points or chance < 0.82:
            return f"kill {self.chance.choice([CLIENT, DAEMON])}"
        point = self.chance.choice(points)
        victim = self.chance.choice([name for name in VICTIMS if name in point.victims])
        if victim == STAND_IN:
            self.node.end()
        self.node.trap.set(point, victim)
        self.did[f"killed: {victim}"] += 1
        return f"trap {victim} at {point}"

    def _full(self) -> str:
        disks = self.chance.choice([DISKS, *((disk,) for disk in DISKS)])
        for disk in disks:
            self.node.fill(disk)
        self.did["full disk"] += 1
        return f"full {' and '.join(disks)}"

    def _meanwhile(self, fault: str) -> Meanwhile | None:
        """Return what kills somebody at any time of one of the chain's calls."""
        if not fault.startswith("kill"):
            return None
        left = self.chance.randrange(2)
        after = self.chance.uniform(0, 0.012)

        def kill(child: "subprocess.Popen[bytes]") -> None:
            nonlocal left
            left -= 1
            if left == -1:
                time.sleep(after)
                self.did[fault] += 1
                self.node.end(9) if fault.endswith(DAEMON) else child.kill()

        return kill

    def _clear(self, fault: str) -> None:
        if fault.startswith(f"trap {DAEMON}") and self.node.daemon is not None and self._sprung(fault):
            self.node.daemon.wait(SECONDS)  # what it had open may have gone before it has
        self.node.trap.clear()
        self.node.relieve()
        self.node.serve()

    def _sprung(self, fault: str) -> bool:
        """Tell whether a trap has killed; what comes after the answer may be a moment behind the client's end."""
        end = time.monotonic() + (1 if "result sent" in fault else 0)
        while not self.node.trap.sprung and time.monotonic() < end:
            time.sleep(0.005)
        return self.node.trap.sprung

    # --- what a runtime makes of it

    def _give_up(self, pod: Pod) -> None:
        """DEL until it works, as most runtimes do, or never again.

        The namespaces of whole attachments may live on without anybody's knowing where.
        """
        again, blind = self.chance.random() < 0.6, self.chance.random() < 0.3
        if _unknown(pod) and (blind or not again):
            _end_namespace(pod)
        if again:
            self._note("DEL again", pod)
            assert self.node.delete(pod, path="" if blind else None), self.node.said[-1]
            if not pod.torn:
                self._detached(pod)
                return
        self.given_up.append(pod)

    def _detached(self, pod: Pod) -> None:
        self.live.pop(pod.name, None)
        self.ended.append(pod)

    def _collect(self) -> None:
        """GC as it should be, and then a look at everything."""
        self._note("GC and a look")
        self.node.serve()
        assert self.node.gc(self.live), self.node.said[-2:]
        # A torn state file has made DEL do nothing; GC knew from our records whose it was.
        self.ended += self.given_up
        self.given_up.clear()
        found = violations_soon(self.node, self.live, self.ended)
        assert not found, "\n".join(found)

    def _new_pod(self) -> Pod:
        self._number += 1
        return Pod(name=f"sandbox-{self._number}", port=8000 + self._number, netns=Netns())

    def _any(self) -> Pod:
        return self.live[self.chance.choice(sorted(self.live))]

    def _note(self, what: str, pod: Pod | None = None) -> None:
        self.history.append(f"{pod.name if pod else 'all'}: {what}")


def _unknown(pod: Pod) -> bool:
    """Tell whether nothing but its namespace may know of the pod's links.

    Of an ADD that was cut short before anything was written down, or a record that is torn. Such a namespace is there
    for DEL, or it has ended, as GC may assume of whatever is not valid (cni.md §1.9).
    """
    return not pod.result or record.LINKS in pod.torn


def _end_namespace(pod: Pod) -> None:
    pod.netns.close()
    pod.netns = Netns()  # so that there is one to look into; the attachment had the other


def campaign(node: ChainNode, count: int) -> None:
    """Run so many sequences, each by a seed of its own."""
    seed = os.environ.get("WEFT_SEED") or str(random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    only = os.environ.get("WEFT_SEQUENCE")
    did: Counter[str] = Counter()
    for number in [int(only)] if only else range(count):
        if number >= count // 2 and not (node.directory / "sweep").exists():  # from here on the daemon sweeps as well
            (node.directory / "sweep").write_text("0.5")
            node.end()
        with closing(Sequence(node, random.Random(f"{seed}:{number}"), did)) as sequence:
            node.said.clear()
            try:
                sequence.run()
            except BaseException:
                print(f"WEFT_SEQUENCE={number}", *sequence.history, "---", *node.said[-12:], sep="\n")
                raise
    print("".join(f"{times:5} {what}\n" for what, times in sorted(did.items())))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ChainNode]:
    assert build.PROGRAM.build(), "musl-gcc is missing"
    with closing(ChainNode(tmp_path, install(tmp_path / "bin").bin_dir)) as made:
        yield made


@pytest.mark.timeout(900)
def test_a_few_random_sequences(node):
    campaign(node, 20)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_five_hundred_random_sequences(node):
    campaign(node, 500)


# --- each checker catches what it is for


def _given_twice(node, pods, gone):
    pods["sandbox-2"].result = pods["sandbox-1"].result


def _live_freed(node, pods, gone):
    node.see(CNI, "networks", NETWORK, pods["sandbox-1"].address).unlink()


def _live_given_to_another(node, pods, gone):
    node.see(CNI, "networks", NETWORK, pods["sandbox-1"].address).write_bytes(b"sandbox-2\r\neth0")


def _address_leaked(node, pods, gone):
    node.see(CNI, "networks", NETWORK, "10.244.7.9").write_bytes(b"sandbox-3\r\neth0")


def _half_written(node, pods, gone):
    node.see(CNI, "networks", NETWORK, ".weft-0123").write_bytes(b"")


def _state_leaked(node, pods, gone):
    node.see(CNI, "flannel", "sandbox-3").write_text("{}")


def _state_lost(node, pods, gone):
    node.see(CNI, "flannel", "sandbox-1").unlink()


def _record_leaked(node, pods, gone):
    path = next(node.see(STATE, "cni", "ipam").iterdir())
    path.with_name(f"{'0' * 32}.json").write_text(json.dumps({"container": "sandbox-3"}))


def _veth_leaked(node, pods, gone):
    node.host.run("ip link add veth0 type veth peer name veth1")


def _host_end_off_the_bridge(node, pods, gone):
    index = pods["sandbox-1"].netns.rtnl.link("eth0").link
    node.host.rtnl.set_link(index, master=0)


def _host_end_deleted(node, pods, gone):
    node.host.rtnl.delete_link(pods["sandbox-1"].netns.rtnl.link("eth0").link)


def _rule_leaked(node, pods, gone):
    node.host.run("iptables -t nat -A POSTROUTING -s 10.244.7.9/32 -j RETURN")


def _comment_leaked(node, pods, gone):
    node.host.run("nft 'add table inet x; add chain inet x y; add rule inet x y accept comment \"id: sandbox-3\"'")


def _chain_leaked(node, pods, gone):
    node.host.run(f"iptables -t nat -N CNI-{'0' * 24}")


def _port_lost(node, pods, gone):
    tables = node.host.json("nft -j list tables")["nftables"]
    for table in (entry["table"] for entry in tables if "table" in entry):
        node.host.run(f"nft delete table {table['family']} {table['name']}")


def _address_removed(node, pods, gone):
    pods["sandbox-1"].netns.run("ip addr flush dev eth0 scope global")


def _link_left_in_a_pod(node, pods, gone):
    gone.netns.run("ip link add weft0 type bridge")


PLANTS = (
    (_address_leaked, "file 10.244.7.9 in the store is nobody's"),
    (_half_written, "file .weft-0123 in the store is nobody's"),
    (_state_leaked, "state file sandbox-3 is nobody's"),
    (_record_leaked, "is sandbox-3's"),
    (_veth_leaked, "link veth0 is nobody's"),
    (_rule_leaked, "a rule names 10.244.7.9"),
    (_comment_leaked, "a rule names sandbox-3"),
    (_chain_leaked, "chain CNI-000000000000000000000000 is nobody's"),
    (_link_left_in_a_pod, "link weft0 is left in sandbox-3"),
    (_state_lost, "state file of live sandbox-1 is gone"),
    (_live_given_to_another, "of live sandbox-1 is b'sandbox-2"),
    (_live_freed, "of live sandbox-1 is free"),
    (_port_lost, "no rule maps port 8001 to live sandbox-1"),
    (_address_removed, "live sandbox-1 cannot be reached"),
    (_host_end_off_the_bridge, "host end of live sandbox-1 is down or off the bridge"),
    (_host_end_deleted, "host end of live sandbox-1 is gone"),
    (_given_twice, "is given twice"),
)


def test_each_planted_violation_is_found(node):
    """One after the other on a node with two live pods and one that has been detached."""
    node.serve()
    pods = {f"sandbox-{number}": Pod(name=f"sandbox-{number}", port=8000 + number, netns=Netns()) for number in (1, 2)}
    gone = Pod(name="sandbox-3", port=8003, netns=Netns())
    with ExitStack() as stack:
        for pod in (*pods.values(), gone):
            stack.callback(pod.netns.close)
            assert node.add(pod), node.said
        assert node.delete(gone)
        found = violations_soon(node, pods, [gone])
        assert not found
        for plant, says in PLANTS:
            assert not any(says in line for line in found), says
            plant(node, pods, gone)
            found = violations(node, pods, [gone])
            assert any(says in line for line in found), says
