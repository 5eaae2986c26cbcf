"""The command line: `main.py` has the arguments; a module implements each command."""

from estimax.cli.main import main

__all__ = ["main"]
