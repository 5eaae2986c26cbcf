import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax.staging.large_pages import ask_for_large_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def large_kilobytes(address):
    """How much of the mapping around an address lies in large pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word, *rest = line.split()
        if "-" in word and not word.endswith(":"):
            start, end = (int(bound, 16) for bound in word.split("-"))
            inside = start <= address < end
        elif inside and word == "AnonHugePages:":
            return int(rest[0])
    return 0


def has_large_pages():
    if not SETTING.exists() or "[never]" in SETTING.read_text():
        return False
    return tuple(int(n) for n in platform.release().split(".")[:2]) >= (6, 1)


@pytest.mark.skipif(platform.system() != "Linux", reason="asks Linux")
@pytest.mark.skipif(not has_large_pages(), reason="this Linux has none to give at once")
def test_a_large_array_lies_in_large_pages_and_is_what_it_was():
    array = jax.block_until_ready(jnp.arange(4_000_000, dtype=jnp.float32))
    address = array.unsafe_buffer_pointer()
    ask_for_large_pages({"table": array, "slot": {}})
    assert array.unsafe_buffer_pointer() == address
    assert large_kilobytes(address + 8_000_000) > 0
    np.testing.assert_array_equal(array, np.arange(4_000_000, dtype=np.float32))


def test_small_arrays_of_any_kind_are_left_alone():
    arrays = [jnp.zeros(3), jnp.zeros((0, 4)), jnp.zeros((), jnp.int32)]
    ask_for_large_pages(arrays)
    assert [array.size for array in arrays] == [3, 0, 1]
