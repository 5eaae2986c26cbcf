"""Labels of bundles that evaluate: converted, checked, and kept as JSON."""

import numpy as np
import pytest

from estimax.core.errors import BundleError, LabelError
from estimax.core.strings import Strings
from estimax.feature_columns import transforms

IDS = transforms.LabelNumbers("labels", "int32", 0, 2)
WORDS = transforms.LabelNumbers("labels", "float32", 0, 1, ("no", "yes"))


@pytest.mark.parametrize("labels", [IDS, WORDS])
def test_labels_survive_json(labels, tmp_path):
    record = transforms.to_json(labels, tmp_path)
    assert transforms.from_json(record, tmp_path) == labels


def test_words_become_their_numbers():
    found = WORDS({"labels": Strings.of(["yes", "no", "yes"])})
    assert found.dtype == np.float32
    assert found.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "given", "words"),
    [
        (IDS, np.array([0, 3]), "from 0 to 2, found others in row 1"),
        (IDS, Strings.of(["1"]), "expected numbers"),
        (WORDS, np.array([1.0]), "expected text"),
        (WORDS, Strings.of(["yes", "maybe"]), "one of no, yes, found others in row 1"),
    ],
)
def test_other_labels_are_refused(labels, given, words):
    with pytest.raises(LabelError, match=words):
        labels({"labels": given})


@pytest.mark.parametrize(
    "change", [{"words": "ab"}, {"words": [1]}, {"dtype": "object"}, {"low": "0"}]
)
def test_forged_fields_are_refused(change, tmp_path):
    record = {**transforms.to_json(IDS, tmp_path), **change}
    with pytest.raises(BundleError):
        transforms.from_json(record, tmp_path)
