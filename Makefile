# Commands for people. CMake and the scripts in .ci/ do the work.
SIZE ?= 268435456
FILE ?=
export SIZE FILE
.PHONY: help demo test soak build deb wheel plots deps lint format clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo [SIZE=bytes]   spill and restore a TPC-H column and all paths in /usr, verify every byte'
	@echo 'make demo FILE=path      the same with a file of yours'
	@echo 'make test                build and run all tests that this machine can run, also under sanitizers'
	@echo 'make soak                the long tests: fuzzing (with clang), thousands of deaths, a day of load; an hour'
	@echo 'make build               build everything in build/, with CUDA if nvcc is found'
	@echo 'make deb                 build the Debian packages in build-deb/'
	@echo 'make plots               measure latency and rate over size, draw tests/bench/plots/*.svg (matplotlib)'
	@echo 'make wheel               build the Python package spillway_gpu-*.whl in build-wheel/'
	@echo 'make deps                install the packages that these need (Debian 12, Ubuntu 24.04)'
	@echo 'make lint, make format   check style and includes of the sources, format them'
	@echo 'make clean               remove what has been built here'

deps:
	@.ci/deps

build/build.ninja: | deps
	@cmake -G Ninja -S . -B build

build: build/build.ninja
	@cmake --build build

deb: | deps
	@.ci/deb build-deb

wheel: | deps
	@.ci/wheel build-wheel

# PLOTS: what another machine has measured by tests/bench/plots/measure.sh; measured here if it is empty.
PLOTS ?=
plots:
	@python3 -c 'import matplotlib' || { echo 'plots: apt-get install python3-matplotlib, or pip install matplotlib'; exit 1; }
	@if [ -z "$(PLOTS)" ]; then $(MAKE) --no-print-directory build && tests/bench/plots/measure.sh build build/plots; fi
	@tests/bench/plots/draw.py "$(or $(PLOTS),build/plots)"

# Only for this machine's GPU, if it has one: kernels for every kind take many minutes to compile.
build-demo/build.ninja: | deps
	@if [ -e /dev/nvidiactl ]; then set -- -DCMAKE_CUDA_ARCHITECTURES=native; else set -- -DSW_WITH_CUDA=OFF; fi; \
	cmake -G Ninja -S . -B build-demo "$$@"

demo: build-demo/build.ninja
	@cmake --build build-demo --target spillwayd spillway-demo
	@set -- --tpch "$$SIZE" --usr-paths; [ -z "$$FILE" ] || set -- --file "$$FILE"; \
	tests/demo/demo.sh build-demo/daemon/spillwayd build-demo/tests/demo/spillway-demo "$$@"

test: deps
	@.ci/test default clang asan tsan

soak: deps
	@.ci/soak

lint:
	@.ci/lint

format:
	@git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format -i

clean:
	rm -rf build build-test build-demo build-gpu-portable build-clang build-asan build-tsan build-deb build-wheel build-fuzz
