"""Where golden files are: `ESTIMAX_GOLDEN` when set, else tests/golden."""

import json
import os
from pathlib import Path
from typing import Any


def golden_path(name: str) -> Path:
    """The path of a golden file, in the folder that the environment names."""
    folder = os.environ.get("ESTIMAX_GOLDEN") or Path(__file__).parent / "golden"
    return Path(folder) / name


def load_golden(name: str) -> dict[str, Any]:
    """The content of a golden JSON file."""
    return json.loads(golden_path(name).read_text())
