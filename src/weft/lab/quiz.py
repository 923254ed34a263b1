"""The quiz: what may be drawn, what it says of a fault without naming it, what an answer is worth. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from weft.diag.check.scenarios import BY_NAME
from weft.diag.check.trial import Tried
from weft.lab.fault import Fault
from weft.lab.faults import FAULTS
from weft.model.value import Value, field, replace

Level = Literal["easy", "hard"]
Judgement = Literal["right", "no node", "wrong node", "near", "wrong"]

_WORTH: Final = 10
_HINT: Final = 2  # points that a hint costs, and
_WRONG: Final = 1  # a wrong answer
_LEAST: Final = 1


class Area(Value):
    """`where` is a vague hint, `look` names commands that show the fault.

    With a `complaint`, a user's words, nothing need fail now.
    """

    where: str
    look: str
    complaint: str = ""


_FAMILIES: Final = {
    "ADDR": Area(
        where="Two things have the same addresses.",
        look="'ip address' on each node: which link that is not weft's has a network that pods' addresses are in?",
        complaint="somebody has installed another program on a node, and fears for some addresses since",
    ),
    "BRIDGE": Area(
        where="Look at pods and their own node, before you look at other nodes.",
        look="'ip address show cni0' on each node, beside the lease that 'weft lab ps' shows.",
    ),
    "CLEAN": Area(
        where="Something of an earlier day is still there.",
        look="'ls /etc/cni/net.d' and 'ip link' on each node: what is not weft's?",
        complaint="this cluster had another pod network before, and one node was perhaps not cleaned up",
    ),
    "CNI": Area(
        where="What is configured on a node, and what is installed there, are two things.",
        look="'ls /etc/cni/net.d' and 'weft cni install --check' on each node.",
        complaint="pods that ask for a second network stay in ContainerCreating on one node",
    ),
    "CT": Area(
        where="The node remembers something of each connection. Its memory has an end.",
        look="'sysctl -a -r nf_conntrack' on each node: which number is near another?",
        complaint="one node serves thousands of short connections, and nobody knows how many more it can",
    ),
    "FW": Area(
        where="The way is there. Something on it does not let these packets pass.",
        look="'nft list ruleset' on each node shows the rules of all programs; 'weft lab trace A B' names the rule.",
    ),
    "HOST": Area(
        where="Another program of a node believes that it manages a link of weft's.",
        look="'ls -R /run/systemd' on each node, where systemd-networkd keeps what it knows of links.",
        complaint="the operator of a node will restart its network tonight, and asks whether that is safe",
    ),
    "IFACE": Area(
        where="Look at the nodes themselves, before you look at pods.",
        look="'ip link' on each node, and 'ip route get' with the addresses of the other nodes.",
    ),
    "IPAM": Area(
        where="Pods that run are well. It is about new ones.",
        look="'weft ipam list' on each node says who has which address.",
    ),
    "KERN": Area(
        where="A setting of the kernel drops these packets, without a rule.",
        look="'sysctl net.ipv4.conf' on each node: where do forwarding and rp_filter differ from other nodes?",
    ),
    "LEASE": Area(
        where="One node is missing altogether. Who misses it?",
        look="'weft peers' on each node, and 'weft doctor' on other nodes than the one that is missing.",
    ),
    "MESH": Area(
        where="All packets arrive, and some go by way of a node that they need not pass. Why?",
        look="'weft peers' on each node: by which way does it reach each other one, and why by no better one?",
        complaint="what two nodes say to each other has become slower, and one of the others is busier than before",
    ),
    "MTU": Area(
        where="Not all packets of a pair are lost. What do those that are lost have in common?",
        look="'ping -M do -s SIZE ADDRESS' from a pod: from which SIZE on is there no answer, and to which node?",
    ),
    "POL": Area(
        where="Nothing is wrong with the ways. What may pass them is judged by other words than you would think.",
        look="'weft lab policy denied' says who was refused, and by which policies; 'weft policy list' on each node"
        " says which pods it knows, and what of policies it cannot enforce.",
    ),
    "REACH": Area(
        where="Each node is well as far as it knows. Ask what becomes of a packet between two nodes.",
        look="'weft lab capture --proto udp', while pods ping: what leaves one node, and is not answered by the other? "
        "'nft list ruleset' shows what drops packets before all else sees them.",
    ),
    "ROUTE": Area(
        where="A node sends packets where they do not belong.",
        look="'ip route' on each node: weftd's routes have 'proto 165'. Which other one is more specific?",
    ),
    "STORE": Area(
        where="Nothing is lost yet. But one node would not hear of a change.",
        look="'weft status' on each node says how the store is.",
        complaint="a node will be added tomorrow, and the monitoring says that one of the others is not ready for it",
    ),
    "VTEP": Area(
        where="One node's end of the overlay is not as it should be.",
        look="'ip -d link show type vxlan' on each node, and what 'weft lab ps' says of the daemons.",
    ),
}
_CODES: Final = {
    "BRIDGE-003": Area(
        where="It is about a pod that asks a Service and is chosen itself.",
        look="'bridge -d link' on each node shows the settings of each port.",
        complaint="a server that calls its own Service gets no answer now and then, on one node",
    ),
    "KERN-001": Area(
        where="It is about packets that never leave a bridge.",
        look="'sysctl net.bridge' on each node.",
        complaint="a Service answers pods of other nodes, and not those beside its own server, on one node",
    ),
    "POL-001": Area(
        where="All packets arrive. Should they?",
        look="'weft policy list' on each node, and the flags that each weftd has ('ps -ef').",
        complaint="somebody has changed flags of weftd on a node, and now pods there hear from whom they should not",
    ),
    "POL-004": Area(
        where="Whom else does a packet have to ask on this node?",
        look="'nft list tables' on each node: which of them is not weft's, and what is its name like?",
        complaint="somebody has tried another program on a node, and asks whether all that he installed is gone",
    ),
    "NEIGH-002": Area(
        where="The route is right, and so is the link. Whom does the packet go to on it?",
        look="'ip neighbour' on each node: which entries did the kernel not find out by itself?",
        complaint="one node has lost another one since somebody worked on it, and all others reach both",
    ),
}


def area(fault: Fault) -> Area | None:
    """None where its code is of no known family."""
    return _CODES.get(fault.code) or _FAMILIES.get(family(fault.code))


def family(code: str) -> str:
    """FW of FW-001."""
    return code.rpartition("-")[0]


def hints(fault: Fault, known: Area, node: str) -> list[str]:
    return [known.where, known.look, f"On {node}: {fault.about}."]


# Faults that stay until a command mends them, and do not show at the first look: `weft lab ps` shows an ended daemon.
DRAWABLE: Final[Mapping[str, tuple[Fault, Area]]] = {
    fault.name: (fault, known)
    for fault in FAULTS
    if fault.mends and not (fault.repaired or fault.kills) and (known := area(fault)) is not None
}


class Puzzle(Value):
    """A fault to be found, its symptoms, and how it went so far."""

    level: Level
    seed: int
    fault: str
    node: str
    symptoms: list[str] = field(default_factory=list)
    hints: int = 0
    wrong: int = 0

    @property
    def worth(self) -> int:
        return max(_WORTH - self.hints * _HINT - self.wrong * _WRONG, _LEAST)


class Score(Value):
    """What was won in a lab."""

    points: int = 0
    found: int = 0
    given_up: int = 0


class Game(Value):
    """`now` is the open puzzle."""

    score: Score = Score()
    now: Puzzle | None = None


def ended(score: Score, now: Puzzle, *, found: bool) -> Score:
    if found:
        return replace(score, points=score.points + now.worth, found=score.found + 1)
    return replace(score, given_up=score.given_up + 1)


def of_level(level: Level) -> list[Fault]:
    """Of an easy level, those by which something fails now."""
    return [fault for fault, known in DRAWABLE.values() if level == "hard" or not known.complaint]


def draw(faults: Sequence[Fault], nodes: Sequence[str], seed: int) -> tuple[Fault, str]:
    """The fault and node that a number means; over all numbers, each pair is as likely."""
    number, place = divmod(seed, len(faults))
    return faults[place], nodes[number % len(nodes)]


def judge(fault: Fault, node: str, code: str, at: str) -> Judgement:
    """With `at` "" no node was named."""
    if code != fault.code:
        return "near" if family(code) == family(fault.code) else "wrong"
    if not at:
        return "no node"
    return "right" if at == node else "wrong node"


def noticed(tried: Sequence[Tried]) -> list[str]:
    """A sentence for each place that does not reach others as it should."""
    usual = [each for each in tried if BY_NAME[each.trial.scenario].size != "more"]  # packets that are to be refused
    said: dict[tuple[str, str], list[str]] = {}
    for source, target in dict.fromkeys((each.trial.source, each.trial.target) for each in usual):
        pair = [each for each in usual if (each.trial.source, each.trial.target) == (source, target)]
        failed = [each for each in pair if each.fault in ("lost", "unseen")]
        if failed:
            others = said.setdefault((source, _how(failed, pair)), [])
            others.append("itself" if source == target else target)
    return [f"{source} does not reach {', '.join(targets)}{how}" for (source, how), targets in said.items()]


def _how(failed: Sequence[Tried], pair: Sequence[Tried]) -> str:
    """With which packets a target is not reached; "" if with none."""
    if len(failed) == len(pair):
        return ""
    if all(each.trial.size for each in failed):
        sizes = " or ".join(map(str, sorted({each.trial.size for each in failed})))
        return f" with packets of {sizes} bytes, and does with smaller ones"
    return f" by {' and '.join(sorted({each.trial.protocol.upper() for each in failed}))} each time"
