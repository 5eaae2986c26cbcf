"""`python -m estimax` is `estimax`."""

from estimax.cli.main import main

main()
