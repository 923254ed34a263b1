#!/usr/bin/env bash
# Makes a release of what is committed twice, in two folders and with another umask and time zone, compares the two byte for
# byte, and installs and uses every artefact: tests/release. As root. scripts/release-check.sh [--keep FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 0 ] || { [ "$1" = --keep ] && [ $# = 2 ]; } || { echo 'release-check: expected nothing, or --keep FOLDER' >&2; exit 2; }
scripts/setup.sh release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commit=$(git rev-parse HEAD) # people may commit meanwhile
release() {
    git clone -q --no-checkout . "$work/$1/weft"
    git -C "$work/$1/weft" checkout -q --detach "$commit"
    local environment
    for environment in .venv .venv-tools .venv-release; do
        ln -s "$PWD/$environment" "$work/$1/weft/$environment"
        echo "/$environment" >>"$work/$1/weft/.git/info/exclude"
    done
    "$work/$1/weft/scripts/release.sh" "$work/$1/out"
}
release first
(umask 077 && export TZ=Asia/Tokyo && release second/further >/dev/null)
diff --recursive "$work/first/out" "$work/second/further/out"
echo "release-check: both builds are the same, byte for byte: $(ls "$work/first/out" | wc -l) files"
# A line for each test, with what it found: `found` in tests/release/conftest.py.
WEFT_RELEASE=$work/first/out .venv/bin/python -m pytest -v --no-header --tb=short -o console_output_style=classic tests/release
[ $# = 0 ] || { mkdir -p "$2" && cp "$work"/first/out/* "$2"; }
