"""What TensorBoard's own reader, and the longer way round, make of our messages."""

from pathlib import Path

import numpy as np
import pytest
from tensorboardX import crc32c

from estimax.hooks.summary import SummaryWriter, encoding
from estimax.native.reference import records as reference


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1023, 1024, 1025, 1027, 5000])
def test_checksums_are_those_of_another_program(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert reference.crc32c(np.frombuffer(data, np.uint8)) == crc32c.crc32c(data)


def test_a_histogram_counts_what_numpy_counts() -> None:
    values = np.random.default_rng(1).normal(size=1000)
    (message,) = encoding.encode("histogram", "h", values)
    counts, edges = np.histogram(values, 30)
    assert message.histo.bucket == [0, *counts]
    np.testing.assert_allclose(message.histo.bucket_limit, edges)
    assert message.histo.sum == pytest.approx(values.sum())
    assert message.histo.sum_squares == pytest.approx((values**2).sum())


@pytest.mark.parametrize("values", [[2.0, 2.0], [-3e38, 3e38], [0, 1], [True, False]])
def test_odd_histograms_count_every_value(values: list[float]) -> None:
    (message,) = encoding.encode("histogram", "h", values)
    assert sum(message.histo.bucket) == message.histo.num == 2


LARGEST = np.finfo(np.float32).max
EXTREMES = [
    np.full(5, 1e38, np.float32),
    np.full(5, LARGEST, np.float32),
    np.full(5, -LARGEST, np.float32),
    np.array([LARGEST, -LARGEST], np.float32),
    np.full(5, 1e30, np.float32),
    np.array([1e38, np.nextafter(np.float32(1e38), np.float32(np.inf))], np.float32),
    np.full(5, np.finfo(np.float64).max),
    np.array([np.finfo(np.float64).max, np.finfo(np.float64).min] * 3),
    np.array([-0.0, -0.0]),
    np.array([-0.0, 0.0]),
    np.full(3, 1e-45, np.float32),
    np.array([0, 1e-45], np.float32),
    np.array([5e-324, 1e-323]),
    np.array([5e-324, 1.0, np.finfo(np.float64).max]),
    np.array([7]),
    np.array([2**62, 2**62 + 1]),
]


@pytest.mark.parametrize("values", EXTREMES, ids=range(len(EXTREMES)))
def test_any_finite_values_have_a_histogram(values: np.ndarray) -> None:
    (message,) = encoding.encode("histogram", "h", values)
    histogram = message.histo
    assert sum(histogram.bucket) == histogram.num == values.size
    limits = np.asarray(histogram.bucket_limit)
    assert np.isfinite([*limits, histogram.sum, histogram.sum_squares]).all()
    assert (np.diff(limits) >= 0).all()
    assert limits[0] <= histogram.min <= histogram.max <= limits[-1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_left_out_of_a_histogram(bad: float) -> None:
    (message,) = encoding.encode("histogram", "h", np.array([1.0, bad, 1e38, bad]))
    assert sum(message.histo.bucket) == message.histo.num == 2
    assert encoding.encode("histogram", "h", np.array([bad, bad])) == []
    assert encoding.encode("histogram", "h", np.array([])) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -0.0, 5e-324])
def test_any_number_is_written_as_a_scalar(value: float) -> None:
    (message,) = encoding.encode("scalar", "s", value)
    expected = {1e300: np.inf, 5e-324: 0.0}.get(value, value)
    np.testing.assert_array_equal(message.simple_value, expected)


@pytest.mark.parametrize("values", [[0.0, np.inf], [5e-324, np.nan], [-1e308, 1e308]])
def test_any_numbers_are_an_image(values: list[float]) -> None:
    shown = encoding.as_bytes(np.array(values))
    assert (
        shown.tolist() == {0.0: [0, 0], 5e-324: [255, 0], -1e308: [0, 254]}[values[0]]
    )


def test_names_are_cleaned_as_tensorflow_does() -> None:
    (message,) = encoding.encode("scalar", "/my loss (mean)", 0.5)
    assert message.tag == "my_loss__mean_"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'x': unknown kind 'video'"):
        encoding.encode("video", "x", 0)


def test_values_added_together_are_one_event(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    with SummaryWriter(tmp_path) as out:
        out.add(7, [("scalar", "a", 1.0), ("histogram", "h", np.arange(9.0))])
        out.add(8, [("histogram", "empty", np.array([np.nan]))])
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in found.Scalars("a")] == [(7, 1.0)]
    assert found.Histograms("h")[0].histogram_value.num == 9
    assert found.Tags()["histograms"] == ["h"]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_is_what_another_program_decodes(channels: int) -> None:
    pil = pytest.importorskip("PIL.Image")
    import io

    shape = (5, 7, channels)
    image = np.random.default_rng(channels).integers(0, 256, shape, dtype=np.uint8)
    decoded = np.asarray(pil.open(io.BytesIO(encoding.png(image))))
    np.testing.assert_array_equal(decoded.reshape(shape), image)


def test_an_image_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1, 3 or 4 channels, got shape \(2, 2, 2\)"):
        encoding.encode("image", "x", np.zeros((2, 2, 2)))
