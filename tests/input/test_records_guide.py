"""The guide's snippets run; the file is written before it is read."""

import re
import runpy
from pathlib import Path

import numpy as np

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "records.md"


def test_the_snippets_of_the_guide_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reading, *writing = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    Path("guide.py").write_text("\n".join([reading, *writing]))
    names = runpy.run_path("guide.py")
    features, label = next(iter(names["input_fn"]()))
    assert sorted(np.ravel(features["age"]).tolist()) == [31.0, 42.0]
    assert sorted(features["city"].values.tolist()) == [b"Oslo", b"Rome"]
    assert label.shape == (2, 1)
    assert (tmp_path / "more.tfrecord.gz").stat().st_size > 0
