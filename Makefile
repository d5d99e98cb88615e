# Every target does its own set-up. `make help` lists them; ARGS="..." goes on to the program that a target runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# A run of the tests starts thousands of Pythons. Without compiled files each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# The first Python that is new enough; make PYTHON=/path/to/python takes another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
CODE := $(wildcard kinesis_spout state scheme spark_job tests scripts benchmarks localstack docs/conf.py)
IN_VENV = JAVA_HOME="$$(cat .venv/java-home)" .venv/bin
# A process a core, each with servers and a Spark of its own: more than four would want more memory than a laptop has.
PARALLEL = --numprocesses=logical --maxprocesses=4 --dist=worksteal
# Unit tests are small, and some wait for a time limit: two processes a core keep the cores busy.
UNIT_PARALLEL = --numprocesses=4 --dist=worksteal
COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(ARGS)
EXTRAS = --extra spark --extra cbor --extra avro --extra sasl --extra metrics --extra local --extra dev pyproject.toml

.PHONY: help setup setup-test demo localstack unit test drills coverage integration test-lowest simulate runbook soak mutants mutants-core check format fuzz bench bench-peers docs bundle lock audit clean clean-all \
	python

help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 20

setup: python ## .venv with the locked packages, the native decoder where there is a Rust, and Java
	@"$(PYTHON)" -m scripts.set_up

setup-test: python ## the same, LocalStack (.tools/localstack), Node for its Kinesis emulator, Chromium, promtool and Sphinx
	@"$(PYTHON)" -m scripts.set_up --localstack --docs
	@$(IN_VENV)/python -m tests.support.spark.spark_classes

demo: setup ## a Spark job on real flights: killed, resumed, its output compared with its input
	@$(IN_VENV)/kinesis-spout demo $(ARGS)

unit: python ## rule tables, algorithms and the rules of the layout, without Java, Node or ZooKeeper: before each commit (PYSPARK=4.2 takes another PySpark)
	@"$(PYTHON)" -m scripts.set_up --no-java $(if $(PYSPARK),--pyspark $(PYSPARK))
	@echo "unit: tests/unit tests/architecture"
	@.venv$(if $(PYSPARK),-pyspark-$(PYSPARK))/bin/python -m pytest tests/unit tests/architecture $(UNIT_PARALLEL) $(ARGS)

test: setup-test ## all tests but the drills, in random order
	@echo "test: tests, without tests/drills"
	@$(IN_VENV)/python -m pytest $(PARALLEL) --ignore=tests/drills --durations=10 $(ARGS)

drills: setup-test ## the long proofs: jobs killed at every step, outages, random trees, at scale, properties with many examples (ARGS="--share 2/6" runs a sixth)
	@echo "drills: tests/drills, tests/property with many examples"
	@$(IN_VENV)/python -m pytest tests/drills tests/property --hypothesis-profile=many $(PARALLEL) --durations=10 $(ARGS)

coverage: setup-test ## all tests but the drills, with branch coverage and a floor for it; takes a few minutes more
	@$(IN_VENV)/python -m pytest $(PARALLEL) --ignore=tests/drills --cov --cov-report=term:skip-covered $(if $(ARGS),,--cov-fail-under=85) $(ARGS)

integration: setup-test ## the tests with Spark, ZooKeeper and a local Kinesis alone
	@$(IN_VENV)/python -m pytest tests/integration $(PARALLEL) $(ARGS)

localstack: setup ## a local Kinesis until Ctrl-C: LocalStack and ZooKeeper in Docker, or LocalStack's pip runtime
	@$(IN_VENV)/python -m localstack.start $(ARGS)

test-lowest: python ## unit, property and Spark tests on the oldest supported packages (.venv-lowest)
	@"$(PYTHON)" -m scripts.set_up --lowest
	@JAVA_HOME="$$(cat .venv-lowest/java-home)" .venv-lowest/bin/python -m pytest tests/unit tests/property \
		tests/integration/source/test_source.py $(PARALLEL) $(ARGS)

docs: python ## the site, in docs/_build/html; a warning is an error
	@"$(PYTHON)" -m scripts.set_up --docs
	@$(IN_VENV)/python -m sphinx -n -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html $(ARGS)
	@echo docs/_build/html/index.html

simulate: setup ## N random histories from SEED in simulated time, all promises checked (SEED and N=1 replay one)
	@$(IN_VENV)/python -m tests.simulation --histories $(or $(N),1000) $(if $(SEED),--seed $(SEED)) $(ARGS)

