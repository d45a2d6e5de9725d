# Five verbs. `make serve` and `make test` set up what they need first.
#   make setup DEVICE=gpu     on a machine with a GPU (vLLM brings its own torch)
#   make serve ARGS="--port 9000 --model whisper-tiny.en"
#   make test  ARGS="-k vad"

PYTHON ?= python3
VENV   := .venv
# What was set up last stays, so that `make serve` on a machine with a GPU does not set up for the CPU.
DEVICE ?= $(if $(wildcard $(VENV)/.ready-gpu),gpu,cpu)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready-$(DEVICE)

.PHONY: setup serve test lint bench

setup: $(READY)

$(READY): pyproject.toml scripts/setup.sh $(wildcard requirements/*.txt)
	PYTHON="$(PYTHON)" sh scripts/setup.sh $(DEVICE) $(VENV)
	@rm -f $(VENV)/.ready-* && touch $@

serve: setup
	$(BIN)/tinglu serve $(ARGS)

test: lint
	$(BIN)/python -m pytest -m "not gpu" $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench $(ARGS)
