"""Event files with more than scalars, read by TensorBoard's own code."""

import io
import wave
from pathlib import Path

import numpy as np
import pytest

from estimax.hooks import summary
from estimax.hooks.summary import SummaryWriter, curves

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
)
plugin_event_multiplexer = pytest.importorskip(
    "tensorboard.backend.event_processing.plugin_event_multiplexer"
)


def read(folder: Path):
    return event_accumulator.EventAccumulator(str(folder)).Reload()


def test_a_sound_is_a_wav_file_of_its_rate(tmp_path: Path) -> None:
    tone = np.sin(np.arange(800) / 5)[None]
    with SummaryWriter(tmp_path) as writer:
        writer.audio("tone", np.concatenate([tone, 2 * tone]), 8000, step=3)
    found = read(tmp_path)
    (event,) = found.Audio("tone/audio/1")
    assert (event.step, event.sample_rate, event.length_frames) == (3, 8000, 800)
    with wave.open(io.BytesIO(event.encoded_audio_string)) as file:
        assert (file.getframerate(), file.getnchannels()) == (8000, 1)
        samples = np.frombuffer(file.readframes(800), "<i2")
    assert samples.max() == 32767, "clipped"
    (quiet,) = found.Audio("tone/audio/0")
    samples = np.frombuffer(quiet.encoded_audio_string[-1600:], "<i2")
    np.testing.assert_allclose(samples / 32767, tone[0], atol=1e-4)


def test_sound_of_another_shape_is_refused(tmp_path: Path) -> None:
    with (
        SummaryWriter(tmp_path) as writer,
        pytest.raises(ValueError, match=r"expected \[B, T\] or \[B, T, C\]"),
    ):
        writer.audio("tone", np.zeros(8), 8000, step=1)


def test_a_precision_recall_curve_is_what_the_plugin_expects(tmp_path: Path) -> None:
    from tensorboard.plugins.pr_curve import metadata
    from tensorboard.util import tensor_util

    counts = np.array([[3, 2, 0], [5, 1, 0], [0, 4, 5], [0, 1, 3]])
    with SummaryWriter(tmp_path) as writer:
        writer.pr_curve("click", counts, step=7)
    multiplexer = plugin_event_multiplexer.EventMultiplexer({"run": str(tmp_path)})
    multiplexer.Reload()
    about = multiplexer.SummaryMetadata("run", "click").plugin_data
    assert about.plugin_name == metadata.PLUGIN_NAME
    assert metadata.parse_plugin_metadata(about.content).num_thresholds == 3
    (event,) = multiplexer.Tensors("run", "click")
    rows = tensor_util.make_ndarray(event.tensor_proto)
    np.testing.assert_allclose(rows[:4], counts)
    np.testing.assert_allclose(rows[4], [3 / 8, 2 / 3, 1.0])
    np.testing.assert_allclose(rows[5], [1.0, 2 / 3, 0.0], rtol=1e-6)


def test_hyper_parameters_keep_their_types(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import metadata

    with SummaryWriter(tmp_path) as writer:
        writer.hparams({"units": 64, "name": "wide", "norm": True, "none": None})
    multiplexer = plugin_event_multiplexer.EventMultiplexer({"run": str(tmp_path)})
    multiplexer.Reload()
    about = multiplexer.SummaryMetadata("run", metadata.SESSION_START_INFO_TAG)
    start = metadata.parse_session_start_info_plugin_data(about.plugin_data.content)
    assert start.hparams["units"].number_value == 64
    assert start.hparams["name"].string_value == "wide"
    assert start.hparams["norm"].bool_value
    assert "none" not in start.hparams


def test_a_restart_hides_the_points_behind_it(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in (1, 51, 101, 151):
            writer.scalar("loss", float(step), step)
        writer.restart(61)
        writer.scalar("loss", 7.0, 111)
    expected = [(1, 1.0), (51, 51.0), (111, 7.0)]
    shown = [(event.step, event.value) for event in read(tmp_path).Scalars("loss")]
    assert shown == expected
    assert summary.read_scalars(tmp_path) == {"loss": expected}


def test_the_projector_reads_vectors_and_words(tmp_path: Path) -> None:
    from google.protobuf import text_format
    from tensorboard.plugins.projector import projector_config_pb2, projector_plugin

    vectors = np.array([[0.5, -1.0], [1e-7, 3.0]], np.float32)
    words = ["Oslo\tNorway", ""]
    summary.write_embeddings(tmp_path, [summary.Embedding('a/"b"', vectors, words)])
    config = projector_config_pb2.ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    (entry,) = config.embeddings
    assert entry.tensor_name == 'a/"b"'
    found = projector_plugin._read_tensor_tsv_file(str(tmp_path / entry.tensor_path))
    np.testing.assert_allclose(found, vectors)
    shown = (tmp_path / entry.metadata_path).read_text()
    assert shown == "Oslo Norway\n(empty)\n"


def test_embeddings_need_a_word_for_every_row(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs vectors"):
        summary.write_embeddings(tmp_path, [summary.Embedding("a", np.eye(2), ["x"])])


def test_a_curve_passes_through_its_points() -> None:
    picture = curves.draw_curve([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    blue = picture[:, :, 2].astype(int) - picture[:, :, 0] > 60
    side = len(picture)
    assert blue[side // 2, :20].any(), "along the left edge"
    assert blue[:20, side // 2].any(), "along the top"
    assert not blue[side // 2 + 20 :, side // 2 :].any(), "and nowhere else"


def test_a_matrix_is_dark_where_the_rows_are() -> None:
    picture = curves.draw_matrix([[9, 1], [0, 0]]).astype(int)
    quarter = len(picture) // 4
    dark, light = picture[quarter, quarter], picture[quarter, 3 * quarter]
    assert dark.sum() < light.sum()
    assert picture[3 * quarter, quarter].tolist() == [255, 255, 255], "no rows"
