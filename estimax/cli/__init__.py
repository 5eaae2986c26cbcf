"""The command line: `main.py` has the arguments, one module per command the rest."""

from estimax.cli.main import main

__all__ = ["main"]
