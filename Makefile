# `make demo` sets everything up and runs the main job; `make test` sets everything up and tests it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo setup test test-full lint clean

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
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -m 'not full'

test-full: lint
	$(BIN)/pytest

clean:
	rm -rf .venv build *.egg-info runs results
