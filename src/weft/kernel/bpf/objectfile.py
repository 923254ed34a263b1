"""Reads programs from an object file that clang has made for eBPF (ELF-64, little-endian). Pure.

A program is a section of its own, `tc/NAME`, and calls no functions. It names its maps as undefined symbols; each place
that loads one (R_BPF_64_64) gets the map's descriptor before the kernel gets the program.
"""

from collections.abc import Iterator, Mapping
from struct import Struct, error
from typing import Final, NamedTuple

from weft.model.value import Value

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


class Unreadable(ValueError):
    """The file cannot be loaded."""


class Program(Value):
    """A compiled program: its instructions, and which map is loaded where (offset in bytes)."""

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
