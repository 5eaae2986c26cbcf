"""The command line. Read `main.py` first; one file per command beside it."""

from estimax.cli.main import main

__all__ = ["main"]
