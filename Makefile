# The README's two commands are `make demo` and `make test`; both make .venv if it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: demo test test-slow test-parity test-tpu compile-tables faults lint format clean

demo: $(VENV)/installed
	$(BIN)/realm demo $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m "not slow and not faults" $(ARGS)

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m slow $(ARGS)

faults: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m faults tests/faults $(ARGS)

# Against the published implementations: REALM's classes end with transformers 4.40.2.
test-parity: .venv-parity/installed .venv-parity-current/installed
	.venv-parity/bin/python -m pytest tests/interop/parity_test.py $(ARGS)
	.venv-parity-current/bin/python -m pytest tests/interop/parity_test.py $(ARGS)

# The real TPU compiler, on this machine: minutes and gigabytes for each step.
test-tpu: .venv-tpu/installed
	.venv-tpu/bin/python -m pytest -m slow tests/rehearsal $(ARGS)

compile-tables: .venv-tpu/installed
	.venv-tpu/bin/python benchmarks/compile_tables.py $(ARGS)

.venv-%/installed: setup.py pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,$*]'
	touch $@

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "realm needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: setup.py pyproject.toml | $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-dev: setup.py pyproject.toml | $(VENV)/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .venv-* build *.egg-info .pytest_cache .ruff_cache .mypy_cache
