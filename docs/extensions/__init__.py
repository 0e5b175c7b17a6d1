"""What building these pages takes beside Sphinx."""
