"""Programs are compiled before requests come, and for a bounded set of shapes."""

import numpy as np
import pytest

from estimax import export
from estimax.core.errors import ConfigError
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import NotCompiledError, Programs
from estimax.serving.status import ServingError
from tests.export import servables

BATCHING = BatchingConfig(batch_sizes=(1, 4), list_length=2, max_list_length=16)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    base = tmp_path_factory.mktemp("bundle")
    export.write_bundle(servables.wide_servable(), base, platforms=("cpu",))
    return export.load(base)


@pytest.fixture(scope="module")
def programs(bundle):
    made = Programs(bundle, BATCHING)
    made.compile()
    return made


def request(rows, length):
    names = ["red", "green", "blue"]
    tags = [[names[i % 3] for i in range(length)], *[["red"]] * (rows - 1)]
    return {"age": [1.0] * rows, "city": ["Oslo"] * rows, "tags": tags}


def test_lists_of_every_length_need_few_programs(bundle, programs):
    assert BATCHING.list_lengths == (2, 8, 16)
    for length in (0, 1, 3, 8, 9, 16):
        for rows in (1, 3):
            given = request(rows, length)
            found = programs.run("predict", bundle.check(given), may_compile=True)
            wanted = bundle.predict(given)
            np.testing.assert_allclose(found["logits"], wanted["logits"], rtol=1e-5)
    # Compiled before: 2 values, and 8, which the example has. Only the largest batch.
    (shapes,) = programs.learned()
    assert shapes["staged/tags/ids"] == (4, 16)
    assert programs.late_compiles == 1


def test_a_version_compiles_the_shapes_of_the_one_before_it(bundle, programs):
    programs.run("predict", bundle.check(request(2, 9)), may_compile=True)
    fresh = Programs(bundle, BATCHING)
    with pytest.raises(NotCompiledError):
        fresh.run("predict", bundle.check(request(2, 9)))
    fresh.compile([*programs.learned(), {"other": (1, 2)}])
    assert fresh.run("predict", bundle.check(request(2, 9)))
    assert fresh.late_compiles == 0
    assert fresh.learned()  # for the version after it


def test_longer_lists_are_refused(bundle, programs):
    with pytest.raises(ServingError, match="at most 16 values, found 32"):
        programs.run("predict", bundle.check(request(1, 17)), may_compile=True)


def test_the_longest_list_is_at_least_the_usual_one():
    with pytest.raises(ConfigError, match="max_list_length"):
        BatchingConfig(list_length=8, max_list_length=4)
