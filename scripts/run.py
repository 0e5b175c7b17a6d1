"""A door to the ``torchsrk`` command: ``python scripts/run.py run configs/fig1a.yaml``."""

import sys

from torchsrk.cli import main

if __name__ == "__main__":
    sys.exit(main())
