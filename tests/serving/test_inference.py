"""Requests that wait too long are given up."""

import asyncio

import pytest

from estimax.serving.inference import _give_up
from estimax.serving.status import Code, ServingError


def test_an_answer_that_does_not_come_is_a_deadline_exceeded():
    async def wait():
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(_give_up, future, 0.5)
        await future

    with pytest.raises(ServingError, match=r"no answer within 0\.5 s") as raised:
        asyncio.run(wait())
    assert raised.value.code is Code.DEADLINE_EXCEEDED
