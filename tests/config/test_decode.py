"""Whatever a file holds, the answer is a run or a list of problems, never a crash."""

import random
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from run_files import load_text

from estimax.config import RunFileError

SHIPPED = Path(__file__).parents[2] / "configs" / "flights_wide_deep.yaml"
JUNK = [None, 0, -1, 1.5, "", "x", True, [], {}, [1], {"a": 1}, {"type": "hashed"}]


def test_a_spoiled_file_gives_problems_and_no_crash(tmp_path):
    good = yaml.safe_load(SHIPPED.read_text())
    refused = 0
    chance = random.Random(0)
    for _ in range(150):
        spoiled = _spoil(good, chance)
        try:
            load_text(tmp_path, yaml.safe_dump(spoiled))
        except RunFileError:
            refused += 1
    # Few changes leave the run correct (another number, another name).
    assert refused > 100


def _spoil(good, chance):
    """The run with one value anywhere replaced, removed or renamed."""
    spoiled = yaml.safe_load(yaml.safe_dump(good))
    places = list(_places(spoiled))
    for _ in range(chance.choice([1, 1, 2])):
        parent, key = chance.choice(places)
        how = chance.random()
        if how < 0.6:
            parent[key] = chance.choice(JUNK)
        elif isinstance(parent, dict) and key in parent:
            value = parent.pop(key)
            if how < 0.8:
                parent[f"{key}x"] = value
    return spoiled


def _places(node):
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)
