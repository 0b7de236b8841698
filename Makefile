# make demo   train on a real corpus, print a table, write a report          make test    the whole suite
# make check  ruff and mypy                                                   make bench   speed and quality, heavy
# Each target sets itself up in .venv; PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test check bench clean
.DELETE_ON_ERROR:

$(VENV)/made: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo,plot,dev]'
	@touch $@

$(VENV)/made-bench: $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

demo: $(VENV)/made
	$(BIN)/longtail demo

# Numba's cache does not notice edits in other files, so tests compile everything anew.
test: $(VENV)/made
	@rm -rf .numba && mkdir .numba
	NUMBA_CACHE_DIR=$(CURDIR)/.numba OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

check: $(VENV)/made
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/made-bench
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .numba .mypy_cache .ruff_cache .pytest_cache .hypothesis build demo-output bench-output
