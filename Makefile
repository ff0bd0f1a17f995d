# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
#
# `make demo` sets everything up and runs the main job; `make test` sets everything up and tests it.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(PYTHON) constraints/install.py
LOCKS := pyproject.toml $(wildcard constraints/*)

ARGS ?=

# Without these files, each of the many processes compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo setup setup-light setup-dev test test-all test-slow test-lowest test-vm coverage mutants lint site dist lock sbom audit clean

demo: setup
	$(BIN)/testbed run scenarios/quickstart.yaml --out runs/demo --overwrite

# What users need; `setup-light`: all but torch; `setup-dev`: what the targets below need, too.
setup: .venv/.ready
setup-light: .venv/.light
setup-dev: .venv/.dev

.venv/.light: $(LOCKS)
	@$(INSTALL) light
	@$(BIN)/python -m orchestrator.engine.prepared
	@touch $@

.venv/.ready: $(LOCKS)
	@$(INSTALL) full
	@$(BIN)/python -m orchestrator.engine.prepared
	@touch .venv/.light $@

.venv/.dev: $(LOCKS)
	@$(INSTALL) dev
	@$(BIN)/python -m orchestrator.engine.prepared
	@touch .venv/.light .venv/.ready $@

lint: setup-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/reuse lint --lines
	$(BIN)/python tests/prose/lint.py

# tests/durations.json says which tests are slow; `full` are those that take CI too long.
QUICK = not slow and not full

test: lint
	$(BIN)/python tests/suite.py -m '$(QUICK)'

test-all: lint
	$(BIN)/python tests/suite.py

# What CI runs after `make test`.
test-slow: setup-dev
	$(BIN)/python tests/suite.py -m 'slow and not full'

# Python bindings of ns-3, which are not used.
BINDINGS := $(foreach part,cppyy cppyy-backend cppyy-cling cpycppyy,--no-emit-package $(part))

# All tests but the longest with the lowest versions that pyproject.toml allows, in an environment of
# their own in build/lowest. TESTS: of these alone.
LOWEST := build/lowest/venv
TOOLS := accelerate duckdb execnet iniconfig nbformat peft pluggy pytest pytest-timeout pytest-xdist \
	setuptools-scm simpy vcs-versioning
test-lowest: setup-dev
	mkdir -p build/lowest
	$(INSTALL) uv -- pip compile pyproject.toml --extra full --extra language --resolution lowest-direct \
		--python $(BIN)/python --no-annotate --no-header --quiet $(BINDINGS) -o build/lowest/packages.txt
	$(foreach tool,$(TOOLS),grep -oE '^$(tool)==[^ ]+' constraints/dev.txt >> build/lowest/packages.txt &&) true
	$(INSTALL) uv -- venv --quiet --allow-existing --python $(BIN)/python $(LOWEST)
	$(INSTALL) uv -- pip sync --quiet --python $(LOWEST) build/lowest/packages.txt
	$(INSTALL) uv -- pip install --quiet --python $(LOWEST) --no-deps --no-build-isolation -e .
	$(LOWEST)/bin/python tests/suite.py -m 'not full' \
		$(or $(TESTS),$(addprefix tests/,ns3_scenarios orchestrator testbed workloads))

# The testbed on Debian's stock kernels 6.1 and 6.12, in a virtual machine: minutes under KVM, an hour
# a kernel and more without. ARGS: of tests/vm/vm.py, as `--kernel 6.12 --only doctor`.
test-vm: setup-dev
	$(BIN)/python tests/vm/vm.py $(ARGS)

# Which lines these tests execute, in processes that they start or fork, too: in
# build/coverage/lines.txt, where two revisions can be compared with diff, and as pages in
# build/coverage/html. TESTS: of these alone.
TESTS ?=
coverage: setup-dev
	rm -rf build/coverage && mkdir -p build/coverage
	-COVERAGE_RCFILE=$(CURDIR)/pyproject.toml $(BIN)/coverage run tests/suite.py -m 'not full' $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory build/coverage/html
	$(BIN)/coverage report --show-missing > build/coverage/lines.txt
	@tail -n 1 build/coverage/lines.txt

# Whether a test fails when a line is wrong: in build/mutants.json, which mutants survived. ARGS: of
# tests/mutants/mutants.py, as `--module wire`, `--sample 20` of each module, `--seed 2`.
mutants: setup-dev
	@mkdir -p build
	$(BIN)/python tests/mutants/mutants.py --json build/mutants.json $(ARGS)

# The documentation as a site, in build/site.
site: setup-dev
	$(BIN)/python site/make.py

# The package, as an index gets it: the sdist, and the wheel that is built from it, in build/dist.
dist: setup-dev
	rm -rf build/dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir build/dist
	$(BIN)/twine check --strict build/dist/*.*

# Every version and hash anew, from pyproject.toml; what dev.txt holds stays if it can.
COMPILE = $(INSTALL) uv -- pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet
lock:
	$(COMPILE) pyproject.toml --extra dev $(BINDINGS) -o constraints/dev.txt
	rm constraints/full.txt constraints/light.txt  # uv keeps the hashes of a file that is there.
	$(COMPILE) pyproject.toml --extra full $(BINDINGS) -c constraints/dev.txt -o constraints/full.txt
	$(COMPILE) pyproject.toml --extra report $(BINDINGS) -c constraints/dev.txt -o constraints/light.txt
	printf 'setuptools\nsetuptools-scm\npoetry-core\n' | $(COMPILE) - -c constraints/dev.txt -o constraints/build.txt
	echo uv | $(COMPILE) - -o constraints/uv.txt

# A software bill of materials of what is installed, as CycloneDX.
sbom: setup-dev
	$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml -o sbom.json

# Known faults of the pinned versions, from the advisory database of the Python index.
audit: setup-dev
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r constraints/dev.txt

clean:
	rm -rf .venv build *.egg-info runs results
