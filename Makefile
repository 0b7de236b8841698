# make demo   train on a real corpus, print a table, write a report          make test    the whole suite
# make check  ruff and mypy                                                   make bench   speed and quality, heavy
# make docs   the documentation, into site/                                   make dist    wheel and sdist, tried in a clean environment
# make soak   training runs under fire: kills, faults, flipped bits; long
# make papers DATA=FOLDER   the tables and figures of the five papers, into docs/papers; hours, goes on where it stopped
# make test-lowest    the whole suite on the lowest declared versions         make smoke-lowest    its quick part
# Each target sets itself up in .venv; PYTHON=python3.13 chooses another interpreter, which gets an environment of its own.
PYTHON  ?= python3
VENV    := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN     := $(VENV)/bin
LOWEST  := .venv-lowest
OLDEST  ?= python3.11  # the lowest declared versions have no wheels for newer interpreters
CLEAN   := .venv-dist
DATA    ?= $(LONGTAIL_DATA)
PAPERS  := pd_sparse mach tree one_vs_all memoir
TOOLS   := pytest pytest-xdist hypothesis pandas polars pyarrow tokenizers safetensors  # enough for the tests of the library itself
INSTALL := -m pip install --quiet --disable-pip-version-check
# Processes that tests start find bytecode and machine code of those before them, also where Python is told not to write any.
PYTEST  := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 NUMBA_CACHE_DIR=$(CURDIR)/.numba

.PHONY: demo test soak test-lowest smoke-lowest check docs dist bench papers clean
.DELETE_ON_ERROR:

$(VENV)/made-demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -e '.[demo,plot,serve,embed]'
	@touch $@

$(VENV)/made: $(VENV)/made-demo
	$(BIN)/python $(INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/made-bench: $(VENV)/made
	$(BIN)/python $(INSTALL) -e '.[bench]'
	@touch $@

$(VENV)/made-docs: $(VENV)/made
	$(BIN)/python $(INSTALL) -e '.[docs]'
	@touch $@

$(LOWEST)/made: pyproject.toml .ci/lowest.py
	$(OLDEST) -m venv $(LOWEST)
	$(LOWEST)/bin/python .ci/lowest.py pyproject.toml > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python $(INSTALL) -e '.[demo]' $(TOOLS) -c $(LOWEST)/lowest.txt
	@touch $@

demo: $(VENV)/made-demo
	$(BIN)/longtail demo

# Numba's cache does not notice edits in other files, so tests compile everything from scratch.
test: $(VENV)/made
	@rm -rf .numba && mkdir .numba
	$(PYTEST) $(BIN)/python -m pytest -q -n 2 --dist worksteal

soak: $(VENV)/made
	$(PYTEST) $(BIN)/python -m tests.runs.soak

test-lowest: $(LOWEST)/made
	@rm -rf .numba && mkdir .numba
	$(PYTEST) $(LOWEST)/bin/python -m pytest -q -n 2 --dist worksteal --ignore tests/serve --ignore tests/runs --ignore tests/test_papers.py

smoke-lowest: $(LOWEST)/made
	@rm -rf .numba && mkdir .numba
	$(PYTEST) $(LOWEST)/bin/python -m pytest -q -n 2 --dist worksteal tests/test_smoke.py

check: $(VENV)/made
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/made-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet  # else Material advertises its successor

# -I keeps the sources of this folder out of sight: only the wheel can be imported.
dist: $(VENV)/made
	rm -rf dist build $(CLEAN)
	$(BIN)/python -m build --outdir dist > /dev/null
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python $(INSTALL) dist/longtail-*.whl
	PATH=$(CURDIR)/$(CLEAN)/bin:$$PATH $(CLEAN)/bin/python -I tests/smoke.py

bench: $(VENV)/made-bench
	$(BIN)/python benchmarks/run.py

papers: $(VENV)/made-bench
	for paper in $(PAPERS); do $(BIN)/python -m benchmarks.papers.$$paper --data "$(DATA)" || exit 1; done

clean:
	rm -rf .venv .venv-* .numba .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site demo-output bench-output
