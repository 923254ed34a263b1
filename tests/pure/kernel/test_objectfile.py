"""Object files for eBPF: what is read of the one that weft brings along, and what becomes of a broken one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes
from tests.pure.reach import reached, reaches
from weft.forward.build import PATH
from weft.kernel import bpf
from weft.kernel.bpf import Program, Unreadable

LOAD_MAP = 0x18  # BPF_LD | BPF_DW | BPF_IMM, of two instructions
MOVE, EXIT = b"\xb7" + bytes(7), b"\x95" + bytes(7)


def ours() -> bytes:
    file = PATH.built()
    assert file, PATH.hint
    return file.read_bytes()


def test_ours_has_two_programs_that_share_three_maps():
    read = bpf.read(ours())
    assert sorted(read.programs) == ["in", "out"]
    for program in read.programs.values():
        assert set(program.maps.values()) == {"settings", "forwards", "counters"}
        assert {program.code[offset] for offset in program.maps} == {LOAD_MAP}
        assert EXIT in program.code
    assert read.license == "GPL"


def test_a_map_is_loaded_by_its_descriptor():
    code = struct.pack("<BBhiQ", LOAD_MAP, 0x03, 0, 0, 0) + MOVE + EXIT
    program = Program(name="some", code=code, maps={0: "counters"})
    loaded = program.with_maps({"counters": 77})
    assert struct.unpack_from("<BBhi", loaded) == (LOAD_MAP, 0x13, 0, 77)  # BPF_PSEUDO_MAP_FD, for register 3
    assert loaded[8:] == code[8:]
    with pytest.raises(KeyError):
        program.with_maps({})


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "no 64-bit ELF"),
        (b"\x7fELF\x01\x01\x01", "no 64-bit ELF"),
        (b"\x7fELF\x02\x01\x01", "breaks off"),
        (b"\x7fELF\x02\x01\x01" + bytes(57), "not for eBPF"),
    ],
)
def test_what_is_no_object_file(data: bytes, says: str):
    with pytest.raises(Unreadable, match=says):
        bpf.read(data)


def test_one_that_calls_a_function_of_its_own():
    data = bytearray(ours())
    loaded = min(bpf.read(bytes(data)).programs["in"].maps)
    kind = data.index(struct.pack("<QI", loaded, 1)) + 8  # of the relocation of that place
    data[kind] = 10  # R_BPF_64_32
    with pytest.raises(Unreadable, match=f"needs more than maps at {loaded}"):
        bpf.read(bytes(data))


def test_a_table_of_sections_further_away_than_any_file_is_long():
    data = bytearray(ours())
    data[40:48] = b"\xff" * 8  # e_shoff
    with pytest.raises(Unreadable, match="breaks off"):
        bpf.read(bytes(data))


@reaches(readable=0.05, unreadable=0.2)
@given(bent_bytes(st.builds(ours)))
def test_any_bytes_are_read_or_refused(data: bytes):
    try:
        bpf.read(data)
        reached("readable")
    except Unreadable:
        reached("unreadable")
