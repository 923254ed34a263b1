"""How the weftd that runs here was started, for commands that are to do as it does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from weft.config.flags import parse_flags
from weft.config.goflags import tokens
from weft.config.options import Options
from weft.kernel import asking, daemons
from weft.model.value import Value

_ENVIRON: Final = "FLANNELD_"
_TAKES_A_WORD: Final = ("-W", "-X", "--check-hash-based-pycs")  # of Python's options


class Started(Value):
    """The flags of process `pid`, a weftd, and its environment."""

    pid: int
    flags: list[str]
    environ: dict[str, str]

    def options(self, flags: Sequence[str], environ: Mapping[str, str]) -> Options:
        """Return its options; `flags` and `environ` come before them. Raises `ConfigError`."""
        given = {each.flag.name for each in tokens(flags).given}
        own = [each for each in tokens(self.flags).given if each.flag.name not in given]
        named = {name: value for name, value in environ.items() if name.startswith(_ENVIRON)}
        return parse_flags([*(f"--{each.flag.name}={each.text}" for each in own), *flags], self.environ | named)


def here(proc: Path = Path("/proc")) -> Started | None:
    """The one that runs in this network namespace; None if there is none, several, or it cannot be looked at.

    Raises `Unavailable` for one that does not answer.
    """
    names = daemons.living()
    pid = asking.process(names[0]) if len(names) == 1 else 0
    if not pid:
        return None
    try:
        words = _texts(proc / str(pid) / "cmdline")
        environ = dict(word.partition("=")[::2] for word in _texts(proc / str(pid) / "environ"))
    except OSError:  # it has ended meanwhile, or another user runs it
        return None
    return Started(pid=pid, flags=words[_program(words) + 1 :], environ=environ)


def _program(words: list[str]) -> int:
    """Return the place of the program that Python runs in its command. In a pod weftd is called flanneld."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "-m":
            return place + 1
        place += 2 if words[place] in _TAKES_A_WORD else 1
    return place


def _texts(file: Path) -> list[str]:
    """The texts of a file that ends each with a NUL."""
    return file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
