"""A small log of a shop, in all formats that a run file reads."""

import runpy
from pathlib import Path

import pytest

PREPARE = Path(__file__).parents[2] / "examples" / "shop" / "prepare.py"


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with data/shop/train.* and test.*."""
    folder = tmp_path_factory.mktemp("shop")
    prepare = runpy.run_path(str(PREPARE))
    data = folder / "data" / "shop"
    data.mkdir(parents=True)
    prepare["write"](data, "train", prepare["rows"](160, seed=1))
    prepare["write"](data, "test", prepare["rows"](40, seed=2))
    return folder
