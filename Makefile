# The common jobs, each one command on a fresh clone that has Python, pip and make.
#   make demo    declare, generate, compile, pick, run and verify a small kernel set
#   make test    lint, types, import directions, then the test suite without its long proofs
#   make test-all  all of it: `make test`, then the proofs that it left out
#   make test-proofs  only these, and what needs tools that may have come since: CUDA compilers, a browser (WHOLE=1: in full)
#   make test-older-cpu  the tests of the CPU, as if this machine only had x86_64_v3 (LEVEL names another)
#   make test-amd  the tests that compile for AMD GPUs, with a toolchain it installs where it can
#   make test-torch  the tests of PyTorch's ops, modules and threads, in an environment of their own with the PyTorch of TORCH
#                (WHOLE=1: with the proofs: opcheck of every case, 2,000 random graphs, eager and compiled)
#   make test-gpu  the suite of an NVIDIA GPU, with the PyTorch of PYTHON: GPU_KERNELS (0: all) drawn by GPU_SEED
#   make test-machines  some tests in clean environments that lack something: compilers, root, a home (LONG=1: all quick ones)
#   make test-cluster  the tests of sweeps over several machines, with Ray, which it installs where it can
#   make cuda-compilers  NVIDIA's compilers from their wheels into .venv, where the package index has them
#   make lint    only the static part of `make test`
#   make format  write Python and C++ as `make lint` wants them
#   make test-amd-emulated   build AMD kernels and execute them in tinygrad's emulator (docs/reports/amd.md says how);
#                with SEED=n COUNT=m kernels and problems drawn by the seed, JOBS=j at a time, of the op OP
#   make docs    the documentation site in build/site; a link that leads nowhere is an error
#   make bench   every benchmark of this machine's CPU; results land in benchmarks/results/
#   make clean   remove what these commands made
# PYTHON picks the interpreter, PYTEST_ARGS adds options (make test PYTEST_ARGS="-k filter").

PYTHON ?= python3
PYTEST_ARGS ?=
LEVEL ?= x86_64_v3
VENV := .venv
BIN := $(VENV)/bin

# Compiled Python is kept, whatever the environment says: the tests start a thousand processes, each of which would compile
# the package anew, and pytest would rewrite every test in each worker of each command.
unexport PYTHONDONTWRITEBYTECODE

# Without a C++ compiler the ziglang wheel serves as one.  The stamp's name carries the answer, so a
# compiler that comes or goes later is noticed.
CXX_HERE := $(shell for one in "$${TILEWRIGHT_CXX:-c++}" c++ g++ clang++; do command -v "$$one" && break; done 2>/dev/null)
WITH_ZIG := $(if $(CXX_HERE),,-zig)
COMPILER_EXTRA := $(if $(CXX_HERE),,compiler)
COMMA := ,
CORE := $(VENV)/.core$(WITH_ZIG)
DEV := $(VENV)/.dev$(WITH_ZIG)

# Some systems ship Python without ensurepip: then the outer pip installs into the new environment.
PIP = if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
      else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; $$pip install -qq --disable-pip-version-check

.PHONY: demo test test-all test-proofs test-older-cpu test-amd test-amd-emulated test-cluster test-gpu test-torch test-machines cuda-compilers docs lint lint-types lint-text format bench clean

demo: $(CORE)
	@$(BIN)/tilewright demo

# On every core, but not too many: the kernels of the tests are built together by as many compilers.  A worker begins
# with one half of the files, so that one compiles for GPUs and the other for the CPU, and takes from the other's later.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
# Of convolution and attention those that run kernels of this machine, not those that only read rules.
RUN_OP := $(addsuffix .py,$(addprefix test_,calls errors kernels cpu_kernels onnx))
CPU_TESTS := $(addprefix tests/,backends/cpu api runtime build dispatch codegen cli \
  $(addprefix conv/,$(RUN_OP) test_bounds.py) $(addprefix attention/,$(RUN_OP) test_parity.py))

