# `make help` lists the targets. Each sets up what it needs, on a machine with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Half of the tests mostly wait for processes: with fewer than five or six workers two cores would have nothing to do. More
# cost CPU: each collects all tests, for some five seconds, and starts a browser of its own. A file's tests stay together,
# since they share what is slow to start, and files run in pytest's order: tests/web comes last, whose browser keeps an
# event loop in its worker.
# `make test ARGS="-n 0"` runs them one after the other.
WORKERS := -n 6 --dist loadfile --no-loadscope-reorder
# A test that fails beside others is tried once more, by itself: what fails again is broken. The first failure stays in
# the output: on a machine with nothing else to do it is a fault of the test.
AGAIN = -n 0 --last-failed --last-failed-no-failures none
# Tests start gpumon some hundred times: compile it once, also where Python is told to keep no byte code.
COMPILE = $(BIN)/python -m compileall -q gpumon tui web tests

# mypy takes most of a minute of one core: it runs beside the tests, and what it says comes behind what they say.
TYPES = nice $(BIN)/mypy >$(VENV)/types-said 2>&1 & types=$$!; status=0
SAID = wait $$types || status=1; cat $(VENV)/types-said; exit $$status

.PHONY: help tui web test test-all docs dist man golden lint style gpu bench clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

tui: $(VENV)/installed  ## the terminal view (ARGS="--source sim" for a simulation)
	@$(BIN)/gpumon tui $(ARGS)

web: $(VENV)/installed  ## the browser view
	@$(BIN)/gpumon web $(ARGS)

test: $(VENV)/tests style $(VENV)/rewritten  ## everything that a change must pass
	$(COMPILE)
	$(TYPES); $(BIN)/python -m pytest $(WORKERS) -m "not slow and not gpu" $(ARGS) || \
	  { [ $$? -eq 1 ] && $(BIN)/python -m pytest $(AGAIN) -m "not slow and not gpu" $(ARGS); } || status=1; \
	$(SAID)

test-all: $(VENV)/tests $(VENV)/jupyterlab style $(VENV)/rewritten  ## with soaks, all of the fuzzing, and every combination of sizes and frameworks
	$(COMPILE)
	$(TYPES); $(BIN)/python -m pytest $(WORKERS) -m "not gpu" $(ARGS) || status=1; $(SAID)

docs: $(VENV)/sphinx  ## the documentation as a site in .cache/site; a broken link is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs .cache/site
	@echo "open $(CURDIR)/.cache/site/index.html"

dist: $(VENV)/tests  ## the wheel, the source archive and gpumon.pyz, in dist
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python deploy/zipapp/build.py dist/gpumon.pyz
	@ls -l dist

man: $(VENV)/tests  ## write the manual page docs/gpumon.1 from the options of the commands
	COLUMNS=80 $(BIN)/argparse-manpage --module gpumon.cli.parser --function whole_parser --project-name gpumon --prog gpumon \
	  --description "monitor GPUs, epoch by epoch of each training" --manual-title "User commands" \
	  --include docs/gpumon.1.include --output docs/gpumon.1

golden: $(VENV)/tests  ## draw the golden screens of the terminal view anew; look at what git diff shows
	GPUMON_REWRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/tui/test_golden_screens.py

gpu: $(VENV)/tests  ## the tests that need a real NVIDIA GPU, with the torch that is installed
	$(BIN)/python -m pytest -m gpu $(ARGS)

lint: style  ## style, types, and who may import whom
	$(BIN)/mypy

style: $(VENV)/tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --deny-warnings web/gpumon_web/assets tests/web/scripts
	[ ! -x $(VENV)/node_modules/.bin/tsc ] || $(VENV)/node_modules/.bin/tsc -p jsconfig.json
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/tests  ## the budgets of benchmarks/README.md, measured beside their peers (minutes)
	$(BIN)/pip install --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove what the other targets made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpumon needs Python 3.11 or newer: name one with 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	@echo "creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "no virtual environment could be made: on Debian, 'apt-get install python3-venv'" >&2; exit 1; }

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing gpumon and its packages into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[web]'
	@touch $@
	@echo "installed: $(CURDIR)/$(BIN)/gpumon (with $(CURDIR)/$(BIN) in PATH: gpumon)"

$(VENV)/sphinx: pyproject.toml | $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

$(VENV)/tests: pyproject.toml tests/setup.sh | $(VENV)/bin/python
	sh tests/setup.sh $(BIN)
	@touch $@ $(VENV)/installed

# In an environment of its own: it has fifty packages that gpumon and its tests do not need.
$(VENV)/jupyterlab: | $(VENV)/bin/python
	@$(BIN)/python -m venv $@ && $@/bin/pip install --quiet --disable-pip-version-check 'jupyterlab>=4' || \
	  { rm -rf $@; echo "JupyterLab cannot be installed here: its test will say so" >&2; }

# pytest rewrites the assertions of every test module when it loads it, for some ten seconds, and each worker would do so.
$(VENV)/rewritten: $(wildcard tests/*.py tests/*/*.py) | $(VENV)/tests
	@for part in "unit contracts" "integration engines tui web"; do \
	  env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q --collect-only $$(printf 'tests/%s ' $$part) >/dev/null 2>&1 & \
	done; wait
	@touch $@
