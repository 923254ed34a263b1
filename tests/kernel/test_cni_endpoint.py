"""The daemon's socket for CNI clients: when its name is there, what its directory may be, and what is left of it."""

import os
import socket
import stat
from pathlib import Path

import pytest

from tests.kernel.cniclient import SOURCE
from weft.cni.host.state import SOCKET
from weft.cni.serve.endpoint import Endpoint
from weft.model.errors import ConfigError, Unavailable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "cni.sock"


def client(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


def test_the_client_looks_where_it_is():
    assert f'#define WEFT_SOCKET "{SOCKET}"\n' in (SOURCE / "weft.h").read_text()


def test_once_hidden_no_client_comes_and_those_that_have_come_are_accepted(path: Path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    endpoint = Endpoint.open(str(path))
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(BlockingIOError):
        endpoint.socket.accept()
    with client(path):
        endpoint.hide()
        assert not path.exists()
        endpoint.socket.accept()[0].close()
    endpoint.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_closing_removes_the_name_and_leaves_the_place_to_another(path: Path):
    Endpoint.open(str(path)).close()
    assert not path.exists()
    Endpoint.open(str(path)).close()


def test_while_one_is_open_another_is_refused_and_takes_nothing_away(path: Path):
    endpoint = Endpoint.open(str(path))
    with pytest.raises(Unavailable, match=r"INST-001.*another daemon serves it"):
        Endpoint.open(str(path))
    client(path).close()
    endpoint.close()


def test_what_a_dead_daemon_has_left_half_made_is_taken_over(path: Path):
    path.parent.mkdir(mode=0o700)
    path.touch()
    path.with_name("cni.sock.new").touch()
    endpoint = Endpoint.open(str(path))
    client(path).close()
    assert path.is_socket()
    assert not path.with_name("cni.sock.new").exists()
    endpoint.close()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_open_to_others_is_refused(path: Path, mode: int):
    path.parent.mkdir()
    (path.parent / "somebody's").touch()
    path.parent.chmod(mode)
    with pytest.raises(ConfigError, match=f"FLAG-001.*uid 0, mode {mode:04o}"):
        Endpoint.open(str(path))
    assert path.parent.stat().st_mode & 0o777 == mode


def test_a_directory_that_a_kubelet_has_just_made_is_closed_to_others(path: Path):
    path.parent.mkdir()
    path.parent.chmod(0o755)
    Endpoint.open(str(path)).close()
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_empty_directory_that_others_can_write_to_is_refused(path: Path):
    path.parent.mkdir()
    path.parent.chmod(0o775)
    with pytest.raises(ConfigError, match=r"FLAG-001.*uid 0, mode 0775"):
        Endpoint.open(str(path))


def test_another_users_directory_is_refused(path: Path):
    path.parent.mkdir(mode=0o700)
    os.chown(path.parent, 1, 1)
    with pytest.raises(ConfigError, match=r"FLAG-001.*uid 1, mode 0700"):
        Endpoint.open(str(path))


def test_a_path_that_no_socket_can_have_is_refused(path: Path):
    path.parent.touch()
    with pytest.raises(ConfigError, match=r"FLAG-001.*: Not a directory"):
        Endpoint.open(str(path))
    with pytest.raises(ConfigError, match=r"FLAG-001.*AF_UNIX path too long"):
        Endpoint.open(str(path.parent.with_name("x" * 100)))
