"""Attacks on estimax's files and processes, with a count of what came of each.

    scripts/chaos --help

`attack.py` says what an attack is, `registry.py` lists them, `child.py` runs tries and
`supervisor.py` watches the child process that runs them.
"""

import sys
from pathlib import Path

# The attacks use what other tests share: models to export, run files, programs.
for _name in ("config", "export", "end_to_end"):
    sys.path.append(str(Path(__file__).parents[1] / _name))
