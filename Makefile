# Five verbs. `make serve` and `make test` set up what they need first.
#   make setup DEVICE=gpu     on a machine with a GPU (vLLM brings its own torch)
#   make serve ARGS="--port 9000 --model whisper-tiny.en"
#   make test  ARGS="-k vad"

DEVICE ?= cpu
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready-$(DEVICE)

.PHONY: setup serve test lint bench

setup: $(READY)

$(READY): pyproject.toml scripts/setup.sh $(wildcard requirements/*.txt)
	PYTHON="$(PYTHON)" sh scripts/setup.sh $(DEVICE) $(VENV)
	@touch $@

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
