"""Whether policies are enforced is judged by the names that known programs give to tables and chains."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import comes
from weft.daemon import networkpolicies
from weft.daemon.networkpolicies import Policies
from weft.model.errors import Problem, Unavailable

OURS = "table ip filter {\n\tchain FLANNEL-FWD {\n\t}\n\tchain KUBE-FORWARD {\n\t}\n\tchain KUBE-SERVICES {\n\t}\n}\n"
THEIRS = [
    "table inet kube-network-policies {\n\tchain forward {",
    "table inet kindnet-network-policies {",
    "table ip filter {\n\tchain cali-FORWARD {",
    "chain KUBE-ROUTER-FORWARD {",
    ":KUBE-NWPLCY-DEFAULT - [0:0]",
    "chain KUBE-POD-FW-ABC {",
    "chain CILIUM_FORWARD {",
    "chain ANTREA-FORWARD {",
    ":WEAVE-NPC - [0:0]",
    "chain AZURE-NPM {",
]


class Tools:
    """Programs that say what they are told to."""

    def __init__(self, **said: str) -> None:
        self.said = {name.replace("_", "-"): text for name, text in said.items()}
        self.ran: list[str] = []

    def has(self, name: str) -> bool:
        return name in self.said

    async def run(self, name: str, _arguments: Any) -> str:
        self.ran.append(name)
        return self.said[name]


def policies(tools: Tools, proc: Path = Path("/nonexistent")) -> Policies:
    return Policies(None, tools, proc=proc)  # type: ignore[arg-type]


class Store:
    """A store that says how many policies there are, or why it does not; None once all is said."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)

    async def policies(self) -> int | None:
        if not self.answers:
            return None
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def running(looking: Policies) -> AsyncIterator[None]:
    task = asyncio.ensure_future(looking.run())
    yield
    task.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    for name in ("_FIRST_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(networkpolicies, name, 0.001)


async def test_a_right_that_comes_later_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(networkpolicies, "_AGAIN_SECONDS", 0.001)
    forbidden = Unavailable(Problem(code="API-001", where="k", seen="forbidden"))
    store = Store(forbidden, 0, forbidden, *[2] * 1000)
    looking = Policies(store, Tools(nft=OURS))  # type: ignore[arg-type]
    async with running(looking):
        await comes(lambda: looking.problem is not None)
        assert "POL-001 NetworkPolicies: the cluster has 2 NetworkPolicies" in str(looking.problem)
        store.answers.clear()
        await comes(lambda: looking.problem is None)


async def test_what_other_nodes_say_that_they_enforce_is_missed_here_and_noticed_at_once():
    """Though the next look is minutes away."""
    nodes = list[str]()
    looking = Policies(Store(), Tools(nft=OURS), lambda: nodes)  # type: ignore[arg-type]
    async with running(looking):
        nodes.append("node2")
        await comes(lambda: looking.problem is not None)
        assert str(looking.problem).startswith(
            "POL-001 NetworkPolicies: 1 other node (node2) says that policies are enforced there, and no rules of a"
        )
        nodes.clear()
        await comes(lambda: looking.problem is None)
    two = await Policies(Store(), Tools(nft=OURS), lambda: ["a", "b"]).judge(0)  # type: ignore[arg-type]
    assert two is not None
    assert two.seen.startswith("2 other nodes (a, b) say that")
    theirs = Tools(nft=OURS + THEIRS[0])
    assert await Policies(Store(), theirs, lambda: ["a"]).judge(0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", THEIRS)
async def test_a_program_that_enforces_them_is_known_by_its_rules(rules: str):
    assert await policies(Tools(nft=OURS + rules)).judge(2) is None


async def test_where_there_is_none_how_many_policies_there_are_is_told():
    problem = await policies(Tools(nft=OURS)).judge(2)
    assert problem is not None
    assert (problem.code, problem.seen[:38]) == ("POL-001", "the cluster has 2 NetworkPolicies, and")
    one = await policies(Tools(nft=OURS)).judge(1)
    assert one is not None
    assert "has 1 NetworkPolicy," in one.seen
    tools = Tools(nft=OURS)
    assert await policies(tools).judge(0) is None
    assert tools.ran == []


async def test_old_tables_of_iptables_are_read_where_there_are_any(tmp_path: Path):
    tools = Tools(nft=OURS, iptables_legacy_save=THEIRS[4], ip6tables_legacy_save="")
    assert await policies(tools, tmp_path).judge(1) is not None
    assert tools.ran == ["nft"]
    (tmp_path / "net").mkdir()
    (tmp_path / "net/ip_tables_names").write_text("filter\n")
    assert await policies(tools, tmp_path).judge(1) is None
    assert tools.ran == ["nft", "nft", "iptables-legacy-save"]
