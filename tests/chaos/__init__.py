"""Attacks on estimax's files and processes, with a count of what came of each.

    python -m chaos --help          (tests/ must be on the path; scripts/chaos does that)

`attack.py` says what an attack is, `registry.py` lists them, `child.py` runs tries and
`supervisor.py` watches the child process that runs them.
"""