runbook: setup-test ## each command of docs/runbook.md, its output compared with the page's (some minutes)
	@$(IN_VENV)/python -m pytest tests/drills/test_runbook.py $(ARGS)

soak: setup ## drill soak: the standalone spout for MINUTES (10) under kills, faults and reshards from SEED (1)
	@$(IN_VENV)/kinesis-spout drill soak --spout --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) \
		--records-per-second 200 $(ARGS)

mutants: setup ## known faults put back into a copy of the code, one by one: each must be caught (ARGS=<part of a name>)
	@$(IN_VENV)/python -m tests.simulation.run_mutants $(ARGS)

mutants-core: python ## small faults that a tool puts into the pure core; compares those that no test catches with tests/core_survivors.toml (ARGS=<part of a name>)
	@"$(PYTHON)" -m scripts.set_up --no-java
	@.venv/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/mutants.txt
	@.venv/bin/python -m scripts.core_mutants $(ARGS)

check: setup ## lint, format and types, over code and tests; of the native decoder where cargo has clippy and rustfmt
	@.venv/bin/ruff check --quiet --output-format=concise $(CODE)
	@.venv/bin/ruff format --quiet --check $(CODE)
	@.venv/bin/mypy --no-error-summary $(CODE)
	@cd native; if { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then \
		cargo fmt --check && cargo clippy --quiet --release --locked; fi

format: setup ## put all code into its format
	@.venv/bin/ruff check --quiet --fix-only $(CODE)
	@.venv/bin/ruff format $(CODE)

fuzz: setup ## the native decoder beside those in Python, on damaged bodies, for MINUTES (60) in JSON and in CBOR, from SEED (1)
	@for form in json cbor; do \
		timeout $(or $(MINUTES),60)m env $(IN_VENV)/python -m pytest tests/property/test_native_decoder.py -k "same_page and $$form" \
			--timeout=0 --hypothesis-profile=endless --hypothesis-seed=$(or $(SEED),1) || test $$? -eq 124 || exit 1; done

bench: setup-test ## the benchmarks, one after the other (ARGS=--json for machines)
	@for file in $$(grep --files-with-matches -- '"--json"' benchmarks/*.py); do \
		echo "$$file" >&2; PYTHONPATH=. $(IN_VENV)/python "$$file" $(ARGS); done

bench-peers: setup ## beside awslabs' connector, the KCL, boto3, async-kinesis (ARGS=--help tells how to give what it cannot fetch)
	@PYTHONPATH=. $(IN_VENV)/python -m benchmarks.peers $(ARGS)

bundle: setup ## dist/bundle: wheels and hashes, to install without a network (ARGS="--to DIRECTORY")
	@.venv/bin/python -m scripts.bundle $(ARGS)

lock: setup ## compile the lock files from pyproject.toml (ARGS=--upgrade for newer packages)
	@.venv/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/lock-tool.txt
	@$(COMPILE) requirements/lock-tool.in --output-file requirements/lock-tool.txt
	@$(COMPILE) requirements/build.in --output-file requirements/build.txt
	@$(COMPILE) requirements/mutants.in --constraint requirements/lock.txt --output-file requirements/mutants.txt
	@$(COMPILE) requirements/localstack.in --output-file requirements/localstack.txt
	@$(COMPILE) $(EXTRAS) --output-file requirements/lock.txt
	@$(COMPILE) --extra spark --extra cbor --extra metrics pyproject.toml --constraint requirements/lock.txt --output-file requirements/deploy.txt
	@$(COMPILE) --extra docs pyproject.toml --constraint requirements/lock.txt --output-file requirements/docs.txt
	@$(COMPILE) $(EXTRAS) --resolution lowest-direct --output-file requirements/lowest.txt

audit: setup ## known vulnerabilities in the locked packages, and a pin with a hash for each (ARGS: --advisories CHECKOUT; after --, pip-audit's own)
	@.venv/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/lock-tool.txt
	@.venv/bin/python -m scripts.audit $(ARGS)

clean: ## remove what builds and test runs leave; .venv stays
	@rm -rf build dist native/target docs/_build docs/reference/_generated mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* spark-warehouse metastore_db derby.log set-up.log
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean ## the same and all that the set-up has installed in here
	@rm -rf .venv .venv-lowest .tools

python:
	@[ -n "$(PYTHON)" ] || { echo "set-up: no Python 3.11 or newer in PATH: install one, or name it with make PYTHON=/path/to/python." >&2; exit 1; }
