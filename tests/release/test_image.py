"""The container image of a release: what is in it, and a lab of Kubernetes nodes whose pods of weft are made of it."""

import gzip
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.test_lab_kubernetes import Cluster
from tests.release.conftest import MACHINES
from tests.support.checkout import CHECKOUT
from tests.support.kubernetes import apiserver
from tests.support.lab import lab
from tests.support.weftd import eventually
from weft import __version__

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
LIMIT = 60_000_000  # bytes of an architecture's packed layers: the figure to reach
# All that can be run in it. There is no shell and no package manager, and nothing that would fetch either.
RUN = re.compile(
    r"usr/sbin/(nft|(ip6?|arp|eb)tables(-(nft|legacy))?(-save|-restore)?|xtables-(nft|legacy)-multi|xtables-monitor"
    r"|ip6?tables(-restore)?-translate|(arp|eb)tables(-restore)?-translate|iptables-xml|nfnl_osf)"
    r"|usr/bin/(python3\.11|iptables-xml)"
    r"|opt/bin/(flanneld|weftd|install-conf|mk-docker-opts\.sh)|opt/weft/bin/(python3|weft|weftd)"
)
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


class Archive:
    """An OCI archive, read as its specification says."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            files = [member for member in tar.getmembers() if member.isfile()]
            self._files = {member.name: tar.extractfile(member).read() for member in files}  # type: ignore[union-attr]
        [self.entry] = json.loads(self._files["index.json"])["manifests"]
        index = json.loads(self.blob(self.entry))
        self.manifests = {each["platform"]["architecture"]: json.loads(self.blob(each)) for each in index["manifests"]}

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        data = self._files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert len(data) == descriptor["size"]
        return data

    def unpack(self, architecture: str, folder: Path) -> Path:
        for layer in self.manifests[architecture]["layers"]:
            data = gzip.decompress(self.blob(layer))
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                assert {(member.uid, member.gid) for member in tar.getmembers()} == {(0, 0)}
            subprocess.run(["tar", "--extract", "--directory", folder], input=data, check=True, timeout=200)
        return folder


@pytest.fixture(scope="module")
def archive(release: Path) -> Archive:
    return Archive(release / f"weft-image-{__version__}.tar")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tree(archive: Archive, architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive.unpack(architecture, tmp_path_factory.mktemp(architecture))


def test_it_is_small(archive: Archive, architecture: str, found: Callable[[str], None]):
    size = sum(layer["size"] for layer in archive.manifests[architecture]["layers"])
    assert size < LIMIT
    found(f"{size / 1e6:.1f} MB of layers, packed")


def test_nothing_else_can_be_run_in_it(tree: Path, found: Callable[[str], None]):
    places = ("usr/bin", "usr/sbin", "opt/bin", "opt/weft/bin")
    names = {str(path.relative_to(tree)) for place in places for path in (tree / place).iterdir()}
    assert not [name for name in names if not RUN.fullmatch(name)]
    assert {"usr/sbin/nft", "usr/sbin/iptables", "opt/bin/flanneld", "opt/weft/bin/weftd"} <= names
    dangling = [path for path in tree.rglob("*") if path.is_symlink() and not _inside(tree, path).exists()]
    assert not dangling
    found(f"{len(names)} programs")


def _inside(tree: Path, link: Path) -> Path:
    target = link.readlink()
    return tree / target.relative_to("/") if target.is_absolute() else link.parent / target


def test_all_that_is_built_is_of_its_architecture_and_finds_its_libraries(
    tree: Path, architecture: str, found: Callable[[str], None]
):
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    built = [path for path in files if path.read_bytes()[:4] == b"\x7fELF" and path.suffix != ".o"]
    assert len(built) > 50
    there = {path.name for path in tree.rglob("*.so*")}
    number = MACHINES[ARCHITECTURES[architecture]]
    for path in built:
        assert int.from_bytes(path.read_bytes()[18:20], "little") == number, path
        said = subprocess.run(["readelf", "--dynamic", path], capture_output=True, text=True, check=True).stdout
        assert set(NEEDED.findall(said)) <= there, path
    found(f"{len(built)} programs and libraries")


def test_python_has_nothing_to_compile_at_a_start(tree: Path):
    for folder in ("opt/weft/lib/python3.11/site-packages/weft", "usr/lib/python3.11/asyncio"):
        sources = [*(tree / folder).rglob("*.py")]
        assert sources
        assert all((path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc").exists() for path in sources)


def test_arm64s_weft_starts(archive: Archive, tmp_path: Path):
    tree = archive.unpack("arm64", tmp_path)
    command = ["qemu-aarch64", "-L", tree, tree / "usr/bin/python3.11", "-c", "from weft.console import weft; weft()"]
    site = tree / "opt/weft/lib/python3.11/site-packages"
    environ = {"PYTHONHOME": f"{tree}/usr", "PYTHONPATH": str(site)}
    ran = subprocess.run([*command, "--version"], env=environ, capture_output=True, check=False, text=True, timeout=300)
    assert ran.stdout == f"weft {__version__}\n", ran.stderr


def test_the_sbom_is_valid_and_names_all_packages(release: Path, architecture: str, found: Callable[[str], None]):
    path = release / f"weft-image-{__version__}-{architecture}.cdx.json"
    names = {each["name"] for each in json.loads(path.read_text())["components"]}
    for lock, pattern in (("image", r"^([a-z][^ ]*) "), ("run", r"^([\w.-]+)==")):
        locked = re.findall(pattern, (CHECKOUT / "requirements" / f"{lock}.txt").read_text(), re.MULTILINE)
        assert len(locked) > 10
        assert names >= {*locked}
    judge = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(str(fault) if fault else 0)
"""
    subprocess.run([CHECKOUT / ".venv-release/bin/python", "-c", judge, path], check=True, timeout=200)
    found(f"{len(names)} packages")


@pytest.mark.timeout(1800)
def test_a_labs_kubernetes_nodes_run_weft_from_it(release: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch):
    """The image takes the place of the lab's own, by its name; then all pods of weft are made anew."""
    monkeypatch.setenv("WEFT_KUBERNETES", str(apiserver.programs()))
    with lab("--kubernetes", "--nodes", "2") as running:
        cluster = Cluster(running)
        for node in ("node1", "node2"):
            with (release / f"weft-image-{__version__}.tar").open("rb") as file:
                running.weft("exec", node, "--", "ctr", "-n", "k8s.io", "images", "import", "-", stdin=file)
        cluster.kubectl("-n", "kube-flannel", "rollout", "restart", "daemonset/kube-flannel-ds")
        cluster.kubectl("-n", "kube-flannel", "rollout", "status", "daemonset/kube-flannel-ds", "--timeout=100s")
        wanted = archive.manifests["amd64"]["config"]["digest"]
        images = _images(cluster)
        assert images, "no pod of weft"
        assert all(image.endswith(wanted) for image in images), images
        cluster.kubectl("create", "deployment", "web", "--image=localhost/pause:1", "--replicas=4")
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
        addresses = [pod["status"]["podIP"] for pod in cluster.get("pods", "-l", "app=web")["items"]]
        for node in ("node1", "node2"):
            for address in addresses:
                eventually(_answers(cluster, node, address), seconds=20)


def _images(cluster: Cluster) -> list[str]:
    pods = cluster.get("pods", "-n", "kube-flannel")["items"]
    return [status["imageID"] for pod in pods for status in pod["status"]["containerStatuses"]]


def _answers(cluster: Cluster, node: str, address: str) -> Callable[[], bool]:
    return lambda: "1 received" in cluster.lab.run(node, "ping", "-c1", "-W2", address, check=False)
