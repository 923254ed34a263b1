#!/usr/bin/env bash
# Runs the pure tests with newer Pythons than this Debian has: scripts/other-pythons.sh [PYTEST ARGUMENTS]
#
# The interpreters are those of Debian's newer suites, fetched once into ~/.cache/weft and laid over this machine's
# files where this script's own processes alone see them. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo 'other-pythons: needs root, to lay files over this machine'\''s' >&2; exit 1; }

fetch() {
    local suite=$1 version=$2 cache=$3 made
    mkdir -p "$(dirname "$cache")"
    made=$(mktemp -d "$cache.XXXXXX")
    mkdir -p "$made"/{lists,archives}/partial "$made/root"
    # shellcheck disable=SC2064 # the name is known now alone
    trap "rm -rf '$made'" EXIT
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
        >"$made/sources.list"
    local apt=(apt-get -q -o "Dir::State::Lists=$made/lists" -o "Dir::Cache=$made" -o "Dir::Etc::sourceparts=-"
        -o "Dir::Etc::sourcelist=$made/sources.list" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
    "${apt[@]}" update
    "${apt[@]}" install -y --no-install-recommends --download-only "python$version" "python$version-venv"
    local package
    for package in "$made"/archives/*.deb; do dpkg -x "$package" "$made/root"; done
    mv -T "$made/root" "$cache"
    rm -rf "$made"
    trap - EXIT
}
run() {
    local version=$1 cache=$2
    shift 2
    # shellcheck disable=SC2016 # the inner shell expands
    unshare --mount --propagation private bash -euc '
cache=$1 version=$2
shift 2
mount -t tmpfs tmpfs /mnt
mkdir /mnt/{upper,work,root}
cp -a "$cache/." /mnt/upper
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
for place in proc sys dev; do mount --rbind /$place /mnt/root/$place; done
mount -t tmpfs tmpfs /mnt/root/tmp
mkdir -p "/mnt/root$PWD"
mount --bind "$PWD" "/mnt/root$PWD"
exec chroot /mnt/root bash -euc "
    cd \"\$0\"
    export UV_CACHE_DIR=/tmp/uv
    uv=.venv-tools/bin/uv
    \$uv venv -q --python /usr/bin/python$version /tmp/venv
    \$uv pip install -q --python /tmp/venv/bin/python --require-hashes -r requirements/dev.txt
    \$uv pip install -q --python /tmp/venv/bin/python --no-deps --no-build-isolation --offline -e .
    exec /tmp/venv/bin/python -m pytest -q -p no:cacheprovider \"\$@\"
" "$PWD" "$@"' bash "$cache" "$version" "${@:-tests/pure}"
}

for each in 'trixie 3.13' 'sid 3.14'; do
    read -r suite version <<<"$each"
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/$suite
    [ -d "$cache" ] || fetch "$suite" "$version" "$cache"
    echo "Python $version"
    run "$version" "$cache" "$@"
done