# Long proofs are marked `proof` or `sampled` in the tests: every behaviour has a quick test, and they the other cases.
QUICK := -m "not proof"
test: lint
	$(PYTEST) $(QUICK) $(PYTEST_ARGS)

# WHOLE=1: every case of those that are compiled or drawn by the hundred, of which CI takes a part.
test-proofs: $(DEV)
	$(PYTEST) -m "(proof or tools) and not amd$(if $(WHOLE),, and not whole)" $(PYTEST_ARGS)

test-all: test test-proofs


# What it needs is in the tests' store after `make test`, which compiles for every level.
test-older-cpu: $(DEV)
	TILEWRIGHT_HOST_LEVEL=$(LEVEL) $(PYTEST) -m "not proof and not amd" $(CPU_TESTS) $(PYTEST_ARGS)

# The tests of AMD kernels use the toolchain TILEWRIGHT_ROCM_PATH names and no other; without one, their own in a folder
# where nothing else meets it.  Where that cannot be had (no network, no Debian packages) they say so and are skipped.
ROCM := $(or $(TILEWRIGHT_ROCM_PATH),$(CURDIR)/build/toolchains/rocm)
INSTALL_ROCM = $(if $(TILEWRIGHT_ROCM_PATH),,$(BIN)/tilewright toolchain install rocm --prefix $(ROCM) --yes --if-possible)

test-amd: $(DEV)
	@$(INSTALL_ROCM)
	@$(BIN)/python -m tests.late_headers
	TILEWRIGHT_ROCM_PATH=$(ROCM) $(PYTEST) -m amd -rs $(PYTEST_ARGS)

# Before `make cuda-compilers`: what is in .venv, these machines have.
test-machines: $(DEV)
	$(BIN)/python -m tests.machines $(if $(LONG),--long) $(addprefix --only ,$(ONLY))

# Ray is 70 MB to fetch and has no wheels for some systems and Pythons: without it all but the first of these tests say so
# and are skipped.  Nodes and drivers are killed in them: whatever hangs then is ended.
WITHIN := $(if $(shell command -v timeout 2>/dev/null),timeout --kill-after=10 $(or $(CLUSTER_SECONDS),600))
test-cluster: $(DEV)
	@$(BIN)/python -c "import ray" 2>/dev/null || { $(PIP) --retries 1 -e ".[ray]"; } || \
	  echo "Ray cannot be had here: the tests of several machines are skipped"
	$(WITHIN) $(BIN)/python -m pytest tests/tune/test_cluster.py -rs $(PYTEST_ARGS)

# Not in .venv: `make test` is for machines without PyTorch.  Where pip has no such PyTorch, that is said.
TORCH ?= torch==2.13.0
TORCH_PYTHON := build/torch/bin/python
TORCH_TESTS := $(addprefix tests/,torch api/test_torch_calls.py runtime/test_fast_calls.py runtime/test_thread_pool.py)
test-torch: $(DEV)
	@[ -x $(TORCH_PYTHON) ] || $(PYTHON) -m venv build/torch
	@if $(TORCH_PYTHON) -c "import torch, transformers, xdist, tilewright" 2>/dev/null || \
	  $(TORCH_PYTHON) -m pip install -qq --disable-pip-version-check --retries 1 $(TORCH) transformers -e ".[dev]"; then \
	  $(TORCH_PYTHON) -m pytest -n auto --maxprocesses 4 --dist worksteal $(if $(WHOLE),,$(QUICK)) $(TORCH_TESTS) $(PYTEST_ARGS); \
	else echo "$(TORCH) cannot be had here: tests with PyTorch are skipped"; fi

# Not in .venv, which has no PyTorch.  Compiling is most of the time: so many kernels fit 6 minutes of a machine of 16 cores.
GPU_KERNELS ?= 400
GPU_SEED ?= $(shell date +%Y%m%d)
test-gpu:
	@$(PYTHON) -c "import importlib.metadata as m; m.version('tilewright')" 2>/dev/null || \
	  $(PYTHON) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(PYTHON) -m pytest tests/gpu -q -rs --gpu-kernels $(GPU_KERNELS) --gpu-seed $(GPU_SEED) $(PYTEST_ARGS)

