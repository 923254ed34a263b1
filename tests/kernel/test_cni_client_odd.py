"""The client in C under the address and undefined-behaviour sanitizers: odd callers, and daemons that break the rules.

By chance: streams of frames, mutated, against a model of what the client must make of them. The seed is printed, and
another one each time; set WEFT_SEED to repeat a run.
"""

import json
import os
import random
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.kernel.cnianswers import Judge, delegates, make_stream
from tests.kernel.cniclient import (
    SANITIZE,
    SANITIZED,
    SOURCE,
    answering,
    check_sane,
    compiled,
    done_frame,
    error,
    run,
    run_frame,
    server,
)
from weft.wire import frames
from weft.wire.frames import Frame, Kind

# For planted faults: one with which each of them is found soon.
SEED = 3


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("sanitized"), "gcc", SANITIZE, "-DCOMING_SECONDS=1")


class TestOddInput:
    @pytest.mark.parametrize(
        "env",
        [
            {"CNI_NETNS": "x" * 10_000},
            {"CNI_NETNS": "/proc/self/ns/net"},
            {"CNI_NETNS": "/proc/self/ns/mnt"},
            {"CNI_NETNS": "/proc"},
            {"CNI_ARGS": "x" * 100_000},
            {f"CNI_{number}": "" for number in range(400)},
            {f"CNI_{number}": "x" * 100_000 for number in range(6)},
            {"CNI_": "", "CNI_X": "=="},
            {"WEFT_CNI_SOCKET": "/" + "x" * 200},
            {"WEFT_CNI_SOCKET": ""},
        ],
    )
    def test_environments(self, sanitized: Path, tmp_path: Path, env: dict[str, str]):
        with server(tmp_path / "sock", answering(done_frame(b"0", b"fine", b""))) as there:
            done = run(sanitized, b"{}", **SANITIZED, **{**there, **env})
        check_sane(done)
        assert done.stdout == b"fine" or json.loads(done.stdout)["code"] in (4, 11)

    @pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
    def test_configurations_of_any_size(self, sanitized: Path, tmp_path: Path, size: int):
        with server(tmp_path / "sock", answering(done_frame(b"0", b"fine", b""))) as env:
            done = run(sanitized, b"x" * size, **SANITIZED, **env)
        check_sane(done)
        assert done.stdout == b"fine"

    @pytest.mark.parametrize("name", ["", "/", "x" * 64, "x" * 200, 'a"b\\c\x01', "\udcff"])
    def test_names(self, sanitized: Path, tmp_path: Path, name: str):
        env = {"CNI_COMMAND": "ADD", "WEFT_CNI_SOCKET": str(tmp_path / "none"), **SANITIZED}
        command = ["bash", "-c", 'exec -a "$1" "$0"', str(sanitized), name]  # Python 3.13 gives no empty name
        done = subprocess.run(command, env=env, input=b"", capture_output=True, timeout=200, check=False)
        check_sane(done)
        error(done)

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"\xff" * 8,
            b"\0\x10\0\1\0\1\0\4",
            b"\0\x10\0\0\0\1\0\4" + bytes(1 << 20),
            b"\0\0\0\3\0\1\0\4abc",
            b"\0\0\0\4\0\1\0\4\xff\xff\xff\xff",
            b"\0\0\0\5\0\1\0\4\0\0\0\2a",
            frames.encode(Frame(kind=Kind.DONE, fields=(b"",) * 320)),
            b"\0\0\x05\x04\0\1\0\4" + bytes(321 * 4),
            done_frame(),
            done_frame(b"0", b""),
            done_frame(b"", b"", b""),
            done_frame(b"256", b"", b""),
            done_frame(b"-1", b"", b""),
            done_frame(b"0x", b"", b""),
            done_frame(b"9" * 100, b"", b""),
            done_frame(b"0\0", b"", b""),
            run_frame(),
            run_frame(b"x"),
            run_frame(b"", b""),
            run_frame(b"x" * 64, b""),
            run_frame(b"a\0b", b""),
            run_frame(b"x", b"", b""),
            run_frame(b"x", b"", b"K" * 20_000),
            run_frame(b"x", b"", *[b"K=" + b"v" * 100] * 300),
            run_frame(b"x", b"", b"a\0b"),
        ],
    )
    def test_answers_that_break_the_rules(self, sanitized: Path, tmp_path: Path, answer: bytes):
        with server(tmp_path / "sock", answering(answer)) as env:
            done = run(sanitized, b"{}", **SANITIZED, **env)
        check_sane(done)
        error(done)

    def test_a_daemon_that_speaks_waits_for_no_delegate(self, sanitized: Path, tmp_path: Path):
        (tmp_path / "hangs").write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / "hangs").chmod(0o755)
        heard: list[bytes] = []

        def serve(connection: socket.socket) -> None:
            answering(run_frame(b"hangs", b"") + done_frame(b"7", b"enough", b""))(connection)
            heard.append(connection.recv(1))

        with server(tmp_path / "sock", serve) as env:
            done = run(sanitized, b"{}", **SANITIZED, **env, PATH="/usr/bin:/bin", CNI_PATH=str(tmp_path))
        check_sane(done)
        assert (done.returncode, done.stdout) == (7, b"enough")
        assert heard == [b""]


def streams(program: Path, directory: Path, rounds: int, *, seed: int | None = None) -> None:
    """Have the client read so many streams by chance; the first that it misunderstands ends the test."""
    if seed is None:
        seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    chance = random.Random(seed)
    found = delegates(directory / "path")
    daemon = Judge()
    with server(directory / "sock", daemon.serve) as env:
        for number in range(rounds):
            stream = make_stream(chance, found)
            daemon.next(stream)
            done = run(program, b"{}", **SANITIZED, **env, PATH="/usr/bin:/bin", CNI_PATH=stream.path)
            try:
                daemon.judge(done)
            except BaseException:
                print(
                    f"round {number}: {stream.data[:200]!r} … of {len(stream.data)} bytes, {stream.path[:99]!r}, {done}"
                )
                raise


def test_streams_by_chance(sanitized: Path, tmp_path: Path):
    streams(sanitized, tmp_path, 150)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_streams(sanitized: Path, tmp_path: Path):
    streams(sanitized, tmp_path, 10_000)


@pytest.mark.parametrize(
    "file, sound, planted",
    [
        pytest.param("frame.c", "if (field > size - at)", "if (field > size)", id="reads behind a frame"),
        pytest.param("frame.c", "frame->count == MAX_FIELDS", "0", id="writes behind the fields"),
        pytest.param("delegate.c", "sizeof changes - used,", "sizeof changes,", id="writes behind the changes"),
        pytest.param("delegate.c", "strchr(name, '/')", "0", id="runs what is outside of CNI_PATH"),
        pytest.param("main.c", "exit_status > 255", "exit_status > 999", id="takes any exit status"),
        pytest.param("main.c", "frame.version != VERSION ||", "", id="takes any version"),
        pytest.param("main.c", "(begun ?", "(1 ?", id="takes orders before the beginning"),
        pytest.param(
            "main.c", "&& frame.version < VERSION", "&& 0", id="takes an older daemon's refusal for an answer"
        ),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, file: str, sound: str, planted: str):
    source = tmp_path / "source"
    shutil.copytree(SOURCE, source)
    text = (source / file).read_text()
    assert text.count(sound) == 1
    (source / file).write_text(text.replace(sound, planted))
    program = compiled(tmp_path, "gcc", SANITIZE, "-DCOMING_SECONDS=1", source=source)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        streams(program, tmp_path, 1000, seed=SEED)
