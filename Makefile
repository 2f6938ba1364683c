# Everything a developer calls. The work is done by small scripts in tools/; the environment in .venv and
# the outputs in build/ make themselves.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
# More arguments for pytest: make test ARGS='-k scope -x'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak check proto golden screens check-generated lock bench coverage format cleanroom clean

help: ## Says what there is to call
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | while read -r target text; do \
		printf '  make %-16s %s\n' "$$target" "$$text"; done

setup: ## Makes .venv match requirements.lock (every other target does this by itself)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "setup: error: $(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=python3.11 …" >&2; exit 1; }
	@$(PYTHON) tools/setup.py

demo: setup ## On a terminal: talk with an agent. Elsewhere: a play with real processes
	@$(VENV_PYTHON) tools/demo.py

test: setup ## Runs the tests
	@$(VENV_PYTHON) -m pytest $(ARGS)

soak: setup ## Runs the tests that take minutes, and searches new examples for every property
	@tools/soak.sh $(ARGS)

bench: setup ## Runs the benchmarks
	@tools/bench.sh $(ARGS)

check: setup ## Runs every check: style, types, architecture, contract, generated files, sizes, addresses
	@$(VENV_PYTHON) tools/check.py $(ARGS)

format: setup ## Formats Python and protos
	@.venv/bin/ruff check --quiet --select I --fix . && .venv/bin/ruff format --quiet . && .venv/bin/buf format -w

proto: setup ## Generates Python and pages from the protos
	@$(VENV_PYTHON) tools/proto.py

check-generated: setup ## Fails if what is generated is not what the protos say
	@$(VENV_PYTHON) tools/proto.py --check

screens: setup ## Puts what a real terminal shows into the docs
	@$(VENV_PYTHON) tools/screens.py

golden: setup ## Reports breaking changes of the contract; updates its image and the golden bytes
	@$(VENV_PYTHON) tools/golden.py
	@$(VENV_PYTHON) tools/wire_golden.py

lock: setup ## Renews both lock files; ARGS=--upgrade for newer versions
	@tools/lock.sh $(ARGS)

coverage: setup ## Runs the tests under coverage and reports
	@tools/coverage.sh $(ARGS)

cleanroom: ## Clones HEAD into an empty Debian (root) or an empty home (others) and runs make test there
	@tools/cleanroom.sh

clean: ## Removes the environment and all outputs
	@rm -rf .venv build dist
