"""What programs of the host print, and the rules of the packet filter, which they list."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from weft.beside.programs import KilledError, run_here
from weft.diag.rules import ruleset
from weft.diag.rules.ruleset import Ruleset
from weft.kernel import tools
from weft.model.kernel.nftrace import TABLE as TRACES

_NFT: Final = ("nft", "-j", "list")
PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9/\\_.-]*", re.ASCII)  # a name that nft reads as one
SAVES: Final = {"ip": "iptables-save", "ip6": "ip6tables-save"}
ENVIRON: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_SECONDS: Final = 10.0


def rules() -> Ruleset:
    saved = dict[str, str]()
    for family, program in SAVES.items():
        with suppress(OSError):
            # What iptables says of its rules where it keeps them in nf_tables: nft has some by name alone.
            saved[family] = said((program,)) if "nf_tables" in said((program, "--version")) else ""
    return ruleset.parse(_listings(), saved)


def _listings() -> list[str]:
    """What nft says of all tables. Raises `OSError`.

    nft 1.0.6 garbles the flag of a table that has an owner, and what it prints may end there. Traces have such tables
    for a second or two: then all others are listed one by one.
    """
    listed = said((*_NFT, "ruleset"))
    if _is_whole(listed):
        return [listed]
    found = list[str]()
    for line in said(("nft", "list", "tables")).splitlines():
        _, family, name = line.split(maxsplit=2)
        if not name.startswith(TRACES):
            found.append(_of_table(family, name))
    return found


def _of_table(family: str, name: str) -> str:
    """Names go into nft's own language, and those who made them may be anybody in the namespace."""
    listed = said((*_NFT, "table", family, name)) if PLAIN.fullmatch(name) else ""
    if not _is_whole(listed):
        raise OSError(f"nft does not list table {family} {name!r} as a whole")
    return listed


def _is_whole(listed: str) -> bool:
    return listed.rstrip().endswith("]}")


def said(command: Sequence[str], *, seconds: float = _SECONDS, most: int = tools.MOST) -> str:
    """What a program of the host prints. Raises `OSError` with its own words, or if it prints too much or hangs."""
    try:
        ran = run_here(command, environ=ENVIRON, seconds=seconds, most=most)
    except KilledError as error:
        raise OSError(error.errno, f"{' '.join(command)}: {error.strerror}") from None
    if ran.status:
        words = " ".join(ran.err.decode(errors="replace").split())
        raise OSError(f"{' '.join(command)}: {words[:200] or f'exit {ran.status}'}")
    return ran.out.decode(errors="replace")
