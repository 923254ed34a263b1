#!/usr/bin/env bash
# Resolves requirements/*.txt anew from pyproject.toml: newest allowed versions, with hashes, without addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { .venv-tools/bin/uv pip compile -q --upgrade --generate-hashes --universal --no-header "$@"; }
compile pyproject.toml -o requirements/run.txt
compile pyproject.toml --group dev -o requirements/dev.txt
compile --group release -o requirements/release.txt
compile --group tools -o requirements/tools.txt
compile --group build -o requirements/build.txt
if grep -nE '://|^--' requirements/*.txt; then
    echo 'lock: the files above name an address' >&2
    exit 1
fi
