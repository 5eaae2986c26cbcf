"""Requests are checked before they share a batch."""

import numpy as np
import pytest

from estimax.core.errors import FeatureError
from estimax.export import TensorInfo
from estimax.feature_columns import transforms
from estimax.serving.json_rows import FeatureReader
from estimax.serving.requests import IdCheck
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import HostCall, Origin

N, M = Origin("features", "n"), Origin("features", "m")


def test_ids_out_of_range_are_found_in_their_request():
    table = transforms.pad_ids(transforms.Identity("n", 5), "error")
    shown = transforms.pad_ids(transforms.Identity("m", 5), "drop")
    check = IdCheck(
        HostPlan(raw=(), calls=(HostCall("n", table, (N,)), HostCall("m", shown, (M,))))
    )
    reader = FeatureReader(
        [TensorInfo("n", "int64", (None,)), TensorInfo("m", "int64", (None,))], [N, M]
    )
    check({N: np.array([4, -1]), M: np.array([9, 9])})
    check(reader.from_rows([{"n": 4, "m": 9}, {"n": 0, "m": 9}]))
    with pytest.raises(FeatureError, match="7"):
        check({N: np.array([4, 7]), M: np.array([0, 0])})
    with pytest.raises(FeatureError, match="7"):
        check(reader.from_rows([{"n": 4, "m": 0}, {"n": 7, "m": 0}]))
