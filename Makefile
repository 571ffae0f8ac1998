# `make demo` and `make test` create .venv if it does not exist.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS ?=
# number of processes of `make test`
WORKERS ?= 2

.PHONY: demo test test-slow test-parity test-beam test-tpu compile-tables table2 evidence faults soak rehearsal config-reference docs lint format clean

demo: $(VENV)/installed
	$(BIN)/realm demo $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not faults and not soak" $(ARGS)

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m slow $(ARGS)

faults: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m "not soak and not slow" tests/faults $(ARGS)

SECONDS ?= 1200
SEED ?= 0
soak: $(VENV)/installed-dev
	$(BIN)/python benchmarks/soak.py --seconds=$(SECONDS) --seed=$(SEED) --out=benchmarks/results/soak.json

# The paper's run with its batch and lengths on 64 virtual devices.
rehearsal: $(VENV)/installed
	$(BIN)/python benchmarks/rehearsal.py $(ARGS)

# Compares with the published implementations; transformers 4.40.2 is the last with REALM.
test-parity: .venv-parity/installed .venv-parity-current/installed
	.venv-parity/bin/python -m pytest -m parity tests/interop $(ARGS)
	.venv-parity-current/bin/python -m pytest -m parity tests/interop $(ARGS)

# Apache Beam needs older versions of some packages.
test-beam: .venv-beam/installed
	.venv-beam/bin/python -m pytest tests/corpus/beam_builder_test.py $(ARGS)

# Compiles with the TPU compiler on this machine: minutes and gigabytes of memory per step.
test-tpu: .venv-tpu/installed
	.venv-tpu/bin/python -m pytest -m slow tests/planning $(ARGS)

compile-tables: .venv-tpu/installed
	.venv-tpu/bin/python benchmarks/compile_tables.py $(ARGS)

.venv-%/installed: setup.py pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,$*]'
	touch $@

# Table 2 with a small model on a sample of Wikipedia; an interrupted command resumes.
DATA ?= ../shared/data
table2: $(VENV)/installed
	$(BIN)/python experiments/table2.py --all --data=$(DATA) $(ARGS)

# An encoder before and after REALM on judged collections, then the rows of Table 2 from it; an
# interrupted command resumes. QUESTIONS has the encyclopedias and the files of questions.
START ?= sentence-transformers/all-MiniLM-L6-v2
QUESTIONS ?= $(DATA)
# those of the records in experiments/results/table2_from_start; others are refused there
ROW_FLAGS ?= --config.lengths.fitted=False --config.search.kind=mesh
evidence: $(VENV)/installed
	$(BIN)/python experiments/evidence.py --all --data=$(DATA) --start=$(START) $(ARGS)
	$(BIN)/python experiments/table2.py --untrained --data=$(QUESTIONS) --start=$(START) $(ROW_FLAGS)
	$(BIN)/python experiments/table2.py --all --data=$(QUESTIONS) --start=$(START) $(ROW_FLAGS)

# Writes docs/reference/config.md from realm_jax/defaults.py.
config-reference: $(VENV)/installed
	$(BIN)/python .ci/config_reference.py

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built site/index.html"

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
	$(PIP_INSTALL) -e .
	touch $@

$(VENV)/installed-dev: setup.py pyproject.toml | $(VENV)/made
	$(PIP_INSTALL) -e '.[dev]'
	touch $@ $(VENV)/installed

$(VENV)/installed-docs: setup.py pyproject.toml | $(VENV)/made
	$(PIP_INSTALL) -e '.[docs]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .venv-* build site *.egg-info .pytest_cache .ruff_cache .mypy_cache
