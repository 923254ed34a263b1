"""The import contracts hold, and would notice: each is shown a violation of its own."""

import ast
import graphlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "weft"
LINT = Path(sys.executable).with_name("lint-imports")

PLANTED = {
    "Data flows one way": ("model/planted.py", "import weft.plan.diff"),
    "The pure half does no I/O": ("desired/planted.py", "import socket"),
    "What a diagnosis decides needs no machine": ("diag/checks/planted.py", "import socket"),
    "Diagnosis goes from the sight to the commands": ("diag/trace/planted.py", "import weft.diag.doctor.forms"),
    "What the page shows is decided without the machine": ("ui/measuring.py", "import socket"),
    "A lab does not know its commands": ("lab/services/planted.py", "import weft.lab.commands.choose"),
    "What the tutorial and the quiz say and judge needs no machine": ("lab/tutorial/lessons/links.py", "import socket"),
    "What plugins decide needs no machine": ("cni/plugins/bridge/conf.py", "import weft.kernel.rtnetlink.rtnl"),
    "Plugins do not know what serves them, nor what they share the plugins": (
        "cni/attachment/planted.py",
        "import weft.cni.plugins.bridge.conf",
    ),
    "A node does without the lab and the page": ("web/planted.py", "import starlette"),
    "Back ends do not know each other": ("desired/backends/planted.py", "import weft.desired.backends.vxlan"),
    "gRPC is spoken in cluster/ alone": ("daemon/planted.py", "import grpclib"),
}

# What reads the outside world, and the modules that may: where programs and commands begin. All others get it passed.
WORLD = {("os", "environ"), ("os", "getenv"), ("sys", "argv")}
BEGINNINGS = {
    "cli.py",
    "cni/__main__.py",
    "cni/commands/cni.py",
    "cni/commands/install.py",
    "cni/commands/upstream.py",
    "daemon/commands/policy.py",
    "daemon/commands/verbs.py",
    "diag/options.py",
    "daemon/main.py",
    "daemon/backends/extension/commands.py",
    "lab/commands/demo.py",
    "lab/commands/lifecycle.py",
    "lab/commands/choose.py",
    "lab/commands/policy.py",
    "lab/testing.py",
    "lab/commands/using/executing.py",
    "lab/commands/using/shell.py",
    "lab/commands/tutorial.py",
    "lab/inside/supervisor.py",
    "ui/command.py",
    "screen/say.py",
}


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT, "--no-cache", "--no-logo", "--config", root / "pyproject.toml"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_all_contracts_notice_their_violation(checkout):
    for file, line in PLANTED.values():
        (checkout / "src" / "weft" / file).write_text(f'"""Planted."""\n\n{line}\n')
    result = lint(checkout)
    assert result.returncode == 1
    for name in PLANTED:
        assert f"{name} BROKEN" in result.stdout


def test_a_package_that_no_layer_names_is_an_error(checkout):
    (checkout / "src" / "weft" / "planted").mkdir()
    (checkout / "src" / "weft" / "planted" / "__init__.py").write_text('"""Planted."""\n')
    assert lint(checkout).returncode == 1


def test_no_module_imports_itself_by_way_of_others():
    graph = grimp.build_graph("weft", cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, with the way


def test_the_table_of_commands_alone_imports_by_a_string():
    found = {path for path in SOURCE.rglob("*.py") if re.search(r"import_module|__import__\(", path.read_text())}
    assert found == {SOURCE / "screen" / "groups.py"}


def test_the_environment_and_the_arguments_are_read_at_the_edge():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if str(path.relative_to(SOURCE)) in BEGINNINGS or not re.search(r"os\.(environ|getenv)|sys\.argv", text):
            continue
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'":
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    assert (node.value.id, node.attr) not in WORLD, f"{path}:{node.lineno}"


def test_netlink_sockets_are_the_business_of_kernel_and_of_cni_which_receives_them():
    for path in SOURCE.rglob("*.py"):
        if not (path.is_relative_to(SOURCE / "kernel") or path.is_relative_to(SOURCE / "cni")):
            assert "AF_NETLINK" not in path.read_text(), path


def test_processes_are_looked_for_by_their_numbers_alone():
    """A glob of pathlib raises ESRCH for a file of a process that ends meanwhile, outside of what reads the file."""
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        assert not re.search(r'glob\("\[0-9\]\*/', path.read_text()), path


def test_what_may_hang_is_read_by_the_one_reader_of_small_files():
    """A fifo or a dead disk held the watch, and the end of weftd, for which asyncio's own threads are waited."""
    opening = re.compile(
        r"to_thread|(?<!def )(?<![.\w])open\(|path\.open\(|\.read_(?:text|bytes)\(|cafile=|load_(?:cert|verify)\w+"
    )
    found = {path: opening.findall(path.read_text()) for path in sorted(SOURCE.glob("cluster/**/*.py"))}
    assert {str(path.relative_to(SOURCE)): calls for path, calls in found.items() if calls} == {
        "cluster/secretfile.py": [".read_bytes("],  # at the start, and maybe from a pipe
        "cluster/tls.py": ["load_cert_chain"],  # of what is in memory
    }
    threads = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if "to_thread" in path.read_text()}
    assert {name for name in threads if not name.startswith("lab/")} == set(), "what may hang: weft.beside"


def test_every_module_says_what_it_is_for():
    for path in SOURCE.rglob("*.py"):
        if not path.name.endswith(("_pb2.py", "_grpc.py")):
            assert path.read_text().startswith('"""'), path
