import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.device_dtypes import Int64, Words, is_host_value, materialize


def test_words_are_ids_on_the_device_and_bytes_on_the_host():
    words = Words(jnp.array([[1], [0]]), ("no", "yes"))
    assert words.shape == (2, 1)
    assert np.asarray(words).tolist() == [[b"yes"], [b"no"]]


def test_words_and_int64_pass_through_jit():
    @jax.jit
    def flip(words, count):
        return Words(1 - words.ids, words.vocabulary), Int64(count.values + 1)

    words, count = flip(Words(jnp.array([0]), ("no", "yes")), Int64(jnp.array([2])))
    assert np.asarray(words).tolist() == [b"yes"]
    assert np.asarray(count).dtype == np.int64
    assert count.shape == (1,)


def test_words_outside_ascii_are_utf8():
    assert np.asarray(Words(np.array([0]), ("größer",)))[0] == "größer".encode()


def test_a_tree_is_materialized_whole():
    tree = {
        "class": Words(jnp.array([1]), ("a", "b")),
        "id": Int64(jnp.array([7])),
        "score": jnp.array([0.5]),
    }
    found = materialize(jax.device_get(tree))
    assert {name: value.dtype.kind for name, value in found.items()} == {
        "class": "O",
        "id": "i",
        "score": "f",
    }
    assert all(type(value) is np.ndarray for value in found.values())


def test_arrays_are_not_host_values():
    assert is_host_value(Int64(jnp.zeros(1)))
    assert not is_host_value(jnp.zeros(1))
