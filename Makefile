# Thin names for commands; each sets up what it needs, and does nothing twice.
SIM      ?= verilator
CONFIG   ?= mini
FORMAT   ?=
WORKLOAD ?= digits
IMAGES   ?=
STEPS    ?=
HEADS    ?=
SEQUENCE ?=
HEAD     ?=
LATENCY  ?=
CAUSAL   ?=
JOBS     ?= 2
PYTHON   ?= $(shell command -v python3.11 || command -v python3)

VENV  := .venv
READY := $(VENV)/.ready
RUN   := $(VENV)/bin

.PHONY: sim test regress lint format netlist bench docs clean setup tools icarus
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make sim      run handwritten digits on the simulated chip (SIM=verilator|icarus CONFIG=mini FORMAT=mxfp8|bf16);"
	@echo "              WORKLOAD=train trains the network on the chip, WORKLOAD=conv runs a convolution network,"
	@echo "              WORKLOAD=transformer runs a transformer block forward and backward,"
	@echo "              WORKLOAD=attention runs softmax attention (CAUSAL=1: causal);"
	@echo "              sizes: IMAGES= (digits, conv) STEPS= (train) HEADS= SEQUENCE= HEAD= (attention) LATENCY="
	@echo "make test     everything a change can break, at small sizes"
	@echo "make regress  more seeds and larger configurations (hours)"
	@echo "make netlist  Verilog of a whole chip, linted (CONFIG=nano|mini|small|gen3 or a .toml)"
	@echo "make bench    speed and size figures, also in build/bench.json"
	@echo "make lint     ruff and mypy;  make format  ruff format;  make docs  generated pages;  make clean"

$(READY): pyproject.toml
	@sh sim/setup.sh "$(PYTHON)" "$(VENV)"
	@touch $(READY)

tools: $(READY)
	@sh sim/tools.sh

icarus: $(READY)
	@sh sim/tools.sh icarus

setup: tools

# An option of tesela for each variable that is set: $(call option,NAME,--name).
option = $(if $($(1)),$(2) '$($(1))')

sim: tools
	$(if $(filter-out 0 1,$(CAUSAL)),$(error CAUSAL must be 0 or 1 and not '$(CAUSAL)'))
	@if [ "$(SIM)" = icarus ]; then sh sim/tools.sh icarus; fi
	@$(RUN)/tesela sim --workload '$(WORKLOAD)' --config '$(CONFIG)' --simulator '$(SIM)' $(call option,FORMAT,--format) \
	  $(call option,IMAGES,--images) $(call option,STEPS,--steps) $(call option,HEADS,--heads) $(call option,SEQUENCE,--sequence) \
	  $(call option,HEAD,--head) $(call option,LATENCY,--latency) $(if $(filter 1,$(CAUSAL)),--causal)

test: tools icarus
	@$(RUN)/pytest -q -n $(JOBS) -m "not regress"

regress: tools icarus
	@$(RUN)/pytest -q -n $(JOBS)

lint: $(READY)
	@$(RUN)/ruff check . && $(RUN)/ruff format --check . && $(RUN)/mypy

format: $(READY)
	@$(RUN)/ruff check --fix . && $(RUN)/ruff format .

netlist: tools
	@$(RUN)/tesela netlist --config $(CONFIG) --lint

bench: tools
	@$(RUN)/tesela bench

docs: $(READY)
	@$(RUN)/tesela docs

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
