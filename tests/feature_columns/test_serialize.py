"""Transforms to JSON and back, as a bundle does it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from estimax.core.errors import BundleError
from estimax.core.strings import Strings
from estimax.feature_columns import transforms
from estimax.feature_columns.transforms import (
    Bucketize,
    Cross,
    HashBucket,
    Identity,
    PadIds,
    Scaling,
    Vocabulary,
    Weighted,
    WordList,
    from_json,
    serialize,
    to_json,
    transform,
)

_WORDS = WordList.of(["a", "b c", "", "é", "d\r"])
_TRICKY = WordList.of([b"line\nfeed", b"back\\slash", b"\\n", b"\xff\x00", b"", b"x\n"])


def _round_trip(transform, folder):
    record = json.loads(json.dumps(to_json(transform, folder)))
    return from_json(record, folder)


@pytest.mark.parametrize(
    "transform",
    [
        HashBucket("s", 10, is_integer=True),
        Identity("n", 4, default=2),
        Vocabulary("s", _WORDS, num_oov_buckets=2),
        Vocabulary("s", _TRICKY),
        Vocabulary("n", WordList.of([-5, 2**62])),
        Bucketize("x", (0.1, 0.7), width=2),
        Weighted(Identity("n", 4), "w", "int64"),
        Cross(("a", Identity("n", 4), Bucketize("x", (1.0,))), 100, hash_key=7),
        PadIds(Vocabulary("s", _WORDS), "error"),
        PadIds(Cross((Vocabulary("s", _WORDS), "t"), 9)),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_every_transform_comes_back_equal(transform, tmp_path):
    assert _round_trip(transform, tmp_path) == transform


def test_words_that_need_no_escaping_are_one_per_line(tmp_path):
    record = to_json(Vocabulary("my city", WordList.of(["Oslo", "Rome"])), tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("my_city-")
    assert file.read_bytes() == b"Oslo\nRome\n"
    assert record["words"]["file"] == file.name


def test_a_normalizer_on_the_host_cannot_be_written(tmp_path):
    inner = Bucketize("x", (0.0,), normalizer=abs)
    with pytest.raises(ValueError, match=r"x_bucketized.*Python code"):
        to_json(PadIds(Cross((inner, "s"), 10)), tmp_path)


def test_a_changed_vocabulary_is_noticed(tmp_path):
    record = to_json(Vocabulary("s", WordList.of(["a", "b"])), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"a\n")
    with pytest.raises(BundleError, match="changed or cut"):
        from_json(record, tmp_path)


def test_a_vocabulary_outside_of_the_assets_is_refused(tmp_path):
    record = to_json(Vocabulary("s", WordList.of(["a"])), tmp_path / "assets")
    record["words"]["file"] = "../secret.txt"
    with pytest.raises(BundleError, match="secret"):
        from_json(record, tmp_path / "assets")


def test_an_unknown_type_names_its_neighbour(tmp_path):
    with pytest.raises(BundleError, match="did you mean 'identity'"):
        from_json({"type": "identty"}, tmp_path)


def test_a_record_with_missing_fields_is_refused(tmp_path):
    with pytest.raises(BundleError, match="'vocabulary' cannot be read"):
        from_json({"type": "vocabulary", "key": "s"}, tmp_path)


def test_the_same_ids_come_out_after_the_trip(tmp_path):
    transform = PadIds(Vocabulary("s", _TRICKY, num_oov_buckets=3))
    raw = {"s": Strings.of(np.array([b"x\n", b"new", b"\\n"], object))}
    again = _round_trip(transform, tmp_path)
    np.testing.assert_array_equal(again(raw).ids, transform(raw).ids)


def test_the_package_loads_without_anything_that_trains():
    code = (
        "import sys, estimax.transforms; "
        "banned = ('flax', 'optax', 'numba', 'estimax.feature_columns.column'); "
        "print([m for m in banned if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_scaling_on_the_host_survives_the_trip(tmp_path):
    scaling = Scaling(fill=1.0, log1p=True, mean=2.0, std=3.0)
    buckets = Bucketize("x", (0.0,), normalizer=scaling)
    assert from_json(to_json(buckets, tmp_path), tmp_path) == buckets


def test_every_transform_of_the_package_can_be_written():
    bases = (transform.IdSource, transform.Transform)
    public = [getattr(transforms, name) for name in transforms.__all__]
    classes = {c for c in public if isinstance(c, type) and issubclass(c, bases)}
    assert classes - set(bases) == set(serialize._CLASSES.values())
