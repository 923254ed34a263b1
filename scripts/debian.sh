#!/usr/bin/env bash
# Runs a command on Debian 12 or 13 in a clean copy of what is committed: scripts/debian.sh 12|13 [COMMAND…]
#
# Without a command, `make demo test`. The Debian is a root file system of its own, made once below ~/.cache/weft and
# entered with pivot_root; what is installed and written there is gone at the end. This machine's network, processors and
# caches are used, none of its programs. What `--take FOLDER` names, before the command, is there at /taken.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo 'debian: needs root, for a root file system' >&2; exit 1; }
case ${1:-} in
    12) suite=bookworm more= ;;
    13) suite=trixie more=,git,golang-go,make,python3-venv ;; # for all of the tests
    *) echo "debian: ${1:-nothing}: expected 12 or 13" >&2; exit 2 ;;
esac
debian=$1
shift
taken=
[ "${1:-}" != --take ] || { taken=$(realpath "$2"); shift 2; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft
base=$cache/debian$debian

if [ ! -d "$base" ]; then
    command -v mmdebstrap >/dev/null || { echo 'debian: apt-get install mmdebstrap' >&2; exit 1; }
    mkdir -p "$cache"
    made=$(mktemp -d "$base.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    mmdebstrap --variant=minbase --include=ca-certificates,python3$more $suite "$made/root" \
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
    mv -T "$made/root" "$base"
    rm -rf "$made"
fi

work=$(mktemp -d "$base-run.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{upper,work,root} "$base-cache"
git clone -q . "$work/upper/checkout"
[ -z "$taken" ] || cp -r "$taken" "$work/upper/taken"
# What leads this machine to its networks leads there, too.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt /etc/apt/apt.conf.d/*proxy* \
    /etc/apt/apt.conf.d/99*; do
    [ ! -e "$file" ] || install -D -m 644 "$file" "$work/upper$file"
done
[ $# -gt 0 ] || set -- make demo test
# shellcheck disable=SC2016 # the inner shell expands
unshare --mount --uts --ipc --pid --fork --kill-child --propagation private bash -euc '
work=$1 base=$2 kept=$3
shift 3
mount -t overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" overlay "$work/root"
cd "$work/root"
mkdir -p root/.cache old
mount --bind "$kept" root/.cache
for place in sys dev; do mount --rbind "/$place" $place; done
mount -t proc proc proc
for place in tmp run; do mount -t tmpfs tmpfs $place; done
pivot_root . old
cd /checkout # not /weft: tests mount that
umount -l /old
export HOME=/root
unset XDG_CACHE_HOME
exec "$@"' bash "$work" "$base" "$base-cache" "$@"
