# Each target sets up what it needs; the second time that takes no network and no time. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help wheel audit release release-check site setup demo test lint bench conformance debian13 soak mutants spec docs lock stubs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Debian packages, uv, the locked environment in .venv, the CNI client
	@scripts/setup.sh

demo: setup ## a three-node pod network on this machine, and a packet crossing it
	@.venv/bin/weft lab demo

test: setup ## style, types, import contracts and all tests but those of a release
	@scripts/test.sh

lint: setup ## style, types and import contracts alone
	@scripts/lint.sh

bench: setup ## measures against floors and peers of the same run, beside the figures to reach
	@.venv/bin/python -m benchmarks

conformance: ## Kubernetes' own tests of the network, on labs of Kubernetes nodes; builds what they need, once
	@scripts/setup.sh conformance
	@.venv/bin/python -m tests.conformance

debian13: ## demo and tests on Debian 13, in a root file system of its own; as root, with mmdebstrap
	@scripts/debian.sh 13

soak: setup ## all cases of all tests; those that break things, for long; the pure ones with newer Pythons; 100 mutants
	@scripts/test.sh --whole
	@scripts/other-pythons.sh
	@.venv/bin/python -m tests.mutants --sample 100
	@.venv/bin/python -m pytest -q -m soak --timeout=7200 tests

mutants: setup ## changes the source in 300 small ways and counts how many of them a test notices
	@.venv/bin/python -m tests.mutants

spec: setup ## which rows of the specification no test claims yet
	@.venv/bin/python -m tests.spec.proved

docs: setup ## write the pages that are made from the source
	@.venv/bin/python -m scripts.docs

lock: setup ## resolve the requirements anew: versions and hashes, no addresses
	@scripts/lock.sh

stubs: setup ## generate messages and gRPC stubs from our .proto
	@scripts/stubs.sh

wheel: setup ## the wheels of weft, with the static CNI client, and of weft-lab, into dist/
	@scripts/wheel.sh

release-check: ## a release, built twice and compared, with every artefact installed and used; as root
	@scripts/release-check.sh

release: ## wheels, sdist, Debian packages, chart, manifest and SBOM of what is committed, into dist/
	@scripts/setup.sh release
	@scripts/release.sh

audit: ## known vulnerabilities of the locked packages, as PyPI knows them; fails, too, where it cannot be asked
	@scripts/setup.sh release
	@.venv-release/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r requirements/run.txt -r requirements/release.txt

site: ## the docs as a site that needs nothing from elsewhere, into build/site
	@scripts/setup.sh release
	@rm -rf build/site && .venv-release/bin/python -m scripts.site build/site "$$(.venv/bin/weft --version | cut -d" " -f2)"

clean: ## remove what building and testing left here; .venv stays
	rm -rf build .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
