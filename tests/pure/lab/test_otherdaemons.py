"""Programs in the place of a lab's weftd are found before anything starts."""

from pathlib import Path

import pytest

from weft.lab.commands import start
from weft.lab.files import labfile
from weft.model.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, mode in (("flanneld", 0o755), ("notes", 0o644)):
        tmp_path.joinpath(name).touch(mode)
    return tmp_path


def located(folder: Path, *programs: str) -> list[str]:
    nodes = ", ".join(f"{{name: n{number}, daemon: {program}}}" for number, program in enumerate(programs))
    lab = labfile.read(f"nodes: [plain, {nodes}]", str(folder / "lab.yaml"))
    return [node.daemon for node in start.located(lab, str(folder)).nodes]


def test_by_path_and_by_name(folder: Path):
    whole = str(folder / "flanneld")
    assert located(folder, "flanneld", "./flanneld", whole) == ["", whole, whole, whole]


def test_what_cannot_be_run_is_named_with_its_node(folder: Path):
    with pytest.raises(ConfigError) as raised:
        located(folder, "flanneld", "./notes", "flannelt")
    assert [str(problem) for problem in raised.value.problems] == [
        f"LAB-001 n1: daemon: {folder}/./notes is no program that can be run; expected a path, or a name on PATH",
        "LAB-001 n2: daemon: flannelt is no program that can be run; expected a path, or a name on PATH",
    ]


def test_a_lab_without_is_as_it_was(folder: Path):
    lab = labfile.read("nodes: 2", "lab.yaml")
    assert start.located(lab, "") == lab
