"""The relay's two directions under libFuzzer, with sanitizers: twenty seconds each time, ten minutes in `make soak`.

It begins with packets that are right, so that it need not find out what one looks like.
"""

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.relay.model.packets import NEEDS_CSUM, VNET, Offload
from tests.support.relay.model.segments import split
from tests.support.relay.relaysite import packet, packet6
from weft.forward.build import PROGRAM

FUZZ = Path(__file__).parents[1] / "fuzz"
OVER = bytes([0, 0, 1, 4, 0, 0, 0, 0])  # an extension header of IPv6
SECONDS = 20
PATIENT_SECONDS = 60  # for what has to be found
LONG_SECONDS = 600
SANITIZE = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")


def fuzzer(directory: Path, source: Path = PROGRAM.source) -> Path:
    """Build the fuzzer of a relay's source."""
    out = directory / "relay"
    sources = [source / f"{name}.c" for name in ("in", "out", "endpoint", "table", "icmp", "join", "split", "packet")]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", *SANITIZE, f"-I{source}", f"-I{FUZZ}"]
    command = ["clang", *flags, "-include", FUZZ / "sockets.h", *sources, FUZZ / "relay.c", "-o", out]
    subprocess.run(command, check=True)
    return out


def run(program: Path, directory: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    """Let it try for so long; it ends at the first fault."""
    beginnings(directory / "corpus")
    command = [program, f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-print_final_stats=1"]
    command += [f"-artifact_prefix={directory}/", directory / "corpus"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def beginnings(directory: Path) -> None:
    """Inputs that are right, for a fuzzer to change."""
    directory.mkdir()
    for name, how, made in whole():
        (directory / f"out-{name}").write_bytes(b"\1" + VNET.pack(*how) + made)
        pieces = b"".join(header + bytes(part) for header, part in split(memoryview(bytearray(made)), how))
        each = how.header_size + how.gso_size
        (directory / f"in-{name}").write_bytes(b"\0" + struct.pack(">BBH", 6, each // 8, len(pieces)) + pieces)
    for name, made in (
        ("plain", packet(b"x" * 16)),
        ("plain6", packet6(b"x" * 16)),
        ("over6", packet6(b"x", over=OVER)),
    ):
        (directory / f"in-{name}").write_bytes(b"\0" + struct.pack(">BBH", 4, 0, len(made)) + made)
        start = 20 if made[0] >> 4 == 4 else len(made) - 24
        (directory / f"out-{name}").write_bytes(b"\1" + VNET.pack(NEEDS_CSUM, 0, 0, 0, start, 6) + made)


def whole() -> list[tuple[str, Offload, bytes]]:
    stream = packet(bytes(1000), flags="PA", seq=1)
    stream6 = packet6(bytes(1000), flags="PA", seq=1)
    over = packet6(bytes(1000), flags="PA", seq=1, over=OVER)
    return [
        ("tcp6", Offload(NEEDS_CSUM, 4, 60, 136, 40, 16), stream6),
        ("tcp6-over", Offload(NEEDS_CSUM, 4, 68, 132, 48, 16), over),
        ("udp6", Offload(NEEDS_CSUM, 5, 48, 112, 40, 6), packet6(bytes(1000))),
        ("tcp", Offload(NEEDS_CSUM, 1, 40, 120, 20, 16), stream),
        ("udp", Offload(NEEDS_CSUM, 5, 28, 100, 20, 6), packet(bytes(1000))),
    ]


def test_nothing_that_is_sent_or_written_breaks_it(tmp_path: Path):
    seconds = int(os.environ.get("WEFT_FUZZ_SECONDS", SECONDS))
    ran = run(fuzzer(tmp_path), tmp_path, seconds)
    assert ran.returncode == 0, ran.stderr[-4000:]
    [inputs] = re.findall(r"stat::number_of_executed_units: (\d+)", ran.stderr)
    print(f"relay: {inputs} inputs in {seconds} s")
    assert int(inputs) > 1000


@pytest.mark.soak
def test_nor_in_ten_minutes(tmp_path: Path):
    ran = run(fuzzer(tmp_path), tmp_path, LONG_SECONDS)
    assert ran.returncode == 0, ran.stderr[-4000:]


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("packet.c", "ip[8] <= 1", "ip[8] < 1"),
        ("packet.c", "ip[7] <= 1", "ip[7] < 1"),
        ("packet.c", "*at + 8 > size || ", ""),
        ("packet.c", "own >= ip_header_size(ip) && own <= size ? own : 0", "own >= ip_header_size(ip) ? own : 0"),
        ("packet.c", "place + 2 > size", "place > size + 9"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, name: str, old: str, new: str):
    source = tmp_path / "source"
    shutil.copytree(PROGRAM.source, source)
    text = (source / name).read_text()
    assert text.count(old) == 1
    (source / name).write_text(text.replace(old, new))
    assert run(fuzzer(tmp_path, source), tmp_path, PATIENT_SECONDS).returncode != 0
