"""The host's programs for firewall rules, run in the caller's namespace. No other module of a plugin starts any.

Text that comes from a request reaches them by standard input or as one argument, never through a shell.
"""

import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from weft.wire.cni import CniError, failure

FAMILIES: Final = (4, 6)

_IPTABLES: Final = {4: "iptables", 6: "ip6tables"}
_SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Another program may hold the lock of iptables. Less than a request may take (LIMIT_SECONDS in `server`), so that this
# is what its caller is told.
_TIMEOUT_SECONDS: Final = 25


def iptables_save(family: int, table: str = "nat") -> str:
    """Return the rules of a table, as `iptables-save` prints them."""
    return run(f"{_IPTABLES[family]}-save", "-t", table)


def iptables_restore(family: int, lines: Sequence[str], table: str = "nat") -> None:
    """Apply lines of `iptables-restore` to a table in one commit, beside what is there; nothing for no lines."""
    if lines:
        text = "".join(f"{line}\n" for line in (f"*{table}", *lines, "COMMIT"))
        run(f"{_IPTABLES[family]}-restore", "--wait", "--noflush", stdin=text)


def works(program: str, *arguments: str) -> bool:
    """Tell whether a program is there and succeeds."""
    try:
        run(program, *arguments)
    except CniError:
        return False
    return True


def run(program: str, *arguments: str, stdin: str = "") -> str:
    """Return what a program prints. Raises `CniError` if it is missing, fails or does not end."""
    path = shutil.which(program, path=_SEARCH_PATH)
    if path is None:
        raise failure(f"{program}: program not found", f"HOST-002: not in {_SEARCH_PATH}")
    try:
        done = subprocess.run(
            [path, *arguments],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            # What others have put into comments may be anything.
            errors="surrogateescape",
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise failure(f"{program}: no answer within {_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        raise failure(f"running {program} {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
