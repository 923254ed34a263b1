"""The docs are complete, and speak of what is there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts.docs import commands, flags, keys, tutorial
from scripts.docs import files as source
from scripts.docs.jsonshapes import SHAPES
from tests.spec import proved
from weft.config.jsonfields import Fields
from weft.config.netconf import parse_netconf
from weft.daemon.process import logs
from weft.desired.backends import BACKENDS
from weft.desired.backends.ipip import IpipOptions
from weft.desired.backends.vxlan import VxlanOptions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
CODE = re.compile(r"\b[A-Z][A-Z0-9]+-\d{3}\b")

# Words of an English that nobody speaks; `docs/spec` repeats what others wrote.
BANNED = re.compile(r"\b(that is none|is told|anew|whoever|nobody that|of now|meanwhile to)\b", re.IGNORECASE)
TEXTS = [
    *(page for page in PAGES if page.parent != DOCS / "spec"),
    *(path for path in (ROOT / "src").rglob("*.*") if path.suffix in (".py", ".c", ".h", ".js", ".html")),
]

PERMANENT = proved.required((ROOT / "tests" / "spec" / "problem-codes.txt").read_text())


def compat_rows() -> dict[str, list[str]]:
    text = (DOCS / "compat.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row for row in rows if re.fullmatch(r"Q-\d+|12\.3\.\d+|9\.\d+", row[0])}


def node_ids(text: str) -> list[str]:
    return re.findall(r"`([^`]+\.py::[^`]+)`", text)


def exists(node_id: str) -> bool:
    """Tell whether a test of that name is written in that file, whatever its parameters."""
    file, *names = node_id.partition("[")[0].split("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        return False
    scope: list[ast.stmt] = ast.parse(path.read_text()).body
    for name in names:
        found = [node for node in scope if isinstance(node, DEFINITIONS) and node.name == name]
        if not found:
            return False
        scope = found[0].body
    return True


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def problem_sections() -> dict[str, str]:
    _, *parts = re.split(r"^### (.+)$", (DOCS / "reference" / "problems.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_quirk_and_gap_of_upstream_has_a_row():
    wanted = [f"Q-{number}" for number in range(1, 60)] + [f"12.3.{number}" for number in range(1, 25)]
    assert [name for name in compat_rows() if not name.startswith("9.")] == wanted


def test_every_weakness_of_the_references_plugins_has_a_row():
    assert [name for name in compat_rows() if name.startswith("9.")] == [f"9.{number}" for number in range(1, 24)]


@pytest.mark.parametrize("row", compat_rows().values(), ids=list(compat_rows()))
def test_every_row_is_proved_or_says_which_part_it_comes_with(row):
    _, _, status, does, proof = row
    if status == "later":
        assert proof
        return
    assert status in ("better", "copied")
    assert does
    assert node_ids(proof), "names no test"
    assert [node for node in node_ids(proof) if not exists(node)] == []


def test_every_code_has_a_section():
    assert sorted(problem_sections().keys() & set(PERMANENT)) == sorted(PERMANENT)


def test_the_list_of_files_names_where_twenty_changes_go():
    page = (DOCS / "explanation" / "where-changes-go.md").read_text()
    files = re.findall(r"^\| .* \| `([^`]+)` \|$", page, flags=re.MULTILINE)
    assert len(files) == 20
    assert [file for file in files if not (ROOT / "src" / "weft" / file).is_file()] == []
    said = {str(path): sentence for path, sentence in source.files()}
    assert [file for file in files if not said.get(file)] == []


def test_the_log_finds_each_code():
    message = "WARN part: {} seen".format
    found = {code: logs.CODE.search(message(code)) for code in problem_sections()}
    assert [code for code, match in found.items() if match is None or match.group() != code] == []


@cache
def raised() -> dict[str, str]:
    """The codes that messages begin with, each with a place that has it."""
    found = {}
    for path in (ROOT / "src").rglob("*.py"):
        for code in re.finditer(rf"(?<=[\"']){CODE.pattern}", path.read_text()):
            found[code.group()] = str(path)
    return found


def test_every_code_that_is_raised_has_a_section_that_does_not_deny_it():
    sections = problem_sections()
    for code, place in raised().items():
        assert code in sections, place
        assert "*Not reported.*" not in sections[code], place


def test_every_code_that_is_not_raised_says_so():
    for code, text in problem_sections().items():
        assert code in raised() or "*Not reported.*" in text, code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / target.split("#")[0]).exists(), target


def cited(text: str) -> Iterator[tuple[str, str]]:
    """The sections that a text cites, each with its document; in a list the document is named once."""
    document, end = "", 0
    for found in re.finditer(r"(?:\b(\w+\.md|RFC \d+)[\s#]*)?§ ?(\w+(?:\.\d+)*)", text):
        goes_on = re.fullmatch(r"(?: \w+ \d+)?(?:,| and| to|–)\s*", text[end : found.start()])
        document = found[1] or (document if goes_on else "")
        yield document, found[2]
        end = found.end()


def test_a_section_is_cited_with_its_document():
    text = "cni.md §1.2, §3 step 6, §4 and §5 (RFC 8200 §5), flannel.md\n    §7; §8"
    assert list(cited(text)) == [
        *(("cni.md", section) for section in ("1.2", "3", "4", "5")),
        ("RFC 8200", "5"),
        ("flannel.md", "7"),
        ("", "8"),
    ]


def test_every_section_that_is_cited_is_there():
    there = {
        page.name: set(re.findall(r"^#+ (\w+(?:\.\d+)*)\.? ", page.read_text(), flags=re.MULTILINE))
        for page in (*(DOCS / "spec").glob("*.md"), DOCS / "decisions" / "settled.md")
    }
    files = [path for top in ("src", "tests", "benchmarks") for path in (ROOT / top).rglob("*.[pcht]*")]
    pages = [page for page in PAGES if page.name not in there]
    wrong = [
        f"{path.relative_to(ROOT)}: {document or 'nothing'} §{section}"
        for path in (*files, *pages)
        if path.is_file() and path.suffix != ".pyc" and path != Path(__file__)
        for document, section in cited(path.read_text())
        if not document.startswith("RFC ") and section not in there.get(document, ())
    ]
    assert wrong == []


def test_pages_messages_and_comments_are_in_plain_words():
    texts = ((path, " ".join(path.read_text().split())) for path in TEXTS)
    found = [
        f"{path.relative_to(ROOT)}: {text[max(0, match.start() - 30) : match.end() + 30]}"
        for path, text in texts
        for match in BANNED.finditer(text)
    ]
    assert found == []


def test_the_architecture_names_files_that_exist():
    for name in re.findall(r"`([\w/]+\.(?:py|c|proto|toml|txt))`", (DOCS / "architecture.md").read_text()):
        assert (ROOT / "src" / "weft" / name).exists() or (ROOT / name).exists(), name


def test_docstrings_and_comments_name_modules_that_exist():
    """A name in backticks that begins with a package's, as `cni.host.host`, is a module or something in one."""
    source = ROOT / "src" / "weft"
    paths = [path.relative_to(source).with_suffix("") for path in source.rglob("*.py")]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    packages = {module.partition(".")[0] for module in modules}
    wrong = [
        (str(path.relative_to(ROOT)), named)
        for top in ("src", "tests", "benchmarks", "scripts")
        for path in (ROOT / top).rglob("*.py")
        for named in re.findall(r"`(?:weft\.)?([a-z_]+(?:\.\w+)+)`", path.read_text())
        if named.partition(".")[0] in packages
        and not any(named == module or named.startswith(f"{module}.") for module in modules if "." in module)
    ]
    assert wrong == []


