"""Programs of ours make room for those that were there before: for good, or as far as others can serve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from weft.cni.install import executables, judging
from weft.cni.install.files import lasting, remove
from weft.cni.install.inventory import Inventory
from weft.cni.install.judging import Found
from weft.cni.install.replaced import Replaced

Done = Literal["put back", "left", "gone", "removed", "still weft's", "weft's again"]


def uninstall(inventory: Inventory) -> Mapping[str, Done]:
    """Take everything of ours away, and put back what it has replaced; return what was done with each.

    The configuration goes first, so that no runtime looks for a plugin that has gone; `.weft-python` goes last: a
    client may need it now.
    """
    bin_dir = inventory.bin_dir
    if not bin_dir.is_dir():
        return {}
    done: dict[str, Done] = {name: take_network(inventory, name) for name in inventory.digests if "/" in name}
    done |= _change(inventory, for_good=True)
    inventory.digests.clear()
    with lasting(bin_dir):
        inventory.write()
        remove(bin_dir / executables.SETTINGS)
    return done


def hand_back(inventory: Inventory, *, networks: bool = False) -> Mapping[str, Done]:
    """With `networks` configurations of ours are removed first. Returns what was done under each name."""
    if not inventory.bin_dir.is_dir():
        return {}
    done: dict[str, Done] = {}
    for name in [name for name in inventory.digests if networks and "/" in name]:
        done[name] = take_network(inventory, name)
        del inventory.digests[name]
    done |= _change(inventory, for_good=False)
    with lasting(inventory.bin_dir):
        for name in [name for name, how in done.items() if how in ("put back", "left")]:
            inventory.digests.pop(name, None)
        inventory.write()
    return done


def take_network(inventory: Inventory, name: str) -> Done:
    path = Path(name)
    if not path.parent.is_dir():
        return "gone"
    if not inventory.owns(name):
        return "left" if path.exists() else "gone"
    with lasting(path.parent):
        remove(path)
    return "removed"


def _change(inventory: Inventory, *, for_good: bool) -> dict[str, Done]:
    bin_dir, replaced = inventory.bin_dir, Replaced.beside(inventory.bin_dir)
    names = sorted({*judging.NAMES, *inventory.programs})
    replaced.mend(names)
    there, before = judging.look(bin_dir, names, inventory.digests), replaced.look(names)
    known = {*inventory.programs, *(name for name, found in there.items() if found.state in ("ours", "spoilt"))}
    known |= {name for name, found in before.items() if found.state != "missing"}
    done: dict[str, Done] = {
        name: _fate(there[name], before[name], for_good=for_good) for name in names if name in known
    }
    stays = {there[name].digest for name, how in done.items() if how == "left"}
    with lasting(bin_dir):
        for name, how in done.items():
            if how in ("put back", "weft's again", "removed") and there[name].digest not in stays:
                replaced.keep(name, there[name], inventory.programs)
            if how == "put back":
                replaced.put_back(name, bin_dir / name)
            elif how == "removed":
                remove(bin_dir / name)
        if again := [name for name, how in done.items() if how == "weft's again"]:
            executables.put_client(inventory, again, executables.client(bin_dir))
    replaced.end()
    return done


def _fate(there: Found, before: Found, *, for_good: bool) -> Done:
    """Say what becomes of a name, by what is there and by what was there first.

    A program that others have put there since stays if it serves. One that was there first comes back if it can serve,
    or for good.
    """
    if there.serves:
        return "left"
    if before.serves or (for_good and before.state != "missing" and there.state != "theirs"):
        return "put back"
    if not for_good:
        return "still weft's" if there.state == "ours" else "weft's again"
    if there.state == "missing":
        return "gone"
    return "removed" if there.state in ("ours", "spoilt", "wrong") else "left"
