"""`weft lab up --kubernetes` with flannel's DaemonSet in weft's place, while the machine has other work."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import flanneld
from tests.support.kubernetes import apiserver
from tests.support.kubernetes.kubenodes import FLANNEL, NODES, SECONDS, KubeNodes, as_list, nodes_of
from tests.support.lab import WEFT, new_name, weft
from tests.support.weftd import eventually
from weft.lab import places
from weft.lab.kubernetes import programs

pytestmark = [
    pytest.mark.timeout(1800),  # for a machine that is busy with other work
    pytest.mark.skipif(not flanneld.built(), reason=f"{flanneld.HINT} builds upstream's daemon, on an x86-64 machine"),
]

COUNT = 3


@pytest.fixture
def flannels_manifest(tmp_path: Path) -> Path:
    """A directory of Kubernetes' programs whose kubectl puts flannel's manifest where the lab means to put weft's."""
    for name in programs.NODES:
        if (program := apiserver.programs() / name).exists():
            (tmp_path / name).symlink_to(program)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(as_list(FLANNEL.objects()))
    kubectl = tmp_path / "kubectl"
    kubectl.unlink()
    kubectl.write_text(f'#!/bin/sh\nexec {apiserver.programs()}/kubectl "$@" < {manifest}\n')
    kubectl.chmod(0o755)
    return tmp_path


@contextmanager
def busy() -> Iterator[None]:
    """Two processes that never pause."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


@contextmanager
def coming_up(name: str) -> Iterator["subprocess.Popen[str]"]:
    """A lab that is being started, which ends whatever happens."""
    command = [WEFT, "lab", "up", "--kubernetes", "--nodes", str(COUNT), "--name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGINT)
            started.wait()
            weft("lab", "down", name, check=False)


@contextmanager
def nodes_coming(name: str, started: "subprocess.Popen[str]") -> Iterator[KubeNodes]:
    """The nodes of a lab that is coming up, once their runtimes serve kubelets and the API serves us."""
    place = places.home(os.environ) / name

    def served() -> bool:
        assert started.poll() is None, started.communicate()[0]
        config = place / "kubeconfig"
        return config.is_file() and config.read_text() != "" and len([*place.glob("logs/*-kubelet.log")]) == COUNT

    eventually(served, seconds=SECONDS)
    with nodes_of(name) as nodes:
        yield nodes


def test_the_wait_lasts_until_each_of_flannels_daemons_has_a_route_to_every_peer(
    flannels_manifest: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEFT_KUBERNETES", str(flannels_manifest))
    name = new_name()
    with busy(), coming_up(name) as up, nodes_coming(name, up) as nodes:
        nodes.prepare(FLANNEL)
        said = up.communicate()[0]
        assert up.returncode == 0, said + nodes.words()
        assert "every node has a route to every other" in said
        assert all(len(nodes.daemons(node)) == 1 for node in nodes.inits)
        report = json.loads(weft("lab", "ps", "--lab", name, "-o", "json").stdout)
        assert [node["daemon"] for node in report["nodes"]] == ["flanneld"] * COUNT
        subnets = {each["metadata"]["name"]: each["spec"]["podCIDR"] for each in nodes.api.get(NODES)["items"]}
        for node, own in subnets.items():
            routes = nodes.run(node, "ip", "route", "show", "dev", "flannel.1")
            assert [line.split()[0] for line in routes.splitlines()] == sorted({*subnets.values()} - {own})
