PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: run test bench clean

run: $(INSTALLED)
	$(BIN)/python scripts/quickstart.py

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

bench: $(INSTALLED)
	$(BIN)/python scripts/bench_noise.py
	$(BIN)/python scripts/bench_sampling.py
	$(BIN)/python scripts/bench_levy_area.py
	$(BIN)/python scripts/bench_scoring.py

# Made again when a requirement or the noise kernel's source changes.
$(INSTALLED): setup.py constraints.txt torchsrk/brownian/philox.c
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv build *.egg-info torchsrk/brownian/_philox*.so
