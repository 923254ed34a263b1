"""The process of charon: its configuration, start and end.

It outlives the daemon, and the next daemon finds it by its socket. Its first argument says that weft has started it.
All charons of a machine share one pid file; it is removed as soon as charon runs, so that nodes in several network
namespaces can have one each.
"""

import errno
import os
import signal
import socket
from pathlib import Path
from typing import Final

from weft.kernel.ending import end, here
from weft.kernel.tools import SEARCH_PATH, find

# Where distributions put it (flannel.md §6.7).
PLACES: Final = (
    *SEARCH_PATH.split(":"),
    "/usr/lib/strongswan",
    "/usr/lib/ipsec",
    "/usr/libexec/strongswan",
    "/usr/libexec/ipsec",
)
SOCKET: Final = "charon.vici"  # in the instance's directory
NUMBER_FILE: Final = Path("/var/run/charon.pid")
PORTS: Final = (500, 4500)
_NAME: Final = "weft-charon"
_PLUGINS: Final = (
    "random nonce openssl aes sha1 sha2 sha3 hmac cmac xcbc kdf gmp curve25519 gcm ccm ctr chapoly"
    " {packets}kernel-netlink socket-default vici"
)
# By default charon looks through all peers for each message of theirs (a table of one row), and at
# each pod's link and route for a better way to its peers (roam events).
_CONFIGURATION: Final = """charon {{
  load = {plugins}
  install_virtual_ip = no
  install_routes = {routes}
  ikesa_table_size = 1024
  ikesa_table_segments = 16
  filelog {{
    stderr {{
      default = 0
      dmn = 1
      lib = 1
      flush_line = yes
    }}
  }}
  plugins {{
    kernel-netlink {{
      roam_events = no
    }}
    vici {{
      socket = unix://{socket}
    }}
  }}
}}
"""


def configuration(socket_path: Path, *, in_process: bool) -> str:
    """The text of strongswan.conf; with `in_process` charon carries packets itself."""
    return _CONFIGURATION.format(
        plugins=_PLUGINS.format(packets="kernel-libipsec " if in_process else ""),
        routes="yes" if in_process else "no",
        socket=socket_path,
    )


def installed() -> Path | None:
    found = find("charon", ":".join(PLACES))
    return None if found is None else Path(found)


def start(configured: Path, log: Path) -> int:
    """Return its process id. Raises `OSError`.

    Its output goes to `log`, which is emptied first. It shares no descriptor or terminal with this process.
    """
    program = installed()
    if program is None:
        raise OSError(errno.ENOENT, "there is no charon: install strongSwan (strongswan-charon, strongswan-swanctl)")
    _refuse_beside_others()
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    files.append((os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600))
    environ = {"STRONGSWAN_CONF": str(configured), "PATH": SEARCH_PATH}
    return os.posix_spawn(program, [_NAME], environ, file_actions=files, setsid=True)


def _refuse_beside_others() -> None:
    """Raise `OSError` while another charon, or another program at its ports, keeps ours from starting."""
    holder = _noted()
    if holder and _is_ours(holder):
        NUMBER_FILE.unlink(missing_ok=True)
    elif holder and _comm(holder) == "charon":
        taken = f"process {holder} is a charon that weft has not started ({NUMBER_FILE})"
        raise OSError(errno.EADDRINUSE, f"{taken}: stop it (`systemctl disable --now strongswan-starter`)")
    elif holder:
        NUMBER_FILE.unlink(missing_ok=True)  # of a charon before the boot, or of another container
    for port in PORTS:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
            try:
                trial.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                seen = f"UDP port {port} is taken: stop the program that has it (`ss -lunp sport = :{port}`)"
                raise OSError(errno.EADDRINUSE, seen) from None


def forget_number(pid: int) -> None:
    """Remove the pid file of our charon, which would keep another node's from starting."""
    if _noted() == pid:
        NUMBER_FILE.unlink(missing_ok=True)


def running() -> list[int]:
    """The charons that weft has started in this thread's network namespace."""
    return here(_is_ours)


def end_all() -> bool:
    """End the charons that weft has started in this namespace; False if there were none.

    A charon that is asked to end tells its peers, and removes what it has installed.
    """
    found = running()
    for pid in found:
        end(pid, _is_ours, signal.SIGTERM, signal.SIGKILL)
    return bool(found)


def _is_ours(pid: int) -> bool:
    """A process that has ended has no arguments."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == f"{_NAME}\0".encode()
    except OSError:
        return False


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _noted() -> int:
    """The number in the pid file; 0 without one."""
    try:
        return int(NUMBER_FILE.read_text())
    except (OSError, ValueError):
        return 0
