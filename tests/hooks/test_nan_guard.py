import logging
from typing import Any

import pytest

from estimax.core.errors import NanLossError
from estimax.hooks import NanTensorHook


def test_nan_loss_raises_and_names_the_step(run: Any) -> None:
    run.nan_from = 5
    with pytest.raises(NanLossError, match="the loss is NaN at step 6"):
        run([NanTensorHook(every_n_steps=1)], steps=10)


def test_loss_is_looked_at_now_and_then(run: Any) -> None:
    run([NanTensorHook()], steps=250)
    assert run.fetches == [1, 101, 201]


def test_nan_between_two_looks_is_found_at_the_next(run: Any) -> None:
    run.nan_from = 5
    with pytest.raises(NanLossError, match=r"at step 101 \(.* since step 6\)"):
        run([NanTensorHook()], steps=250)


def test_nan_after_the_last_look_is_found_at_the_end(run: Any) -> None:
    run.nan_from = 5
    with pytest.raises(NanLossError, match="dnn/w holds NaN at step 50"):
        run([NanTensorHook()], steps=50)


def test_run_can_stop_instead_of_fail(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run.nan_from = 5
    hook = NanTensorHook(fail_on_nan_loss=False, every_n_steps=1)
    with caplog.at_level(logging.WARNING, "estimax"):
        assert run([hook], steps=10).step == 6
    assert "the loss is NaN at step 6" in caplog.text


def test_sound_run_ends_well(run: Any) -> None:
    assert run([NanTensorHook()], steps=50).step == 50
