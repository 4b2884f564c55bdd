"""`python -m plimsoll`: the same as the command `plimsoll`."""

from plimsoll.cli.main import run

if __name__ == "__main__":
    run()
