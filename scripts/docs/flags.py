"""docs/reference/weftd-flags.md, made from the daemon's own table."""

from itertools import groupby
from pathlib import Path

from weft.config.flag import Flag
from weft.config.options import FLAGS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "weftd-flags.md"

HEAD = """\
# Flags of weftd

<!-- Made by `make docs` from src/weft/config/options.py: change that. -->

Names, defaults and meanings are those of flanneld 0.28.9; flags marked *weft* are our own.
`-name` and `--name` are the same.
A value follows `=` or comes as the next argument; a boolean takes one only with `=`.
Each flag can also come from the variable `FLANNELD_<NAME>`, upper-case, with `_` for `-`; the flag wins.
Wrong input is listed all at once, and the daemon exits with code 2 before it changes anything.
"""


def render() -> str:
    parts = [HEAD]
    for group, flags in groupby(FLAGS, key=lambda flag: flag.group):
        parts.append(f"## {group}\n")
        parts.append("| Flag | Default | Meaning |\n|---|---|---|\n" + "".join(map(_row, flags)))
    return "\n".join(parts)


def _row(flag: Flag) -> str:
    value = f"={flag.value}" if flag.value else ""
    name = f"--{flag.name}{value}".replace("|", "\\|")
    notes = ["*weft*"] if flag.origin == "weft" else []
    notes += [f"not in this build: {flag.later}"] if flag.later else []
    meaning = flag.help + (f" ({'; '.join(notes)})" if notes else "")
    return f"| `{name}` | {f'`{flag.default}`' if flag.default else ''} | {meaning} |\n"


def write() -> None:
    PAGE.write_text(render())
