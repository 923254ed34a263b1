"""The weftd that `weft plan` is about, and how it was started."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from weft.config.flags import parse_flags
from weft.config.goflags import tokens
from weft.config.options import Options
from weft.kernel import daemons
from weft.model.value import Value

_ENVIRON: Final = "FLANNELD_"
_TAKES_A_WORD: Final = ("-W", "-X", "--check-hash-based-pycs")  # of Python's options


class Started(Value):
    """The flags of the weftd of an `instance`, and its environment."""

    instance: str
    flags: Sequence[str]
    environ: Mapping[str, str]

    def options(self, flags: Sequence[str], environ: Mapping[str, str]) -> Options:
        """Its options; `flags` and `environ` come before them. Raises `ConfigError`."""
        given = {each.flag.name for each in tokens(flags).given}
        own = [each for each in tokens(self.flags).given if each.flag.name not in given]
        named = {name: value for name, value in environ.items() if name.startswith(_ENVIRON)}
        return parse_flags([*(f"--{each.flag.name}={each.text}" for each in own), *flags], {**self.environ, **named})


def here(
    flags: Sequence[str],
    environ: Mapping[str, str],
    directory: Callable[[Options], Path],
    proc: Path = Path("/proc"),
) -> Started | None:
    """The one that runs in this network namespace; of several, the one whose `directory` the flags name. Else None.

    Where its process cannot be looked at, no flags of its own are known. Raises `ConfigError`, and `Unavailable` for
    one that does not answer.
    """
    names = daemons.living()
    if len(names) > 1:
        meant = directory(parse_flags(flags, environ)).name
        names = [name for name in names if name.startswith(meant)]
    if not names:
        return None
    try:
        process = proc / str(daemons.process(names[0]) or "none")  # it may be in another pid namespace
        words = _texts(process / "cmdline")
        own = {key: value for key, _, value in (word.partition("=") for word in _texts(process / "environ"))}
    except OSError:  # it has ended meanwhile, or another user runs it
        return Started(instance=names[0], flags=(), environ=environ)
    return Started(instance=names[0], flags=words[_program(words) + 1 :], environ=own)


def _program(words: list[str]) -> int:
    """The place of the program in Python's command; in a pod it is called flanneld."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "-m":
            return place + 1
        place += 2 if words[place] in _TAKES_A_WORD else 1
    return place


def _texts(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
