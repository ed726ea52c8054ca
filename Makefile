# make demo   trains LeNet-5 on scanned digits, audits it, writes report.html
# make check  format, lint, types, tests
# make test   the tests alone
# make slow   the fifty slowest tests; of one above five seconds the line above it says why
# make docs   the site, into build/site
# make book   the book of theorems alone, into build/book
# make bench  the figures of benchmarks/, beside the peers, into docs/results

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# compiled sources are kept: the tests start a hundred processes, and two workers collect every test
export PYTHONDONTWRITEBYTECODE :=

# a worker a core: threads of BLAS that wait for each other took half the time of tests that fit or simulate
test slow: export OMP_NUM_THREADS := 1

.PHONY: demo check test slow format lint types docs book bench clean

demo: $(VENV)/.installed
	$(BIN)/margin demo

check: format lint
	$(MAKE) --no-print-directory --jobs 2 types test

test: $(VENV)/.tested
	$(BIN)/pytest -n $(WORKERS)
	MARGIN_CHECK_SHAPES=0 $(BIN)/pytest -n $(WORKERS) --dist worksteal tests/unhooked

slow: $(VENV)/.tested
	$(BIN)/pytest -n $(WORKERS) --durations=50 --durations-min=1

format: $(VENV)/.tested
	$(BIN)/ruff format --check

lint: $(VENV)/.tested
	$(BIN)/ruff check

types: $(VENV)/.tested
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

docs: $(VENV)/.tested
	$(BIN)/python docs/build_site.py build/site

book: $(VENV)/.tested
	$(BIN)/margin claims --book build/book

bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target build/peers pyhessian \
		curvlinops-for-pytorch backpack-for-pytorch einops einconv tqdm linear_operator \
		torch_geometric xxhash psutil nflows zuko diffusers huggingface_hub httpx2 httpcore2 truststore h11
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -W ignore -m benchmarks.audit_plan
	$(BIN)/python -m benchmarks.audit_again
	$(BIN)/python -m benchmarks.loop
	$(BIN)/python -m benchmarks.processes
	$(BIN)/python -m benchmarks.perceptron
	$(BIN)/python -m benchmarks.tricks
	$(BIN)/python -m benchmarks.augmentation
	$(BIN)/python -m benchmarks.accumulation
	$(BIN)/python -m benchmarks.regions
	PYTHONPATH=build/peers $(BIN)/python -W ignore -m benchmarks.hessian
	PYTHONPATH=build/peers $(BIN)/python -W ignore -m benchmarks.leading
	PYTHONPATH=build/peers $(BIN)/python -W ignore -m benchmarks.spectral_density
	$(BIN)/python -m benchmarks.curvature_memory
	for name in scan lru recurrent_step recurrent_layers wavenet neighbor_sampling weisfeiler_leman vae convolution; do \
		$(BIN)/python -m benchmarks.$$name || exit 1; done
	for name in graph_layers chebnet flows unet; do \
		PYTHONPATH=build/peers $(BIN)/python -W ignore -m benchmarks.$$name || exit 1; done
	$(BIN)/python -m benchmarks.page

clean:
	rm -rf $(VENV) build dist
