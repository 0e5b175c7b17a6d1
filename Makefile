PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
BENCH_BIN := .venv-bench/bin
BENCH_INSTALLED := .venv-bench/installed
KERNEL := $(wildcard torchsrk/brownian/philox*.[ch])

.PHONY: run test bench bench-parts clean

run: $(INSTALLED)
	$(BIN)/torchsrk run configs/quickstart.yaml --output results/quickstart --resume

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist worksteal  # in long runs of neighbours, that share what a module has made

# Beside other libraries, in an environment that holds them all; writes BENCHMARKS.md.
bench: $(BENCH_INSTALLED)
	$(BENCH_BIN)/python scripts/bench

bench-parts: $(INSTALLED)
	$(BIN)/python scripts/bench_noise.py
	$(BIN)/python scripts/bench_levy_area.py
	$(BIN)/python scripts/bench_scoring.py
	$(BIN)/python scripts/bench_check.py
	$(BIN)/python scripts/bench_schemes.py
	$(BIN)/python scripts/bench_products.py

# Made again when a requirement or the noise kernel's source changes.
$(INSTALLED): setup.py constraints.txt $(KERNEL)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(BENCH_INSTALLED): setup.py constraints.txt $(KERNEL)
	test -x $(BENCH_BIN)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH_BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

clean:
	rm -rf .venv .venv-bench build *.egg-info torchsrk/brownian/_philox*.so
