"""Random programs for ``scripts/fuzz_compiled.py``."""
