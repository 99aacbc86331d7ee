# Every target does its own set-up on a Debian machine with Python 3.11+ and git; a second run skips what is done.
# `make check` is the whole gate: CI calls it and nothing else.

PY := .venv/bin/python
# Tests wait for processes more than they compute; more workers than this only slow each other down.
WORKERS ?= 6
TESTS ?= tests

# The tests start the product hundreds of times; where bytecode is switched off, each start would compile all of it.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup browser demo test test-postgres check docs format

help:
	@echo 'make demo     the product, end to end, with stand-ins and the real agent (KEEP=1 stays up)'
	@echo 'make test     every test (TESTS=path, WORKERS=n)'
	@echo 'make test-postgres   the Gitea tests once more, on PostgreSQL'
	@echo 'make check    the whole gate: format, lint, types, imports, documents, tests'
	@echo 'make docs     writes the generated documents anew'
	@echo 'make format   formats the code'

setup:
	@sh tools/setup.sh

# A browser for the tests of the console; nothing else needs it.
browser:
	@sh tools/setup.sh browser

demo: setup
	@$(PY) -m stationmaster.ops.main demo $(if $(filter-out 0,$(KEEP)),--keep)

test: browser
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

test-postgres: browser
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal --postgres tests/gitea tests/acceptance

check: browser
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo --no-cache
	$(PY) -m tools.docs --check
	@$(MAKE) --no-print-directory test

docs: setup
	@$(PY) -m tools.docs

format: setup
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .
