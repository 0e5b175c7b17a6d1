PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
BENCH_BIN := .venv-bench/bin
BENCH_INSTALLED := .venv-bench/installed
KERNEL := $(wildcard torchsrk/brownian/philox*.[ch] torchsrk/metrics/assignment*.[ch])

.PHONY: run test test-fast test-cuda docs docs-pages bench bench-parts clean

run: $(INSTALLED)
	$(BIN)/torchsrk run configs/quickstart.yaml --output results/quickstart --resume

# Tests start Python hundreds of times: each would compile the package's source, where bytecode is not kept. They go out
# in long runs of neighbours, that share what a module has made. mypy runs beside them, and speaks last.
test: export PYTHONDONTWRITEBYTECODE =
test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > .venv/types & types=$$!; \
	$(BIN)/pytest -n 2 --dist worksteal --durations=25; tests=$$?; \
	wait $$types; types=$$?; cat .venv/types; exit $$((tests + types))

# For the edit loop: without what takes long (tests/conftest.py says which), and with what took the most time.
test-fast: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" --durations=10

# What needs a GPU; docs/guides/devices.md says what that is, and what was seen where.
test-cuda: $(INSTALLED)
	$(BIN)/python -c "import torch, sys; sys.exit(None if torch.cuda.is_available() else 'torch sees no CUDA device here')"
	TRITON_INTERPRET=0 $(BIN)/pytest -m cuda -rA

# The site, with the gallery's scripts run (some minutes) or left as they are (what CI builds). Warnings are errors, every link
# between pages is followed, and mathematics needs no network. Snippets are run with the gallery.
docs docs-pages: $(INSTALLED)
	$(if $(filter docs,$@),$(BIN)/pytest -q tests/test_docs.py tests/test_readme.py)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html $(if $(filter docs-pages,$@),-D plot_gallery=0) docs docs/_build/html
	$(BIN)/python docs/extensions/links.py docs/_build/html
	@echo "docs/_build/html/index.html"

# Beside other libraries, in an environment that holds them all; writes BENCHMARKS.md.
bench: $(BENCH_INSTALLED)
	$(BENCH_BIN)/python scripts/bench

bench-parts: $(INSTALLED)
	$(BIN)/python scripts/bench_noise.py
	$(BIN)/python scripts/bench_levy_area.py
	$(BIN)/python scripts/bench_scoring.py
	$(BIN)/python scripts/bench_keops.py
	$(BIN)/python scripts/bench_check.py
	$(BIN)/python scripts/bench_compile.py
	$(BIN)/python scripts/bench_schemes.py
	$(BIN)/python scripts/bench_products.py
	$(BIN)/python scripts/bench_bound.py

# Made again when a requirement or the source of a compiled piece changes.
$(INSTALLED): setup.py constraints.txt $(KERNEL)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(BENCH_INSTALLED): setup.py constraints.txt $(KERNEL)
	test -x $(BENCH_BIN)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH_BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

clean:
	rm -rf .venv .venv-bench build docs/_build docs/gallery *.egg-info torchsrk/brownian/_philox*.so torchsrk/metrics/_assignment*.so