# Needs TINYGRAD_CHECKOUT, the folder of a tinygrad checkout.  Without SEED the catalog; with one COUNT kernels of OP drawn
# by it, JOBS at a time (a run that was stopped goes on where it was), or only the one that ONLY names.
# The emulator compiles its own code with clang: the toolchain's, where the system has none.
EMULATED := PATH="$$PATH:$(ROCM)/bin" TILEWRIGHT_ROCM_PATH=$(ROCM) $(BIN)/python -m
COUNT ?= 300
OP ?= gemm
test-amd-emulated: $(DEV)
	@$(BIN)/python -m tests.amd_emulated.needs --checkout
	@$(INSTALL_ROCM)
	@$(EMULATED) tests.amd_emulated.needs
ifdef SEED
	@$(EMULATED) tests.amd_emulated.random_run $(SEED) $(COUNT) --op $(OP) --document docs/reports/amd_random.md \
	  $(if $(JOBS),--jobs $(JOBS)) $(addprefix --only ,$(ONLY))
else
	@$(EMULATED) pytest tests/amd_emulated -rs $(PYTEST_ARGS); status=$$?; \
	$(BIN)/python -m tests.amd_emulated.report build/amd_emulated.json docs/reports/amd.md && exit $$status
endif

# 200 MB to fetch, 480 MB on disk.  Without them kernels for NVIDIA GPUs are compiled where the machine has an nvcc
# of its own; else the tests that would say so and are skipped.
cuda-compilers: $(DEV)
	@[ -e $(VENV)/.cuda ] || { ($(PIP) --retries 1 -e ".[cuda,nvrtc]") && touch $(VENV)/.cuda; } || \
	  echo "NVIDIA's wheels cannot be had here: tests that compile for NVIDIA GPUs need an nvcc on the path, or are skipped"

# Golden files are what the generator wrote.
CXX_SOURCES = $(shell find src cpp tests benchmarks examples -name golden -prune -o -type f \
  \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' \) -print)

# Types take as long as the rest: each has a core.
lint: $(DEV)
	@$(MAKE) --no-print-directory -j 2 lint-types lint-text

lint-types:
	$(BIN)/mypy

lint-text:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "$(BIN)/clang-format --dry-run -Werror: every header and source of C++"
	@$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .
	@echo "$(BIN)/clang-format -i: every header and source of C++"
	@$(BIN)/clang-format -i $(CXX_SOURCES)

# Not in `dev`: the tests need none of it.
$(VENV)/.docs: pyproject.toml | $(CORE)
	@echo "installing what the documentation site needs"
	@$(PIP) -e ".[docs]"
	@touch $@

# Not --quiet: it drops the warnings before --strict counts them.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html"

# Those for NVIDIA GPUs (*_cuda.py, *_h200.py) are run by hand on a machine that has one: docs/reports/nvidia.md.
bench: $(DEV)
	@for one in $(filter-out %_cuda.py %_h200.py,$(wildcard benchmarks/[a-z]*.py)); do \
	  echo "== $$one"; $(BIN)/python "$$one" || exit 1; done

$(BIN)/python:
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --clear --without-pip $(VENV)

# Of the packages few modules are imported: Python compiles these when they are, which is sooner than all of them now.
$(CORE): pyproject.toml | $(BIN)/python
	@echo "installing tilewright$(if $(COMPILER_EXTRA), and the ziglang compiler: no C++ compiler was found)"
	@$(PIP) --no-compile -e ".$(if $(COMPILER_EXTRA),[$(COMPILER_EXTRA)])"
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing tilewright and its development tools$(if $(COMPILER_EXTRA), and the ziglang compiler)"
	@$(PIP) -e ".[dev$(if $(COMPILER_EXTRA),$(COMMA)$(COMPILER_EXTRA))]"
	@touch $(CORE) $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
