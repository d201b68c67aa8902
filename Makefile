# `make demo` and `make test` set everything up in .venv and are the only commands a newcomer needs.
# Both work offline once they have run: pip is called only when pyproject.toml or constraints.txt
# has changed, and the model stays in the cache directory. Standard output is left to the programs.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
STAMP := $(VENV)/installed-$(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')
REPORT := examples/report.pdf

.PHONY: help demo test setup model lint bench clean

help:
	@echo "make demo    fetch the default model, write a sample report and summarise it"
	@echo "make test    lint, types, import rules and the tests"
	@echo "make setup   create .venv and install what is pinned in constraints.txt"
	@echo "make lint    what the pre-commit hook runs"
	@echo "make bench   the benchmarks; options in ARGS=..."
	@echo "make clean   remove .venv, caches and generated files (not the fetched model)"

demo: setup model $(REPORT)
	@echo "== kvcli summarize $(REPORT)" >&2
	@$(BIN)/kvcli summarize $(REPORT)

test: setup model lint
	@echo "== tests" >&2
	@KVCLI_CACHE_DIR="$$($(BIN)/python -m kvcli.models cache-dir)" $(BIN)/python -m pytest -q $(ARGS)

setup: $(STAMP)

model: setup
	@echo "== model" >&2
	@$(BIN)/python -m kvcli.models fetch >/dev/null

lint: setup
	@echo "== lint, types, import rules" >&2
	@$(BIN)/pre-commit run --all-files --show-diff-on-failure

bench: setup model
	@$(BIN)/python tests/bench/run.py $(ARGS)

clean:
	@rm -rf $(VENV) build dist *.egg-info .coverage examples/report*.pdf examples/report*.json
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(REPORT): examples/make_report.py $(wildcard examples/bridge_report/*) | $(STAMP)
	@echo "== sample report" >&2
	@$(BIN)/python examples/make_report.py --output $@ >&2

# torch goes first and alone: asked for by its exact version, pip takes a CPU build if one is at hand
$(STAMP):
	@echo "== setup" >&2
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: no '$(PYTHON)' found; kvcli needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: kvcli needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1): make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null || { \
	  echo "make: '$(PYTHON) -m venv' failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "  pip" >&2; $(PIP) install -c constraints.txt --upgrade pip
	@echo "  torch (a few minutes, once)" >&2; $(PIP) install -c constraints.txt torch
	@echo "  kvcli and its tools" >&2; $(PIP) install -c constraints.txt -e . --group dev
	@rm -f $(VENV)/installed-*; touch $@
