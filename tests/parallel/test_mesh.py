import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from estimax.core.errors import ConfigError
from estimax.parallel import make_mesh, one_at_a_time, process_block, split_sharding


def test_a_cpu_uses_one_device_unless_told_otherwise():
    assert make_mesh() is None
    assert make_mesh(1) is None


def test_a_number_takes_the_first_devices():
    assert list(make_mesh(4).devices.flat) == jax.devices()[:4]


def test_all_devices_and_a_list_of_devices():
    assert make_mesh("all").size == 8
    chosen = jax.devices()[2:5]
    assert list(make_mesh(chosen).devices.flat) == chosen


def test_the_axes_of_a_given_mesh_are_joined():
    given = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    assert dict(make_mesh(mesh=given).shape) == {"data": 8}


def test_more_devices_than_there_are_is_an_error_that_says_how_to_simulate_them():
    with pytest.raises(ConfigError, match=r"between 1 and 8.*device_count=9"):
        make_mesh(9)


def test_one_process_has_the_whole_mesh():
    assert process_block(make_mesh(8)) == (0, 1)


def _large_sum(mesh):
    """Return a function that takes about 0.1 s, and its argument on the mesh."""
    rows = jax.device_put(np.ones((8, 200, 200), np.float32), split_sharding(mesh))

    def power(x):
        return jax.lax.fori_loop(0, 200, lambda _, y: y @ x / 200, x).sum()

    return jax.jit(power), rows


def test_programs_of_simulated_devices_do_not_run_at_once():
    mesh = make_mesh(devices=8)
    power, rows = _large_sum(mesh)
    assert one_at_a_time(power, mesh)(rows).is_ready()


def test_a_program_of_one_device_is_left_as_it_is():
    def double(x):
        return 2 * x

    assert one_at_a_time(double, None) is double
