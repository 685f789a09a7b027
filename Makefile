# make train     set up the base and train PPO on CartPole-v1
# make test      set up everything and run lint, types, the layer rule and the tests
# make slow      the tests that take longer
# make simulate  a thousand seeds of simulated faults
# make faults    five minutes of killed actors
# make chaos     everything that can go wrong, at random, for half an hour; chaos-long for three
# make learn     every algorithm on its yardstick, over several seeds
# make learn-long  PPO on MuJoCo, a million steps each (an hour)
# make pong      how long Pong takes on this machine (half an hour)
# make bench     speed against other libraries, each in an environment of its own
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

.PHONY: train test setup lint types layers unit slow simulate faults chaos chaos-long learn learn-long pong bench clean
.DELETE_ON_ERROR:

train: .venv/base
	$(BIN)/starling train --algo ppo --env CartPole-v1

test: lint types layers unit

setup: .venv/all

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/base: pyproject.toml constraints.txt | .venv/bin/python
	@echo "setting up the base install in .venv (a minute or two)"
	$(PIP) --editable .
	@touch $@

.venv/all: .venv/base
	@echo "setting up every extra in .venv (a few minutes)"
	$(PIP) --editable '.[all]'
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

slow: setup
	$(BIN)/pytest -m slow

simulate: setup
	$(BIN)/pytest -m slow tests/executors/test_simulated.py

faults: setup
	$(BIN)/pytest -m slow -s tests/executors/test_faults.py

chaos: setup
	$(BIN)/python -m tests.chaos --minutes 25

chaos-long: setup
	$(BIN)/python -m tests.chaos --minutes 60 --only "killed at random" --rounds 7
	$(BIN)/python -m tests.chaos --minutes 90 --only "for long" --rounds 1 --soak 30
	$(BIN)/pytest -m slow tests/chaos

learn: setup
	$(BIN)/python benchmarks/learning.py algorithms
	$(BIN)/python benchmarks/learning.py families memory formations presets --seeds 3

learn-long: setup
	$(BIN)/python benchmarks/learning.py mujoco --seeds 3

pong: setup
	$(BIN)/python benchmarks/pong.py

bench: setup
	@failed=0; for part in building acting training replay env_workers formations; do \
		$(BIN)/python benchmarks/$$part.py || failed=1; \
	done; exit $$failed

clean:
	rm -rf .venv .jax_cache .mypy_cache .ruff_cache .pytest_cache runs
