"""The Debian packages of a release: what is in them; and installed, upgraded, removed and purged on a Debian each."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from weft import __version__

SECONDS = 600
# A check is a line of its own: `set -e` passes over a failure before &&.
INSIDE = """\
set -x
dpkg --install /taken/old.deb 2>&1 | tee /tmp/install
grep 'weftd is not started yet' /tmp/install
test "$(weft --version)" = "weft VERSION"
weftd --help | grep -- --etcd-endpoints
weft cni install --no-standin --bin-dir /tmp/cni --conf-dir /tmp/net.d
head --bytes 4 /tmp/cni/bridge | grep ELF
ls /usr/lib/weft/lib/python3*/site-packages/weft/__pycache__/cli.*.pyc
. /usr/share/bash-completion/completions/weft
COMP_WORDS=(weft stat) COMP_CWORD=1
_weft_completion weft
test "${COMPREPLY[*]}" = status
echo FLANNELD_IFACE=eth9 >>/etc/default/weft

dpkg --install /taken/new.deb
test "$(dpkg-query --show --showformat '${Version}' weft)" = "$NEW"
grep FLANNELD_IFACE=eth9 /etc/default/weft
weft --version

mkdir -p /var/lib/weft/x
dpkg --remove weft
test ! -e /usr/lib/weft
test ! -e /usr/sbin/weftd
test -e /etc/default/weft
test -e /var/lib/weft/x
dpkg --purge weft | tee /tmp/purge
grep 'What stays' /tmp/purge
test ! -e /etc/default/weft
test ! -e /var/lib/weft
"""


def run(*command: str | Path) -> str:
    ran = subprocess.run(
        [*map(str, command)], capture_output=True, check=False, text=True, timeout=SECONDS, cwd=CHECKOUT
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize("debian", ["12", "13"])
def test_a_package_is_installed_upgraded_removed_and_purged(release: Path, tmp_path: Path, debian: str):
    package = release / f"weft_{__version__}-1~deb{debian}_amd64.deb"
    tree, taken = tmp_path / "tree", tmp_path / "taken"
    taken.mkdir()
    shutil.copy(package, taken / "old.deb")
    run("dpkg-deb", "--raw-extract", package, tree)
    control = tree / "DEBIAN" / "control"
    new = f"{__version__}-2~deb{debian}"
    control.write_text(control.read_text().replace(f"{__version__}-1~", f"{__version__}-2~"))
    run("dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", tree, taken / "new.deb")
    script = (
        INSIDE.replace("VERSION}", "\0").replace("VERSION", __version__).replace("\0", "VERSION}").replace("$NEW", new)
    )
    run(CHECKOUT / "scripts" / "debian.sh", debian, "--take", taken, "bash", "-euo", "pipefail", "-c", script)


@pytest.mark.parametrize("machine", ["amd64", "arm64"])
@pytest.mark.parametrize("debian", ["12", "13"])
def test_a_package_has_its_pages_its_unit_and_its_libraries(
    release: Path, tmp_path: Path, found: Callable[[str], None], *, debian: str, machine: str
):
    package = release / f"weft_{__version__}-1~deb{debian}_{machine}.deb"
    run("dpkg-deb", "--extract", package, tmp_path)
    for page in ("man1/weft.1.gz", "man8/weftd.8.gz"):
        shown = subprocess.run(
            ["man", "--warnings", "--local-file", tmp_path / "usr/share/man" / page],
            env={**os.environ, "MANWIDTH": "100"},
            capture_output=True,
            check=True,
            text=True,
            timeout=SECONDS,
        )
        assert shown.stdout.startswith("weft")
        assert not shown.stderr
    unit = (tmp_path / "usr/lib/systemd/system/weftd.service").read_text()
    assert "\nExecStart=/usr/sbin/weftd\n" in unit
    assert "\nEnvironmentFile=-/etc/default/weft\n" in unit
    [site] = (tmp_path / "usr/lib/weft/lib").glob("python3.*/site-packages")
    number = {"amd64": 62, "arm64": 183}[machine]
    built = [*site.rglob("*.so"), site / "weft/cni/bin/weft-cni"]
    assert len(built) > 5
    for path in built:
        assert int.from_bytes(path.read_bytes()[18:20], "little") == number, path
    for record in site.glob("*.dist-info/RECORD"):
        listed = [line.partition(",")[0] for line in record.read_text().splitlines()]
        assert listed
        assert not [name for name in listed if not (site / name).exists()], record
    owners = run("dpkg-deb", "--contents", package)
    assert all(" root/root " in line for line in owners.splitlines())
    assert "direct_url.json" not in owners
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink())
    found(f"{package.stat().st_size / 1e6:.1f} MB, unpacked {size / 1e6:.1f} MB")
