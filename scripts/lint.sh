#!/usr/bin/env bash
# Style, types, import contracts, and what the tests claim of the specification. Says all that is wrong, not the first of it.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
result=0
check() { printf '\n== %s\n' "$1"; shift; "$@" || result=1; }

check 'ruff check' $bin/ruff check
check 'ruff format' $bin/ruff format --check
check 'mypy --strict' $bin/mypy
check 'pyright' env PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $bin/pyright
check 'import contracts' $bin/lint-imports --no-logo
check 'generated stubs' scripts/stubs.sh --check
check "the specification's ids" $bin/python -m tests.spec.proved
exit $result
