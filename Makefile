# Every target sets up what it needs. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
# constraints.txt takes part in the one resolve, so that a version it pins is never fetched in another. Most of
# the files are never imported: those that are get compiled then.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt
# Two processes side by side, of one thread each, which do not wait for each other by spinning.
TESTS := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 2 --dist worksteal
REQUIREMENTS := pyproject.toml constraints.txt
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check bench docs notebook model clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/dev.stamp model ## run the first example
	$(BIN)/python examples/hard_constraints.py

test: $(VENV)/dev.stamp model ## run the tests
	$(TESTS)

test-long: $(VENV)/dev.stamp model ## run the tests with the full grids
	$(TESTS) -m ''

check: $(VENV)/dev.stamp ## run the linter, the formatter's check and the type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/bench.stamp $(PEERS)/peers.stamp model ## run the benchmarks
	$(BIN)/python -m benchmarks

docs: $(VENV)/dev.stamp ## build the documentation into site/
	$(BIN)/mkdocs build --strict

notebook: $(VENV)/notebooks.stamp model ## open the notebooks
	$(BIN)/jupyter notebook notebooks/

model: $(VENV)/dev.stamp
	$(BIN)/hfppl fetch

clean: ## remove the environment and all that was built (the model's cache stays)
	rm -rf $(VENV) $(PEERS) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an installation that was cut short is done again.
$(VENV)/dev.stamp: $(REQUIREMENTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "hfppl needs Python 3.11 or newer; name one with: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	touch $@

$(VENV)/bench.stamp: $(VENV)/dev.stamp
	$(INSTALL) -e '.[dev,bench]'
	touch $@

# What is compared with is installed apart: its requirements are not ours.
$(PEERS)/peers.stamp: benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --disable-pip-version-check -r benchmarks/peers.txt
	touch $@

$(VENV)/notebooks.stamp: $(VENV)/dev.stamp
	$(INSTALL) -e '.[dev,notebooks]'
	touch $@
