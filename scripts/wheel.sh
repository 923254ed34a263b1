#!/usr/bin/env bash
# Two wheels, into a directory (dist/ by default): weft, with the static CNI client of this kind of machine, and weft-lab.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
.venv/bin/python -m weft.cni.build
.venv/bin/python -m weft.forward.build
[ -x src/weft/cni/bin/weft-cni ] || { echo 'wheel: without its client a wheel would be a slow one: install musl-tools and make' >&2; exit 1; }
# Beside the checkout: setuptools leaves things where it builds.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -a pyproject.toml README.md LICENSE src deploy lab "$copy" # src has links to the manifest in deploy and to a page of the docs
install -D -m 644 -t "$copy/docs/reference" docs/reference/problems.md
rm -rf "$copy"/src/*.egg-info
build() {
    .venv-tools/bin/uv build --wheel --quiet --offline --no-build-isolation --python .venv/bin/python --out-dir "$out" "$@"
}
# The tag says what the client runs on; it needs no libc.
build --config-setting="--build-option=--plat-name=linux_$(uname -m)" "$copy"
build "$copy/lab"
rm -f "$out/.gitignore"
ls "$out"/*.whl
