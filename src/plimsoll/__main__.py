"""`python -m plimsoll`: the same as the command `plimsoll`."""

import sys

from plimsoll.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
