#!/usr/bin/env bash
# Wheels, into a directory: weft-cni, with its static programs, for each kind of machine, and weft-lab.
#
#   scripts/wheel.sh [OUT [x86_64|aarch64]…]    dist, and this machine, by default
#
# The same source, compilers and SOURCE_DATE_EPOCH make the same bytes, in whatever folder.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
machines=("${@:2}")
[ ${#machines[@]} -gt 0 ] || machines=("$(uname -m)")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022
# Beside the checkout: setuptools leaves things where it builds, and a checkout has programs of its own.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard pyproject.toml setup.py README.md LICENSE src lab deploy/kubernetes.yaml \
    docs/reference/problems.md | tar --create --null --files-from=- | tar --extract --no-same-permissions --directory="$copy"
chmod -R u=rwX,go=rX "$copy"
build() {
    .venv-tools/bin/uv build --wheel --quiet --offline --no-build-isolation --python .venv/bin/python --out-dir "$out" "$@"
}
for machine in "${machines[@]}"; do
    compilers=
    [ "$machine" = "$(uname -m)" ] || compilers=$(scripts/cross.sh "$machine"):
    rm -rf "$copy"/src/weft/{cni,forward}/bin "$copy"/build "$copy"/src/*.egg-info
    PATH=$compilers$PATH build "$copy"
    for program in cni/bin/weft-{cni,launch,init} forward/bin/{weft-relay,path.o}; do
        [ -e "$copy/src/weft/$program" ] ||
            { echo "wheel: without $program a wheel would be a slow one: apt-get install clang make musl-tools" >&2; exit 1; }
    done
done
build "$copy/lab"
rm -f "$out/.gitignore"
ls "$out"/*.whl
