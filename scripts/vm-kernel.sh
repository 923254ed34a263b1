#!/usr/bin/env bash
# Fetches Debian's cloud kernel with its modules for tests/vm, once: says where it lies. The second time needs no network.
set -euo pipefail
folder=${XDG_CACHE_HOME:-$HOME/.cache}/weft/vm-kernel

mkdir -p "$folder"
newest() { find "$folder" -mindepth 1 -maxdepth 1 -name 'linux-image-*' | sort -V | tail -n 1; }
found=$(newest)
if [ -n "$found" ]; then
    echo "$found"
    exit
fi
work=$(mktemp -d "$folder/.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
package() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }'; }
[ -n "$(package)" ] || apt-get update -q >&2
name=$(package)
apt-get download -q -o APT::Sandbox::User=root "$name" >&2
dpkg -x "$name"_*.deb "$name"
[ -d "$name/lib" ] || ln -s usr/lib "$name/lib" # Debian 13
depmod -b "$name" "$(ls "$name/lib/modules")"
mv "$name" "$folder/$name"
echo "$folder/$name"
