"""What a release is made by, as far as it needs no build: versions, the changelog, manual pages, workflows."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import changelog, manpages
from weft import __version__, cli
from weft.config.options import FLAGS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEXT = "# Changelog\n\n## Unreleased\n\n### Added\n\n- a\n\n## 0.1.0 – 2026-01-01\n\n### Added\n\n- b\n"


def test_every_file_says_the_same_version():
    assert changelog.versions() == {__version__}


def test_a_version_is_cut_from_the_top_section():
    text = changelog.cut(TEXT, "0.2.0", "2026-12-01")
    assert changelog.section(text, "0.2.0") == "### Added\n\n- a\n"
    assert changelog.section(text, "0.1.0") == "### Added\n\n- b\n"
    assert "## Unreleased\n\n## 0.2.0 – 2026-12-01\n\n### Added" in text


@pytest.mark.parametrize(
    "text, version, said",
    [
        (TEXT, "0.2", "is no version"),
        (TEXT, "0.2.0rc1", "is no version"),
        (TEXT, "0.1.0", "already"),
        (TEXT.replace("### Added\n\n- a\n\n", ""), "0.2.0", "nothing to release"),
    ],
)
def test_what_cannot_be_cut_is_refused(text: str, version: str, said: str):
    with pytest.raises(ValueError, match=said):
        changelog.cut(text, version, "2026-12-01")


def test_a_version_that_was_not_cut_has_no_section():
    with pytest.raises(ValueError, match=r"there is no section '0\.3\.0'"):
        changelog.section(TEXT, "0.3.0")


def test_a_tag_names_the_version_that_the_files_say_and_that_was_cut():
    cut = changelog.cut(TEXT.replace("0.1.0", "0.0.9"), __version__, "2026-12-01")
    changelog.check_tag(f"v{__version__}", cut)
    with pytest.raises(ValueError, match=r"tag v9\.9\.9: the files say"):
        changelog.check_tag("v9.9.9", cut)
    with pytest.raises(ValueError, match="there is no section"):
        changelog.check_tag(f"v{__version__}", "# Changelog\n\n## Unreleased\n")


def test_a_release_looks_at_its_tag_before_it_builds():
    steps = jobs(ROOT / ".github/workflows/release.yml")["build"]["steps"]
    first = next(step["run"] for step in steps if "run" in step)
    assert first == 'scripts/changelog.py tag "$GITHUB_REF_NAME"'


def test_the_manual_pages_name_every_command_and_every_flag():
    weft, weftd = (manpages.pages()[name].replace("\\-", "-") for name in ("weft.1", "weftd.8"))
    for name in (*cli.NODE, "version", "completion"):
        assert f".SS weft {name} " in weft
    assert ".SS weft lab" not in weft
    for flag in FLAGS:
        assert f".B --{flag.name}" in weftd


def test_no_line_of_a_manual_page_is_a_request_by_accident():
    requests = {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".BR", ".I", ".nf", ".fi"}
    for text in manpages.pages().values():
        lines = [line for line in text.splitlines() if line.startswith((".", "'"))]
        assert {line.split()[0] for line in lines} <= requests
    assert manpages._text(".a\n'b\n\\c") == "\\&.a\n\\&'b\n\\ec"


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
class TestWorkflows:
    def test_actions_are_pinned_by_commit(self, path: Path):
        used = re.findall(r"uses: (.*)", path.read_text())
        assert used
        for action in used:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", action), action

    def test_nothing_is_permitted_but_by_a_job(self, path: Path):
        assert yaml.safe_load(path.read_text())["permissions"] == {}
        for name, job in jobs(path).items():
            assert job["permissions"], name
            written = {what for what, how in job["permissions"].items() if how == "write"}
            assert written <= {"attestations", "contents", "id-token", "security-events"}, name

    def test_what_runs_are_scripts_of_the_repository(self, path: Path):
        for name, job in jobs(path).items():
            for step in job["steps"]:
                command = step.get("run", "").removeprefix("sudo ").split()
                if command and step.get("name") != "Keep what an index takes":
                    script = ROOT / command[0]
                    assert script.is_file(), f"{name}: {command}"
                    assert script.stat().st_mode & 0o111, f"{name}: {command}"

    def test_no_checkout_keeps_a_credential(self, path: Path):
        for job in jobs(path).values():
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False


def test_a_workflow_runs_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(jobs(ROOT / ".github/workflows/scheduled.yml")["long"]["strategy"]["matrix"]["target"]) <= targets


def test_a_bug_report_asks_for_a_bundle():
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())
    [bundle] = [field for field in form["body"] if field["id"] == "bundle"]
    assert "`weft bundle`" in bundle["attributes"]["description"]
    assert bundle["validations"]["required"]
