#!/usr/bin/env bash
# Everything of a release, from what is committed, into a folder: scripts/release.sh [OUT]    dist by default
#
# Wheels, Debian packages and the container image for amd64 and arm64, the sdist, the chart, the manifest, lists of what is
# inside (SBOM) and the sums of all. The same commit makes the same bytes in whatever folder, with the same compilers.
# It publishes nothing. Needs no network after `scripts/setup.sh release`. Says a line for each step; what a step's tools
# say is shown where it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }
out=$(realpath -m "${1:-dist}")
changed=$(git status --short)
[ -z "$changed" ] || fail "a release is made of what is committed, and this is not:
$changed"
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out: is not empty"
[ -x .venv-release/bin/twine ] || fail 'first: scripts/setup.sh release'
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
mkdir -p "$out"
version=$(.venv/bin/python -c 'import weft; print(weft.__version__)')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { # WHAT COMMAND…
    "${@:2}" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$1: failed, as said above"; }
    echo "release: $1"
}
step 'wheels for x86_64 and aarch64, and of the lab' scripts/wheel.sh "$out" x86_64 aarch64
# The sdist is the repository as committed, so that its tests and docs come along; PEP 625 asks for PKG-INFO besides.
.venv/bin/python -m zipfile -e "$out"/weft_cni-*x86_64.whl "$work/wheel"
cp "$work/wheel/weft_cni-$version.dist-info/METADATA" "$work/PKG-INFO"
git -c tar.umask=0022 archive --format=tar --prefix="weft_cni-$version/" --add-file="$work/PKG-INFO" HEAD |
    gzip -9n >"$out/weft_cni-$version.tar.gz"
for machine in x86_64 aarch64; do
    for debian in 12 13; do
        step "package for Debian $debian on $machine" scripts/deb.sh "$out" $machine $debian
    done
done
cp -r deploy/chart "$work/weft"
rm -rf "$work/weft/tests"
tar --create --directory="$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX weft | gzip -9n >"$out/weft-chart-$version.tgz"
cp deploy/kubernetes.yaml "$out/weft-$version.yaml"
step 'list of what is in weft-cni (SBOM)' .venv-release/bin/cyclonedx-py requirements --output-reproducible \
    --pyproject pyproject.toml --mc-type application requirements/run.txt --output-file "$out/weft_cni-$version.cdx.json"
step 'image for amd64 and arm64, with an SBOM each' scripts/image.sh "$out"
step 'twine check of wheels and sdist' .venv-release/bin/twine check --strict "$out"/*.whl "$out"/weft_cni-*.tar.gz
step 'check-wheel-contents' .venv-release/bin/check-wheel-contents "$out"
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
(cd "$out" && stat --format='%s %n' -- * | awk '{ printf "release: %7.2f MB  %s\n", $1 / 1e6, $2 }')
