"""Attacks on the files and processes of estimax, with a count of the outcomes.

    scripts/chaos --help

`attack.py` defines an attack, `registry.py` lists them, `child.py` runs the tries of an
attack, and `supervisor.py` watches the child process that does.
"""

import sys
from pathlib import Path

# The attacks use helpers of other tests: models to export, run files, programs.
for _name in ("config", "export", "end_to_end"):
    sys.path.append(str(Path(__file__).parents[1] / _name))
