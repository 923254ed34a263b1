"""What `python -m scripts.figures` counts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.figures import ROOT, SOURCE, Row, lines, loaded, naming, prose, with_one_importer
from scripts.traced import Called, is_of_pod, until_netlink, way

MODULE = '''\
"""Two words."""

import os
from pathlib import (
    Path,
)

# a comment
TEXT = """one
two"""  # two lines of code


def f(path: Path) -> str:
    """Return it, as

    it was.
    """
    return os.fspath(path)
'''


def test_words_of_docstrings_and_lines_of_code_are_counted():
    assert prose([MODULE, '"""Three words more."""\n', "x = 1\n"]) == (10, 5)


def test_a_figure_above_its_goal_is_marked():
    assert str(Row("modules", 597, 420)).split() == ["modules", "597", "420", "above"]
    assert str(Row("modules", 420, 420)).split() == ["modules", "420", "420"]


def test_files_are_counted_by_lines_and_found_by_name_or_text(tmp_path: Path):
    named, naming_it, other = (tmp_path / name for name in ("charon.py", "world.py", "other.py"))
    for file, text in ((named, "a\nb\n"), (naming_it, "IPsec\n"), (other, "x\n")):
        file.write_text(text)
    assert naming("ipsec|charon", [named, naming_it, other]) == [named, naming_it]
    assert lines([named, naming_it, other]) == 4


@pytest.mark.parametrize("module, one", [("daemon/main.py", True), ("model/value.py", False)])
def test_importers_are_those_of_the_source(module: str, one: bool):
    assert with_one_importer([SOURCE / module]) == one


def test_a_command_is_run_to_count_what_it_loads():
    assert 3 < loaded("version") < loaded("explain", "ROUTE-001")


@pytest.mark.parametrize("command, most", [(("status",), 25), (("lab", "ps"), 120)])
def test_commands_that_people_wait_for_load_little(command: tuple[str, ...], most: int):
    assert loaded(*command) <= most


def test_it_prints_each_figure_beside_its_goal():
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.figures"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    head, *rows = ran.stdout.splitlines()
    assert head.split() == ["now", "goal"]
    assert len(rows) == 9
    assert all(re.search(r" [\d.,]+ +[\d.,]+(  above)?$", row) for row in rows)


def test_a_way_is_counted_by_its_tasks_functions_and_files():
    calls = [
        Called("a.py", "f", "Task-1"),
        Called("a.py", "f.<locals>.<listcomp>", "Task-1"),
        Called("b.py", "g", "Task-2"),
        Called("b.py", "g", "Task-2"),
        Called("kernel/rtnetlink/netlink.py", "NetlinkSocket.batch", "Task-2"),
        Called("c.py", "what comes after", "Task-3"),
    ]
    assert way(until_netlink(calls)) == (2, 3, 3)


def test_what_the_loops_do_meanwhile_is_not_on_the_way_of_a_pod():
    server, plugin = Called("cni/serve/server.py", "f", "MainThread"), Called("cni/a.py", "g", "cni-1")
    assert [is_of_pod(call) for call in (server, plugin, Called("daemon/a.py", "h", "Task-1"))] == [True, True, False]
