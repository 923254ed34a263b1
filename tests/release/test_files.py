"""What else a release has: sums, the list of what is inside, the chart and the manifest."""

import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.support.checkout import CHECKOUT
from weft import __version__


def test_the_sums_are_those_of_all_files(release: Path, found: Callable[[str], None]):
    lines = (release / "SHA256SUMS").read_text().splitlines()
    said = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in release.iterdir()}
    del there["SHA256SUMS"]
    assert said == there
    found(f"{len(said)} files")


def test_the_sbom_names_every_locked_package(release: Path, found: Callable[[str], None]):
    bom = json.loads((release / f"weft_cni-{__version__}.cdx.json").read_text())
    assert (bom["bomFormat"], bom["metadata"]["component"]["name"]) == ("CycloneDX", "weft-cni")
    locked = re.findall(r"^([\w.-]+)==(\S+)", (CHECKOUT / "requirements" / "run.txt").read_text(), re.MULTILINE)
    assert len(locked) > 10
    assert sorted((each["name"], each["version"]) for each in bom["components"]) == sorted(locked)
    found(f"{len(locked)} packages")


def test_the_chart_has_its_version_and_no_tests(release: Path):
    with tarfile.open(release / f"weft-chart-{__version__}.tgz") as file:
        names = file.getnames()
        chart = file.extractfile("weft/Chart.yaml")
        assert chart is not None
        about = yaml.safe_load(chart)
    assert {about["version"], about["appVersion"]} == {__version__}
    assert about["name"] == "weft", "helm wants the folder to have the chart's name"
    assert "weft/templates/daemonset.yaml" in names
    assert not [name for name in names if "tests" in name]


def test_the_manifest_names_the_image_of_its_version(release: Path):
    documents = yaml.safe_load_all((release / f"weft-{__version__}.yaml").read_text())
    text = json.dumps(list(documents))
    assert set(re.findall(r'"image": "([^"]+)"', text)) == {f"localhost/weft:{__version__}"}


def test_the_sdist_is_what_was_committed(release: Path, found: Callable[[str], None]):
    with tarfile.open(release / f"weft_cni-{__version__}.tar.gz") as file:
        names = {name.partition("/")[2] for name in file.getnames() if not file.getmember(name).isdir()}
        owners = {(member.uid, member.gid, member.mode & 0o022) for member in file.getmembers() if not member.issym()}
        commit = file.pax_headers["comment"]  # git archive's
    command = ["git", "ls-tree", "-r", "--name-only", commit]
    listed = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    tracked = {line for line in listed.splitlines() if not line.startswith('"')}
    assert names == {*tracked, "PKG-INFO"}
    assert owners == {(0, 0, 0)}
    found(f"{len(names)} files of commit {commit[:12]}")
