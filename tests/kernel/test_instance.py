"""Names in a network namespace's abstract sockets: whoever holds one keeps a second daemon away."""

import errno
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import NoReturn

import pytest

from tests.support.netns import Netns
from tests.support.squatter import ROOT, ROOT_IN_A_USER_NAMESPACE, USER, squatting
from weft.daemon.disk import instance
from weft.kernel import daemons, unixsockets
from weft.kernel.unixsockets import Holder
from weft.model.errors import ConfigError, Unavailable

DEVICE, OTHER = "device/flannel.1", "device/flannel.2"


@pytest.fixture
def claim(netns: Netns) -> Iterator[Callable[..., None]]:
    """Claims names inside, for as long as the test lasts."""
    with ExitStack() as held:

        def inside(*names: str) -> None:
            for claimed in netns.call(partial(instance.claim, names)):
                held.callback(claimed.close)

        yield inside


def test_a_name_that_is_taken_is_refused(claim: Callable[..., None], netns: Netns) -> None:
    claim(DEVICE)
    with pytest.raises(ConfigError, match=r"INST-001 device/flannel\.1: kept by another weftd"):
        claim(DEVICE)
    assert netns.call(lambda: instance.is_claimed(DEVICE))


def test_a_refusal_keeps_no_name(claim: Callable[..., None], netns: Netns, caplog: pytest.LogCaptureFixture) -> None:
    """Sockets that were left open would also end the test: they are warned of, and warnings are errors."""
    claim(DEVICE)
    with pytest.raises(ConfigError) as refusal:
        claim(OTHER, DEVICE)
    # While the error is looked at, its traceback keeps what the call had in its hands.
    assert refusal.value.problems[0].where == DEVICE
    assert not netns.call(lambda: instance.is_claimed(OTHER))
    assert "held by" not in caplog.text
    claim(OTHER)


def fill(name: str) -> list[socket.socket]:
    """As many connections as wait for a name that is never accepted from."""
    waiting = []
    while True:
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        if waiting[-1].connect_ex(f"\0weft/{name}"):
            return waiting


def test_a_daemon_that_is_asked_often_is_still_one(claim: Callable[..., None], netns: Netns) -> None:
    """Anybody may fill its backlog; each who asks leaves a connection behind."""
    claim(DEVICE)
    waiting = netns.call(lambda: fill(DEVICE))
    try:
        with pytest.raises(ConfigError, match=r"INST-001 device/flannel\.1: kept by another weftd in this"):
            claim(DEVICE)
        assert netns.call(lambda: instance.is_claimed(DEVICE))
    finally:
        for each in waiting:
            each.close()


@pytest.mark.parametrize("since", ["no Linux", "5.3"])
def test_a_kernel_that_does_not_tell_who_holds_a_name_lets_no_second_daemon_in(
    claim: Callable[..., None], netns: Netns, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """One without unix_diag, or an older one, which leaves the user out."""

    def unknown(_: str) -> NoReturn:
        raise OSError(errno.ENOENT, "no unix_diag")

    if since == "5.3":
        monkeypatch.setattr(unixsockets, "_SHOWN", unixsockets._SHOWN & ~unixsockets._UDIAG_SHOW_UID)
    else:
        monkeypatch.setattr(instance, "holders", unknown)
    claim(DEVICE)
    assert netns.call(lambda: instance.is_claimed(DEVICE))
    waiting = netns.call(lambda: fill(DEVICE))
    try:
        assert netns.call(lambda: instance.is_claimed(DEVICE))
        assert not netns.call(lambda: instance.is_claimed(OTHER))
    finally:
        for each in waiting:
            each.close()


@pytest.mark.parametrize(
    "wrap, user",
    [(USER, 65534), (ROOT, 0), (ROOT_IN_A_USER_NAMESPACE, 0)],
    ids=["a user", "root without capabilities", "root with all of a user namespace"],
)
def test_a_name_that_a_process_without_rights_holds_keeps_no_daemon_away(
    claim: Callable[..., None], netns: Netns, caplog: pytest.LogCaptureFixture, wrap: Sequence[str], user: int
) -> None:
    with squatting(netns, f"weft/{DEVICE}", wrap=wrap):
        claim(DEVICE, OTHER)
        assert f"the name device/flannel.1 is held by user {user}" in caplog.text
        assert not netns.call(lambda: instance.is_claimed(DEVICE))
        assert netns.call(lambda: instance.is_claimed(OTHER))


def test_a_daemon_is_one_whatever_else_has_its_name(claim: Callable[..., None], netns: Netns) -> None:
    """Names are apart by the sockets' type."""
    claim(DEVICE)
    with netns.call(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as other:
        other.bind(f"\0weft/{DEVICE}")
        assert netns.call(lambda: instance.is_claimed(DEVICE))


def test_where_any_socket_may_have_a_buffer_of_that_size_the_user_decides(
    claim: Callable[..., None], netns: Netns, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With net.core.rmem_max at its limit, which is the whole machine's: so the holders are made up."""
    claim(DEVICE)
    monkeypatch.setattr(instance, "holders", lambda _: [Holder(uid=65534, room=2 * instance.SEAL)])
    assert not netns.call(lambda: instance.is_claimed(DEVICE))
    assert "is held by user 65534" in caplog.text
    monkeypatch.setattr(instance, "holders", lambda _: [Holder(uid=0, room=2 * instance.SEAL)])
    assert netns.call(lambda: instance.is_claimed(DEVICE))


def test_in_a_user_namespace_its_roots_names_count() -> None:
    """Nobody can show CAP_NET_ADMIN on a socket there."""
    program = f"from weft.daemon.disk import instance as i; _ = i.claim(['{DEVICE}']); print(i.is_claimed('{DEVICE}'))"
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize(
    "says, seen",
    [(b"x" * 5000, "says more than 0 MiB"), (b"", "does not answer within 1 s")],
    ids=["without end", "a byte now and then"],
)
def test_no_answer_is_read_for_ever(
    claim: Callable[..., None], netns: Netns, monkeypatch: pytest.MonkeyPatch, says: bytes, seen: str
) -> None:
    """Of a process that has all rights, and is no daemon all the same."""
    monkeypatch.setattr(daemons, "_MOST", 1 << 16)
    monkeypatch.setattr(daemons, "_SECONDS", 1.0)
    [listening] = netns.call(lambda: instance.claim(["instance/odd"]))
    done = threading.Event()

    def answer() -> None:
        client, _ = listening.accept()
        with client, suppress(OSError):
            while not done.wait(0 if says else 0.2):
                client.sendall(says or b"x")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(Unavailable, match=f"INST-003 weftd of instance odd: .*{seen}"):
            netns.call(lambda: daemons.ask("odd", daemons.ASK_STATE))
    finally:
        done.set()
        thread.join()
        listening.close()