def test_the_list_of_files_is_that_of_the_source():
    assert source.PAGE.read_text() == source.render(), "run `make docs`"


def test_the_list_of_flags_is_that_of_the_daemon():
    assert (DOCS / "reference" / "weftd-flags.md").read_text() == flags.render()


def test_the_list_of_commands_is_that_of_the_program():
    assert commands.PAGE.read_text() == commands.render(), "run `make docs`"


def test_every_command_that_prints_json_tells_its_shape():
    printing = {called for called, command in commands.commands() if commands.has_documents(command)}
    assert printing == set(SHAPES), "scripts/docs/jsonshapes.py has the shapes"


def test_every_command_says_what_it_is_for():
    assert [called for called, command in commands.commands() if not command.help] == []


def test_the_page_of_the_tutorial_is_made_from_its_lessons():
    assert tutorial.PAGE.read_text() == tutorial.render(), "run `make docs`"


def test_the_options_of_back_ends_are_those_of_the_source():
    page = keys.BACKENDS.read_text()
    assert page == keys.backends(page), "run `make docs`"
    named = {f"`{row.name}`" for options in (VxlanOptions, IpipOptions) for row in keys.rows_of(options)}
    assert named <= set(page.split())


@pytest.mark.parametrize("name", BACKENDS)
def test_each_back_ends_page_has_a_picture_and_says_what_one_has_to_know(name):
    page = (DOCS / "backends" / f"{name}.md").read_text()
    assert re.search(r"^```\n.*[─═].*?^```$", page, re.MULTILINE | re.DOTALL)
    for part in ("What it needs", "MTU", "When to choose it", "How it differs from upstream's"):
        assert re.search(rf"^(## {part}$|\*\*{part}\.\*\* )", page, re.MULTILINE), part


def test_the_keys_of_the_network_configuration_are_those_that_are_read(monkeypatch):
    read = set()
    last = Fields.last
    monkeypatch.setattr(Fields, "last", lambda fields, key: (read.add((fields._prefix, key)), last(fields, key))[1])
    parse_netconf('{"Network": "10.1.0.0/16", "Backend": {"Type": "alloc"}}', backends=BACKENDS)
    page = (DOCS / "reference" / "network-configuration.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` ", page, re.MULTILINE)) == {key for prefix, key in read if not prefix}


def test_decisions_name_files_that_are_there():
    tops = ("src", "lab", "tests", "benchmarks", "scripts", "docs")
    files = [f"/{path}" for path in (*ROOT.glob("*.*"), *(path for top in tops for path in (ROOT / top).rglob("*.*")))]
    for page in (DOCS / "decisions").glob("*.md"):
        for name in re.findall(r"`([\w./-]+\.(?:py|c|h|sh|toml))`", page.read_text()):
            assert name.startswith("linux/") or any(file.endswith(f"/{name}") for file in files), (page.name, name)
