"""The dashboard's queries, asked of a real Prometheus that reads a real daemon: each finds something to show."""

import http.client
import json
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node.plugincalls import Runtime
from tests.support.netns import Netns
from tests.support.waiting import eventually
from tests.support.weftd import Cluster, Daemon
from weft.cni import build
from weft.cni.install.executables import install

DASHBOARD: Final = Path(__file__).parents[2] / "deploy" / "dashboard.json"
PORT: Final = 9090


class Prometheus:
    """Debian's, on a node whose daemon it reads twice a second."""

    def __init__(self, node: Daemon, folder: Path) -> None:
        self._netns = node.netns
        target = f"127.0.0.1:{node.health_port}"
        scrape = {"job_name": "weft", "scrape_interval": "500ms", "scrape_timeout": "500ms"}
        config = {"scrape_configs": [{**scrape, "static_configs": [{"targets": [target]}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config))
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = node.netns.popen([*command, f"--web.listen-address=127.0.0.1:{PORT}"], stderr=log)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query; none while it starts. Fails on one that it does not take."""
        status, text = self._netns.call(lambda: _get(f"/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
        if status in (0, 503):
            return []
        assert status == 200, f"{query}: {text}"
        return list(json.loads(text)["data"]["result"])

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _get(path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError as error:
            return 0, str(error)


@pytest.fixture
def node(cluster: Cluster, tmp_path: Path) -> Daemon:
    """A node on which what the dashboard shows has happened: pods, a repair, a lease that is refused."""
    assert build.PROGRAM.build(), "musl-gcc is missing"
    cluster.configure('{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}')
    made = cluster.node(1).start()
    cluster.peer(50, data={"VtepMAC": "none"})
    cluster.peer(51)
    runtime = Runtime(made, tmp_path, install(tmp_path / "bin").bin_dir)
    pod = Netns()
    made.pods.append(pod)
    assert "ips" in runtime.ask("ADD", "c1", pod, dataDir="/var/lib/cni/networks")  # where the daemon counts addresses
    made.sees("ip route", r"^10\.5\.51\.0/24 ")
    made.ip("route delete 10.5.51.0/24")
    made.sees("ip route", r"^10\.5\.51\.0/24 ")
    return made


@pytest.fixture
def prometheus(node: Daemon, tmp_path: Path) -> Iterator[Prometheus]:
    made = Prometheus(node, tmp_path)
    yield made
    made.close()


def test_each_query_of_the_dashboard_finds_something(prometheus: Prometheus):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]
    assert len(queries) > 10
    eventually(lambda: prometheus.ask("count_over_time(weft_ready[1m]) >= 3"), seconds=60)
    empty = [each for each in queries if not prometheus.ask(each[1].replace("$node", ".*"))]
    assert empty == []
