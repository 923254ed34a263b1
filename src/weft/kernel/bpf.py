"""bpf(2), and programs from object files that clang has made for eBPF (ELF-64, little-endian).

A program is a section `tc/NAME` that calls no functions and names its maps as undefined symbols; each place that loads
one (R_BPF_64_64) gets the map's descriptor. Callers close descriptors. Calls raise `OSError`.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct, error, pack
from typing import Final, NamedTuple

from weft.model.value import Value

MAP_HASH, MAP_ARRAY, MAP_PERCPU_ARRAY, MAP_LPM_TRIE = 1, 2, 6, 11
F_NO_PREALLOC: Final = 1  # an LPM trie asks for it
PROG_TYPE_SCHED_CLS: Final = 3

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}  # asm/unistd.h
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE, _MAP_NEXT, _PROG_LOAD = range(6)
_PROG_BY_ID, _MAP_BY_ID, _INFO, _PROG_QUERY = 13, 14, 15, 16
TCX_INGRESS, TCX_EGRESS = 46, 47
_NAME_BYTES: Final = 15
_LOG_BYTES: Final = 1 << 16
_MOST_MAPS: Final = 16
_MOST_PROGRAMS: Final = 64  # at one hook (BPF_MPROG_MAX)

# struct bpf_prog_info up to map_ids: type, id, tag, lengths and addresses of code, time, user, number of maps, ids
_PROG_INFO: Final = Struct("=II8sIIQQQIIQ")
_PROG_NAME: Final = Struct("=16s")  # behind it
_MAP_INFO: Final = Struct("=IIIIII16s")  # struct bpf_map_info: type, id, key, value, entries, flags, name
_POSSIBLE: Final = Path("/sys/devices/system/cpu/possible")  # as 0-3
_libc: Final = ctypes.CDLL(None, use_errno=True)
_PROGRAMS: Final = "tc/"
_LICENSE: Final = "license"
_MAGIC: Final = b"\x7fELF\x02\x01\x01"
_EM_BPF: Final = 247
_SHT_SYMTAB, _SHT_REL = 2, 9
_R_BPF_64_64: Final = 1
_BPF_PSEUDO_MAP_FD: Final = 1  # linux/bpf.h: the source register of an instruction that loads a map

_HEADER: Final = Struct("<16xHHIQQQIHHHHHH")  # Elf64_Ehdr (elf.h)
_SECTION: Final = Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL: Final = Struct("<IBBHQQ")  # Elf64_Sym
_RELOCATION: Final = Struct("<QQ")  # Elf64_Rel
_INSTRUCTION: Final = Struct("<BBhi")  # struct bpf_insn: code, registers (target in the lower half), offset, number


def create_map(kind: int, name: str, *, key: int, value: int, entries: int, flags: int = 0) -> int:
    """Sizes are in bytes. Returns a descriptor."""
    return _call(_MAP_CREATE, pack("=7I16s", kind, key, value, entries, flags, 0, 0, name.encode()[:_NAME_BYTES]))


def load_program(name: str, code: bytes, license_text: str) -> int:
    """Load a program for tc; returns its descriptor. The error holds the verifier's last words."""
    instructions = ctypes.create_string_buffer(code, len(code))
    terms = ctypes.create_string_buffer(license_text.encode())
    said = ctypes.create_string_buffer(_LOG_BYTES)

    def load(level: int) -> int:
        attributes = pack(
            "=IIQQIIQII16s",
            *(PROG_TYPE_SCHED_CLS, len(code) // 8, ctypes.addressof(instructions), ctypes.addressof(terms)),
            *(level, len(said) * bool(level), ctypes.addressof(said) * bool(level), 0, 0, name.encode()[:_NAME_BYTES]),
        )
        return _call(_PROG_LOAD, attributes)

    try:
        return load(0)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise  # no right to it at all
        try:
            return load(1)
        except OSError:
            lines = said.value.decode(errors="replace").strip().splitlines()
            raise OSError(error.errno, f"{error.strerror}: {' '.join(lines[-3:])}") from None


def update(descriptor: int, key: bytes, value: bytes) -> None:
    held = _Held(key, value)
    _call(_MAP_UPDATE, held.attributes(descriptor))


def delete(descriptor: int, key: bytes) -> None:
    """`FileNotFoundError` if there is no such entry."""
    held = _Held(key)
    _call(_MAP_DELETE, held.attributes(descriptor))


def lookup(descriptor: int, key: bytes, size: int) -> bytes:
    """`size` is that of the value, for a map per processor that of all processors. Raises `FileNotFoundError`."""
    held = _Held(key, bytes(size))
    _call(_MAP_LOOKUP, held.attributes(descriptor))
    return held.value.raw


def entries(descriptor: int, key_size: int, value_size: int) -> Iterator[tuple[bytes, bytes]]:
    """The map must not change while it is read."""
    key = None
    while True:
        held = _Held(key or b"", bytes(key_size))
        try:
            _call(_MAP_NEXT, held.attributes(descriptor))
        except FileNotFoundError:
            return
        key = held.value.raw
        yield key, lookup(descriptor, key, value_size)


def maps_of(program_id: int) -> dict[str, int]:
    """Descriptors by name."""
    program = _call(_PROG_BY_ID, pack("=III", program_id, 0, 0))
    try:
        ids = (ctypes.c_uint32 * _MOST_MAPS)()
        asked = _PROG_INFO.pack(0, 0, b"", 0, 0, 0, 0, 0, 0, _MOST_MAPS, ctypes.addressof(ids))
        number = _PROG_INFO.unpack(_info(program, asked))[-2]
    finally:
        os.close(program)
    found: dict[str, int] = {}
    for each in ids[: min(number, _MOST_MAPS)]:
        descriptor = _call(_MAP_BY_ID, pack("=III", each, 0, 0))
        name = _MAP_INFO.unpack(_info(descriptor, bytes(_MAP_INFO.size)))[-1]
        found[name.rstrip(b"\0").decode(errors="replace")] = descriptor
    return found


def name_of(program_id: int) -> str:
    """Empty for a program that has none, or is gone."""
    try:
        program = _call(_PROG_BY_ID, pack("=III", program_id, 0, 0))
    except FileNotFoundError:
        return ""
    try:
        said = _info(program, bytes(_PROG_INFO.size + _PROG_NAME.size))
    finally:
        os.close(program)
    [name] = _PROG_NAME.unpack_from(said, _PROG_INFO.size)
    return str(name.rstrip(b"\0").decode(errors="replace"))


def programs_at(index: int, hook: int) -> list[int]:
    """The ids of the programs that are asked in turn at a link's `TCX_INGRESS` or `TCX_EGRESS`."""
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    # union bpf_attr's query: link, hook, flags, flags of attaching, address of ids, how many; then addresses that are
    # not wanted, and a revision, which the kernel writes.
    asked = pack("=IIIIQI4x24xQ", index, hook, 0, 0, ctypes.addressof(ids), _MOST_PROGRAMS, 0)
    buffer = ctypes.create_string_buffer(asked, len(asked))
    try:
        _called(_PROG_QUERY, buffer)
    except OSError as error:
        if error.errno == errno.EINVAL:  # before Linux 6.6
            return []
        raise
    return list(ids[: int.from_bytes(buffer.raw[24:28], sys.byteorder)])


def map_id(descriptor: int) -> int:
    number: int = _MAP_INFO.unpack(_info(descriptor, bytes(_MAP_INFO.size)))[1]
    return number


def processors() -> int:
    """How many values a map per processor holds for a key: one for each possible processor."""
    return int(_POSSIBLE.read_text().strip().rpartition("-")[2]) + 1


class _Held:
    """A key and a value, which must live while the kernel reads or writes them."""

    def __init__(self, key: bytes, value: bytes = b"") -> None:
        self.key = ctypes.create_string_buffer(key, len(key))
        self.value = ctypes.create_string_buffer(value, len(value))

    def attributes(self, descriptor: int) -> bytes:
        key, value = (ctypes.addressof(each) if len(each) else 0 for each in (self.key, self.value))
        return pack("=IxxxxQQQ", descriptor, key, value, 0)


def _info(descriptor: int, asked: bytes) -> bytes:
    answer = ctypes.create_string_buffer(asked, len(asked))
    _call(_INFO, pack("=IIQ", descriptor, len(asked), ctypes.addressof(answer)))
    return answer.raw


def _call(command: int, attributes: bytes) -> int:
    return _called(command, ctypes.create_string_buffer(attributes, len(attributes)))


def _called(command: int, buffer: "ctypes.Array[ctypes.c_char]") -> int:
    """The kernel may write an answer into the buffer."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) has no known number on {platform.machine()}")
    result: int = _libc.syscall(ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(buffer)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Unreadable(ValueError):
    pass


class Program(Value):
    """`maps` says which map is loaded where (offset in bytes)."""

    name: str
    code: bytes
    maps: Mapping[int, str]

    def with_maps(self, descriptors: Mapping[str, int]) -> bytes:
        """Raises `KeyError` for a map without a descriptor."""
        code = bytearray(self.code)
        for offset, name in self.maps.items():
            kind, registers, _, _ = _INSTRUCTION.unpack_from(code, offset)
            target = registers & 0xF
            _INSTRUCTION.pack_into(code, offset, kind, target | _BPF_PSEUDO_MAP_FD << 4, 0, descriptors[name])
        return bytes(code)


class ObjectFile(Value):
    programs: Mapping[str, Program]
    license: str


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def read(data: bytes) -> ObjectFile:
    """Raises `Unreadable`."""
    try:
        return _read(data)
    except (error, IndexError, OverflowError, UnicodeDecodeError) as broken:  # an offset may be of any size
        raise Unreadable(f"it breaks off: {broken}") from None


def _read(data: bytes) -> ObjectFile:
    if not data.startswith(_MAGIC):
        raise Unreadable("it is no 64-bit ELF file")
    _, machine, _, _, _, start, _, _, _, _, size, number, names = _HEADER.unpack_from(data)
    if machine != _EM_BPF or size != _SECTION.size:
        raise Unreadable("it is not for eBPF")
    sections = [_Section(*_SECTION.unpack_from(data, start + size * each)) for each in range(number)]
    titles = [_text(data, sections[names], section.name) for section in sections]
    symbols = next((list(_symbols(data, sections, each)) for each in sections if each.kind == _SHT_SYMTAB), [])
    maps: dict[int, Mapping[int, str]] = {}
    for section in sections:
        if section.kind == _SHT_REL and titles[section.info].startswith(_PROGRAMS):
            maps[section.info] = dict(_relocations(data, section, symbols))
    programs = {}
    terms = ""
    for index, (title, section) in enumerate(zip(titles, sections, strict=True)):
        if title.startswith(_PROGRAMS):
            name = title.removeprefix(_PROGRAMS)
            programs[name] = Program(name=name, code=_content(data, section), maps=maps.get(index, {}))
        elif title == _LICENSE:
            terms = _content(data, section).rstrip(b"\0").decode()
    return ObjectFile(programs=programs, license=terms)


def _content(data: bytes, section: _Section) -> bytes:
    found = data[section.offset : section.offset + section.size]
    if len(found) != section.size:
        raise Unreadable("it breaks off in a section")
    return found


def _text(data: bytes, strings: _Section, offset: int) -> str:
    return _content(data, strings)[offset:].partition(b"\0")[0].decode()


def _symbols(data: bytes, sections: list[_Section], table: _Section) -> Iterator[str]:
    """Names of symbols in order; empty for those that are defined here."""
    for name, _, _, section, _, _ in _SYMBOL.iter_unpack(_content(data, table)):
        yield "" if section else _text(data, sections[table.link], name)


def _relocations(data: bytes, section: _Section, symbols: list[str]) -> Iterator[tuple[int, str]]:
    for offset, info in _RELOCATION.iter_unpack(_content(data, section)):
        name = symbols[info >> 32]
        if info & 0xFFFFFFFF != _R_BPF_64_64 or not name:
            raise Unreadable(f"a program needs more than maps at {offset}")
        yield offset, name
