"""The string hash and what is built on it, against TensorFlow's bits."""

import base64

import numpy as np
import pytest
from golden_files import load_golden

from estimax.core.strings import Strings
from estimax.feature_columns.transforms import (
    HashBucket,
    fingerprint64,
    fingerprint_cat64,
)


def _strings(words):
    array = np.empty(len(words), object)
    array[:] = words
    return Strings.of(array)


@pytest.mark.golden
def test_every_golden_string_has_tensorflows_fingerprint_and_buckets():
    golden = load_golden("hash_bucket.json")
    cases = golden["strings"]
    strings = _strings([base64.b64decode(case["b64"]) for case in cases])
    expected = np.array([case["fingerprint64"] for case in cases], np.uint64)
    np.testing.assert_array_equal(fingerprint64(strings), expected)
    for i, size in enumerate(golden["bucket_sizes"]):
        ids = HashBucket("s", size).ids_of(strings, drop=False)
        assert ids.tolist() == [case["buckets"][i] for case in cases]
    assert len(ids) == len(cases)


@pytest.mark.golden
def test_every_golden_integer_is_hashed_as_decimal_text():
    golden = load_golden("hash_bucket.json")
    cases = golden["ints"]
    values = np.array([case["value"] for case in cases], np.int64)
    expected = np.array([case["fingerprint64"] for case in cases], np.uint64)
    np.testing.assert_array_equal(fingerprint64(values), expected)
    for i, size in enumerate(golden["bucket_sizes"]):
        ids = HashBucket("n", size, is_integer=True).ids_of(values, drop=False)
        assert ids.tolist() == [case["buckets"][i] for case in cases]
    assert len(ids) == len(cases)


@pytest.mark.golden
def test_every_golden_pair_of_hashes_is_combined_alike():
    cases = load_golden("crossed.json")["fingerprint_cat64"]
    keys = np.array([case["hash_key"] for case in cases], np.int64).view(np.uint64)
    values = np.array([case["value"] for case in cases], np.int64).view(np.uint64)
    combined = fingerprint_cat64(keys, values)
    compared = 0
    for got, case in zip(combined.tolist(), cases, strict=True):
        assert got % 2**62 == case["mod_2_62"]
        assert got % (2**63 - 1) == case["mod_int64_max"]
        assert got % 1000 == case["mod_1000"]
        compared += 1
    assert compared == len(cases)


def test_hashing_keeps_the_shape_of_its_input():
    words = Strings.of([["a", "b"], ["c", "d"]])
    assert fingerprint64(words).shape == (2, 2)


def test_a_slice_hashes_as_its_own_words():
    words = Strings.of(["first", "second", "third"])
    assert fingerprint64(words[1:])[0] == fingerprint64(Strings.of(["second"]))[0]


def test_strings_of_arrow_are_hashed_in_place():
    import pyarrow as pa

    words = Strings.of(pa.array(["a", None, "long enough to be in the next class"]))
    assert fingerprint64(words)[1] == 0x9AE16A3B2F90404F
