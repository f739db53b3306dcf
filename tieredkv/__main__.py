"""`python -m tieredkv`: the command line."""

import sys

from tieredkv.cli import main

if __name__ == "__main__":
    sys.exit(main())
