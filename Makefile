# Two commands matter: `make reproduce` and `make test`. Every path is relative, so a space in the project's own path is harmless.

.DEFAULT_GOAL := help
.PHONY: help reproduce test test-slow test-oldest setup format bench bench-apps bench-peers lock clean

BIN := .venv/bin
WORKERS ?= 2

# `make PYTHON=/path/to/python ...` chooses the interpreter; otherwise the first that is new enough, an existing .venv before all.
ifdef PYTHON
CANDIDATES := "$(PYTHON)"
NAMED := $(PYTHON)
else
CANDIDATES := $(BIN)/python python3 python3.13 python3.12 python3.11
NAMED := python3
endif
USABLE := $(shell for p in $(CANDIDATES); do \
    if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$p"; break; fi; done)

# Stops with one sentence; without a usable Python nothing else would make sense.
version = $(shell "$(NAMED)" -c 'import sys; print("is Python " + sys.version.split()[0])' 2>/dev/null)
require-python = $(if $(USABLE),,$(error viceversa needs Python 3.11 or newer, but $(NAMED) $(or $(version),does not run); \
install a newer one or name it, as in: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)))
environment = $(require-python)@"$(USABLE)" tools/environment.py

help:
	@echo "make reproduce   repeat the paper's experiment: figure, table and summary in results/reproduce"
	@echo "make test        every check: format, lint, types, import contracts, tests"
	@echo "make test-slow   every published answer by every kind of method: minutes"
	@echo "make test-oldest what JAX's inner parts matter to, on the oldest releases that pyproject.toml admits"
	@echo "make setup       only what make test needs in .venv"
	@echo "make format      format the code and apply the safe fixes"
	@echo "make bench       the benchmarks"
	@echo "make bench-apps  the applications at full size, each checked by a solver or formula outside the package"
	@echo "make bench-peers the default solver beside other packages"
	@echo "make lock        renew the lock files from the ranges in pyproject.toml (Python 3.11)"
	@echo "make clean       remove .venv, caches and build products; results/ stays"

reproduce:
	$(environment) requirements.lock
	@$(BIN)/viceversa reproduce
	@echo "Look in results/reproduce: figure.png (the figure), results.parquet (the table), summary.md (the summary)."

test: setup
	@echo "Format ..."
	@$(BIN)/ruff format --check --quiet . || { echo "Some files are not formatted; make format does it."; exit 1; }
	@echo "Lint ..."
	@$(BIN)/ruff check --quiet .
	@echo "Types ..."
	@$(BIN)/basedpyright
	@echo "Import contracts ..."
	@$(BIN)/lint-imports --no-logo
	@echo "Tests ($(WORKERS) processes) ..."
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-slow: setup
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow

# Lower ends of the ranges in pyproject.toml; the tests are those of what uses JAX beyond its public interface.
OLDEST := .venv-oldest
test-oldest:
	$(require-python)@test -x $(OLDEST)/bin/python || "$(USABLE)" -m venv $(OLDEST)
	@echo "Installing the oldest releases into $(OLDEST) ..."
	@$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check -e ".[tables,certify]" pytest pytest-xdist hypothesis beartype \
		jax==0.8.0 jaxlib==0.8.0 equinox==0.13.0 lineax==0.1.0 jaxtyping==0.3.0 numpy==2.0.0 threadpoolctl==3.5.0
	@$(OLDEST)/bin/python -m pytest -q -n $(WORKERS) --dist worksteal -W ignore::DeprecationWarning \
		tests/driver tests/solver tests/test_driver.py tests/test_functions.py tests/test_plain_sums.py tests/test_problem.py tests/test_written_out.py

setup:
	$(environment) requirements.lock requirements-dev.lock

format: setup
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench:
	$(environment) requirements.lock requirements-bench.lock
	@$(BIN)/python -m benchmarks

bench-apps:
	$(environment) requirements.lock
	@$(BIN)/python -m benchmarks apps

# The peers bring their own pins, so they live apart from .venv.
PEERS := .venv-peers
bench-peers:
	$(require-python)@test -x $(PEERS)/bin/python || "$(USABLE)" -m venv $(PEERS)
	@echo "Installing the peers into $(PEERS) ..."
	@$(PEERS)/bin/python -m pip install -q --disable-pip-version-check -e ".[peers]"
	@$(PEERS)/bin/python -m benchmarks peers

lock:
	$(require-python)@"$(USABLE)" tools/lock.py

clean:
	rm -rf .venv $(OLDEST) $(PEERS) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
