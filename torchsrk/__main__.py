"""The ``torchsrk`` command, ``python -m torchsrk``, and so ``torchrun ... -m torchsrk``."""

import sys


def main() -> int:
    """Run the command, or say which extra it needs."""
    try:
        from .cli import main as run
    except ImportError as error:
        print(f"torchsrk: error: {error}", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
