from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.core.raw_values import as_raw
from estimax.core.spec import ModeKeys
from estimax.core.strings import Strings
from estimax.staging.trace import HostOnly, Origin, Trace

CITY = Origin("features", "city")


@dataclass(frozen=True)
class Lengths:
    """The length of every word."""

    key: str = "city"

    @property
    def name(self):
        return self.key

    @property
    def keys(self):
        return (self.key,)

    def __call__(self, raw):
        return raw[self.key].lengths.astype(np.int32)


def test_outside_of_a_trace_a_transform_simply_runs():
    found = staging.stage(Lengths(), {"city": np.array(["Oslo", "Ulm"])})
    assert isinstance(found, jax.Array)
    assert found.tolist() == [4, 3]


def test_inside_a_trace_it_is_recorded_once_and_delivered():
    trace = Trace(ModeKeys.TRAIN, lambda call: jnp.array([4, 3]))
    city = trace.register_feature(HostOnly(CITY, "text"), CITY)
    with staging.tracing(trace):
        first = staging.stage(Lengths(), {"city": city})
        again = staging.stage(Lengths(), {"renamed": city, "city": city})
    assert first is again
    (call,) = trace.calls.values()
    assert call.run({CITY: Strings.of(["Bern"])}).tolist() == [4]
    assert trace.call_of(first) is call
    assert trace.call_of(first + 0) is None


def test_two_transforms_of_one_name_get_two_names():
    trace = Trace(ModeKeys.TRAIN, lambda call: jnp.zeros(1))
    other = Origin("features", "town")
    one = trace.register_feature(HostOnly(CITY, "text"), CITY)
    two = trace.register_feature(HostOnly(other, "text"), other)
    with staging.tracing(trace):
        staging.stage(Lengths(), {"city": one})
        staging.stage(Lengths(), {"city": two})
    assert [call.name for call in trace.calls.values()] == ["city", "city#2"]


def test_a_trace_ends_with_its_block():
    with staging.tracing(Trace(ModeKeys.EVAL, lambda call: None)):
        assert staging.current().mode == ModeKeys.EVAL
    assert staging.current() is None


def test_a_missing_feature_is_told_with_its_neighbours():
    with pytest.raises(
        FeatureError, match=r"needs feature 'city'.*did you mean 'citty'"
    ):
        staging.stage(Lengths(), {"citty": np.array(["a"])})


def test_host_work_on_what_the_device_computed_is_refused():
    def model(x):
        return staging.stage(Lengths(), {"city": x + 1})

    with pytest.raises(FeatureError, match="the model computed it on the device"):
        jax.jit(model)(jnp.ones(2))


@pytest.mark.parametrize(
    "use",
    [
        lambda city: city + 1,
        lambda city: 2 * city,
        lambda city: city / 2,
        lambda city: city[0],
        lambda city: city.shape,
        lambda city: jnp.sum(city),
        lambda city: jnp.asarray(city),
        lambda city: np.asarray(city),
        lambda city: city == "Oslo",
        lambda city: city != "Oslo",
        lambda city: city >= 2,
        lambda city: len(city),
        lambda city: float(city),
        lambda city: bool(city),
        lambda city: list(city),
    ],
)
def test_text_used_as_an_array_says_which_and_what_to_do(use):
    with pytest.raises(FeatureError, match=r"features/city is text and stays on the"):
        use(HostOnly(CITY, "text"))


def test_a_placeholder_can_be_shown_and_kept_in_sets():
    city = HostOnly(CITY, "text")
    assert repr(city) == "<text feature 'features/city', on the host>"
    assert len({city, city}) == 1


def test_what_can_be_staged_is_raw_or_concrete():
    trace = Trace(ModeKeys.TRAIN, lambda call: None)
    city = trace.register_feature(HostOnly(CITY, "text"), CITY)
    with staging.tracing(trace):
        assert staging.can_stage(city)
        assert staging.can_stage(np.zeros(2))
        assert not jax.eval_shape(
            lambda x: jnp.array(staging.can_stage(x)), jnp.zeros(2)
        ).shape


def test_raw_forms_are_arrays_and_strings():
    assert isinstance(as_raw(["a", "b"]), Strings)
    assert as_raw([1, 2]).tolist() == [1, 2]
    strings = Strings.of(["a"])
    assert as_raw(strings) is strings
