#!/usr/bin/env bash
# Prints a folder with a musl-gcc that compiles for another kind of machine: scripts/cross.sh aarch64
#
# It is Debian's cross compiler with Debian's musl for that machine, which is unpacked below ~/.cache/weft, once:
# to install it would have this machine's dpkg know a second architecture. `scripts/setup.sh release` has the compiler.
set -euo pipefail
fail() { printf 'cross: %s\n' "$*" >&2; exit 1; }
case ${1:-} in
    aarch64) debian=arm64 ;;
    *) fail "${1:-nothing}: expected aarch64" ;;
esac
machine=$1
compiler=$machine-linux-gnu-gcc
place=${XDG_CACHE_HOME:-$HOME/.cache}/weft/cross-$machine
if [ ! -x "$place/bin/musl-gcc" ]; then
    command -v "$compiler" >/dev/null || fail "no $compiler here: apt-get install gcc-$machine-linux-gnu"
    mkdir -p "${place%/*}"
    made=$(mktemp -d "$place.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    mkdir -p "$made"/{apt/lists/partial,apt/archives/partial,bin}
    # shellcheck source=/dev/null
    . /etc/os-release
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME main" \
        >"$made/apt/sources.list"
    apt() {
        (cd "$made/apt" && apt-get -qq -o APT::Architecture=$debian -o APT::Architectures::=$debian -o Dir::State::status=/dev/null \
            -o APT::Sandbox::User=root -o Dir::State::Lists="$made/apt/lists" -o Dir::Cache="$made/apt" -o Dir::Etc::sourceparts=- \
            -o Dir::Etc::sourcelist="$made/apt/sources.list" "$@") >&2
    }
    apt update
    apt download musl-dev:$debian
    dpkg-deb --extract "$made"/apt/musl-dev_*.deb "$made/musl"
    rm -rf "$made/apt"
    sed -i "s|/usr/|$place/musl/usr/|g" "$made/musl/usr/lib/$machine-linux-musl/musl-gcc.specs"
    printf '#!/bin/sh\nexec %s "$@" -specs %s\n' "$compiler" "$place/musl/usr/lib/$machine-linux-musl/musl-gcc.specs" >"$made/bin/musl-gcc"
    chmod 755 "$made" "$made/bin/musl-gcc"
    mv -T "$made" "$place"
fi
echo "$place/bin"
