# The project's commands. `make` alone prints them.
# Needs Python 3.11, 3.12 or 3.13 and make, nothing else; each environment is made when first needed
# and again when its requirements change.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV ?= .venv
DEMO_VENV ?= .venv-demo
PINS_VENV ?= .venv-pins
ARGS ?=

PIP_FLAGS := --quiet --no-compile --no-input --disable-pip-version-check --progress-bar off
ROLES := agent worker sinks replay broker all

# The first interpreter that really runs (a version manager's shim may exist and fail), is new enough
# and can make environments. PYTHON=... on the command line or in the environment is tried alone.
define find_python
for candidate in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
    >/dev/null 2>&1; then python=$$candidate; break; fi; \
done; \
if [ -z "$$python" ]; then \
  echo "gpuvigil needs Python 3.11, 3.12 or 3.13 with venv and finds none ($(or $(PYTHON),python3.13 ... python3)); install one or set PYTHON=/path/to/python" >&2; \
  exit 1; \
fi
endef

# $(call install,ENVIRONMENT,REQUIREMENTS,PIP OPTIONS)
define install
@python=; $(find_python); \
echo "Making $(1) with $$("$$python" --version) from $(2)" >&2; \
"$$python" -m venv --clear $(1) && \
$(1)/bin/python -m pip install $(PIP_FLAGS) $(3) --require-hashes -r $(2) -r requirements/build.txt
@touch $@
endef

# $(call install_project,ENVIRONMENT)
define install_project
@$(1)/bin/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
@touch $@
endef

.PHONY: help
help: ## Print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  while IFS='|' read -r target text; do printf '%-14s %s\n' "$$target" "$$text"; done
	@echo
	@echo "PYTHON=/path/to/python chooses the interpreter, ARGS='...' is handed to the command."

.PHONY: demo
demo: $(DEMO_VENV)/ready ## Watch a simulated cluster pass through topics, windows and detectors to alerts
	@$(DEMO_VENV)/bin/gpuvigil demo $(ARGS)

.PHONY: test
test: $(VENV)/dev ## Run all tests and report the coverage
	@$(VENV)/bin/python -m pytest -n auto --dist loadfile -m "not alone" --cov --cov-report= $(ARGS) || [ $$? -eq 5 ]
	@$(VENV)/bin/python -m pytest -m alone --cov --cov-append --cov-report=term $(ARGS) || [ $$? -eq 5 ]

.PHONY: check
check: $(VENV)/dev ## Lint, format, types, imports and the fast tests: the inner loop, under a minute
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/python -m pytest -q -n auto -m "not slow and not kafka" $(ARGS)

.PHONY: bench
bench: $(VENV)/dev ## Measure the path in one process against bare decoding, and a worker on Kafka against a bare consumer
	@$(VENV)/bin/python -m benchmarks.in_process
	@$(VENV)/bin/python -m benchmarks.on_kafka

.PHONY: kills
kills: $(VENV)/dev ## Kill, freeze and starve two workers on Kafka for ten minutes and compare what comes out
	@$(VENV)/bin/python -m tests.delivery $(ARGS)

.PHONY: takeovers
takeovers: $(VENV)/dev ## Measure how long a takeover takes, with no state and with 50 MB
	@$(VENV)/bin/python -m tests.delivery.takeovers $(ARGS)

.PHONY: schema
schema: $(VENV)/dev ## Write the JSON Schema and AsyncAPI documents from the models
	@$(VENV)/bin/gpuvigil schema $(ARGS)

.PHONY: pins
pins: $(PINS_VENV)/ready ## Pin and hash every requirement anew from pyproject.toml (PINS='--upgrade' for newer versions)
	@PINS_VENV=$(PINS_VENV) sh requirements/pin $(PINS)

.PHONY: jars
jars: $(VENV)/dev ## Pin and hash the jars of the Kafka that `gpuvigil broker` runs anew
	@$(VENV)/bin/python requirements/pin_jars.py

.PHONY: clean
clean: ## Remove the environments and everything that tools left behind
	rm -rf $(VENV) $(DEMO_VENV) $(PINS_VENV) build dist .coverage .coverage.* htmlcov .hypothesis \
	  .mypy_cache .pytest_cache .ruff_cache .import_linter_cache gpuvigil.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/dev: $(VENV)/requirements pyproject.toml
	$(call install_project,$(VENV))

$(VENV)/requirements: requirements/dev.txt requirements/build.txt
	$(call install,$(VENV),requirements/dev.txt,)

$(DEMO_VENV)/ready: $(DEMO_VENV)/requirements pyproject.toml
	$(call install_project,$(DEMO_VENV))

# Bytecode is left to the first import: the demonstration starts sooner and needs few modules.
$(DEMO_VENV)/requirements: requirements/base.txt requirements/build.txt
	$(call install,$(DEMO_VENV),requirements/base.txt,--no-compile)

$(PINS_VENV)/ready: requirements/pins.txt
	@python=; $(find_python); \
	"$$python" -m venv --clear $(PINS_VENV) && \
	$(PINS_VENV)/bin/python -m pip install $(PIP_FLAGS) --require-hashes -r $<
	@touch $@
