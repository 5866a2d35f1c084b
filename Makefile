# make demo       train MaskablePPO, evaluate it, write a report
# make baselines  train and evaluate every baseline that has no run yet, and write their page
# make leaderboards  judge every entry that ships with the boards
# make test       run the test suite (make test-all adds the slow tests)
# make lint       check style and types
# make bench      measure speed beside the peers that can be installed
# make docs       generate pages and pictures from the cards

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
PEER := .venv-gymnax/bin/python

.PHONY: demo baselines leaderboards test test-all lint bench docs clean

demo: .venv/.demo
	@mkdir -p runs
	$(BIN)/onco-gym play NSCLC --agent guideline --seed 22 --quiet --plot runs/journey.png
	$(BIN)/python baselines/demo.py
	@echo "A patient's journey is drawn in runs/journey.png. Play one yourself: $(BIN)/onco-gym play NSCLC"

baselines: .venv/.demo .venv-d3rlpy/.installed
	$(BIN)/python baselines/run.py
	$(BIN)/python baselines/table.py
	$(BIN)/python tools/policies.py

leaderboards: .venv/.leaderboard
	$(BIN)/python tools/leaderboards.py

# XLA's older emitters compile in two thirds of the time; make test-all compiles as users do.
test: .venv/.test
	XLA_FLAGS=--xla_cpu_use_fusion_emitters=false $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-all: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m ""

lint: .venv/.test .venv/.lint  # types are checked against the installed extras
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/.bench .venv-gymnax/.installed
	@mkdir -p runs
	$(BIN)/python benchmarks/speed.py --gymnax-python $(PEER) --json runs/speed.json --plot runs/speed.png

docs: .venv/.core
	$(BIN)/python tools/environments.py
	$(BIN)/python tools/calibration.py
	$(BIN)/python tools/dosing.py
	$(BIN)/python tools/rewards.py
	$(BIN)/python tools/workflow.py

clean:
	rm -rf .venv .venv-gymnax .venv-d3rlpy runs

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/.%: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e ".[$*]"
	@touch $@

# gymnax pins gymnasium<1.4 and does not declare its dependency on six.
.venv-gymnax/.installed:
	$(PYTHON) -m venv .venv-gymnax
	$(PEER) -m pip --disable-pip-version-check install -q gymnax==1.0.1 six
	@touch $@

# d3rlpy pins gymnasium==1.0.0, so baselines/offline_d3rlpy.py runs in its own environment, without onco_gym.
.venv-d3rlpy/.installed:
	$(PYTHON) -m venv .venv-d3rlpy
	.venv-d3rlpy/bin/python -m pip --disable-pip-version-check install -q d3rlpy==2.8.1 torch==2.13.0 h5py==3.16.0 onnx==1.23.2 onnxruntime==1.31.1
	@touch $@
