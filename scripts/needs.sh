#!/usr/bin/env bash
# Puts the locked packages that a node needs into a folder: scripts/needs.sh x86_64|aarch64 PYTHON FOLDER [OPTION-OF-UV…]
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv-tools/bin/uv pip install --quiet --python .venv/bin/python --python-platform "$1-manylinux_2_36" --python-version "$2" \
    --target "$3" --link-mode copy --no-deps --only-binary :all: --require-hashes --requirement requirements/run.txt "${@:4}"
