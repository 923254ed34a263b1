"""Whether policies are enforced is judged by the names that known programs give to tables and chains."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import HANGS
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
    return Policies(None, tools, proc)  # type: ignore[arg-type]


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


async def test_a_right_that_comes_later_counts_and_a_store_without_policies_ends_it(monkeypatch: pytest.MonkeyPatch):
    for name in ("_FIRST_SECONDS", "_AGAIN_SECONDS"):
        monkeypatch.setattr(networkpolicies, name, 0.001)
    forbidden = Unavailable(Problem(code="API-001", where="k", seen="forbidden"))
    looking = Policies(Store(forbidden, 0, forbidden, 2), Tools(nft=OURS))  # type: ignore[arg-type]
    await asyncio.wait_for(looking.run(), HANGS)
    assert looking.problem is not None
    assert looking.problem.code == "POL-001"


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
