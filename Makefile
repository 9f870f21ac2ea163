# make help lists the targets. Everything here is a short name for scripts/ and CMake presets.
.DEFAULT_GOAL := build
.NOTPARALLEL:
BUILD := build/release

# nproc would count OMP_NUM_THREADS, which limits the tests, not the build. LibTorch's headers want about 1.5 GB per compiler.
CORES := $(shell env -u OMP_NUM_THREADS nproc)
MEMORY_JOBS := $(shell awk '/MemAvailable/ { print int($$2 / 1500000) }' /proc/meminfo)
JOBS ?= $(shell j=$(MEMORY_JOBS); [ $$j -lt $(CORES) ] || j=$(CORES); [ $$j -ge 1 ] || j=1; echo $$j)
TEST_JOBS ?= 2
# More for CMake, such as CMAKE_FLAGS=-DPRUNEX_WERROR=ON.
CMAKE_FLAGS ?=
TORCH_FLAG = $(if $(TORCH_ROOT),'-DTORCH_ROOT=$(TORCH_ROOT)')

SOURCES = $(shell git ls-files '*.h' '*.cpp')

.PHONY: help setup configure build test demo gpu-kit format check-format tidy install install-python wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: ## packages and LibTorch, if missing
	@scripts/setup.sh $(SETUP_FLAGS)

configure: setup
	@cmake --preset release -B $(BUILD) $(TORCH_FLAG) $(CMAKE_FLAGS)

build: configure ## set-up and build of build/release/prunex
	@cmake --build $(BUILD) -j $(JOBS) --target prunex_tool

test: SETUP_FLAGS ?= --tests
test: configure ## set-up, build and all tests
	@cmake --build $(BUILD) -j $(JOBS)
	@OMP_NUM_THREADS=1 ctest --test-dir $(BUILD) -j $(TEST_JOBS) --output-on-failure $(CTEST_FLAGS)

demo: build ## set-up, build and the main job: dense local SGD next to prunex
	@scripts/demo.sh

install: build ## into PREFIX (/usr/local)
	@cmake --build $(BUILD) -j $(JOBS)
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix '$(PREFIX)')

wheel: SETUP_FLAGS ?= --python
wheel: setup ## dist/prunex-*.whl for Python, to be handed on, and dist/prunex-*.tar.gz
	@scripts/wheel.sh

install-python: SETUP_FLAGS ?= --python $(if $(VIRTUAL_ENV),--packages)
install-python: setup ## the Python package into the active virtual environment, or .venv
	@'$(or $(VIRTUAL_ENV),.venv)/bin/python' -m pip install .

gpu-kit: ## a folder for a machine with a GPU that can download nothing: gpu-kit/run MINUTES
	@scripts/setup.sh --cuda
	@cmake --preset cuda -DPRUNEX_SIMGRID=OFF $(TORCH_FLAG) $(CMAKE_FLAGS)
	@JOBS=$(JOBS) scripts/gpu_kit.sh

format: ## clang-format all sources
	@clang-format-14 -i $(SOURCES)

check-format:
	@clang-format-14 --dry-run -Werror $(SOURCES)

tidy: ## clang-tidy all sources of the library and the command
	@scripts/tidy.sh

clean: ## remove the builds; .venv stays
	@rm -rf build dist
