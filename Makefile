# `make demo` sets everything up and runs the main job; `make test` sets everything up and tests it.
PYTHON ?= python3
BIN := .venv/bin

PIP_QUIET := --quiet --disable-pip-version-check

.PHONY: demo setup test test-full lint lock sbom audit clean

demo: setup
	$(BIN)/testbed run scenarios/quickstart.yaml --out runs/demo --overwrite

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' \
		|| { echo "Python's venv is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@command -v g++ >/dev/null \
		|| { echo "g++ is missing (it builds the ns-3 models); on Debian: apt-get install g++" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; h = sysconfig.get_path("include"); \
		sys.exit(not os.path.exists(os.path.join(h, "Python.h")))' \
		|| { echo "Python.h is missing (ns-3's bindings need it); on Debian: apt-get install python3-dev" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP_QUIET) --require-hashes --no-deps -r constraints.txt
	$(BIN)/pip install $(PIP_QUIET) --no-deps --no-build-isolation -e .
	@touch $@

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -m 'not full'

test-full: lint
	$(BIN)/pytest

# Every version and hash anew, from pyproject.toml; what constraints.txt holds stays if it can.
lock: setup
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --no-header -q -o constraints.txt

# A software bill of materials of what is installed, as CycloneDX.
sbom: setup
	$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml -o sbom.json

# Known faults of the pinned versions, from the advisory database of the Python index.
audit: setup
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r constraints.txt

clean:
	rm -rf .venv build *.egg-info runs results
