#!/usr/bin/env bash
# Makes the release of a tag on GitHub, with what scripts/release.sh built: scripts/github-release.sh vVERSION FOLDER
# The text is the version's section of CHANGELOG.md. `gh` is GitHub's client.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=$1 folder=$2
notes=$(mktemp)
trap 'rm -f "$notes"' EXIT
python3 scripts/changelog.py section "${tag#v}" >"$notes"
gh release create "$tag" --verify-tag --title "weft ${tag#v}" --notes-file "$notes" "$folder"/*
