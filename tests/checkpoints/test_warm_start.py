import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import checkpoints
from estimax.checkpoints import VocabInfo, WarmStartSettings
from estimax.checkpoints.warm_start import matches, remap_rows
from estimax.core.errors import CheckpointError, ConfigError, MissingFileError
from estimax.core.state import TrainState


def new_state(fill=0.0, *, rows=4, step=0, slots=None, averages=None):
    """Two weights with a dense slot each, and a table with its slots."""
    params = {"a/w": jnp.full((2, 2), fill), "b/w": jnp.full(3, fill)}
    return TrainState(
        step=jnp.int32(step),
        params=params,
        tables={"emb": jnp.full((rows, 2), fill)},
        model_state={"batch_stats": {"bn": {"mean": jnp.full(2, fill)}}},
        opt_state={"0": {"m": {n: jnp.full_like(v, -fill) for n, v in params.items()}}},
        slots={"emb": {"accumulator": jnp.full((rows, 2), -fill)}},
        key=jax.random.key(0),
        averages=averages or {},
    )


@pytest.fixture
def source(tmp_path):
    arrays = checkpoints.snapshot(checkpoints.flatten_state(new_state(7.0, step=9)))
    return checkpoints.write(tmp_path / "model.ckpt-9", arrays, 9)


def started(state, given, **settings):
    new, report = checkpoints.warm_start(state, WarmStartSettings(given, **settings))
    return new, report


def test_a_path_takes_every_variable_and_its_slots_but_not_the_step(source):
    new, report = started(new_state(), source)
    assert new.params["a/w"].tolist() == [[7, 7], [7, 7]]
    assert new.tables["emb"][0].tolist() == [7, 7]
    assert new.model_state["batch_stats"]["bn"]["mean"].tolist() == [7, 7]
    assert new.opt_state["0"]["m"]["b/w"].tolist() == [-7, -7, -7]
    assert new.slots["emb"]["accumulator"][0].tolist() == [-7, -7]
    assert int(new.step) == 0
    assert len(report.loaded) == 4
    assert not report.kept


def test_a_model_dir_means_its_latest_checkpoint(source):
    new, report = started(new_state(), source.parent)
    assert new.params["a/w"][0, 0] == 7
    assert report.source == str(source)


def test_an_expression_is_anchored_at_the_start_of_names(source):
    new, report = started(new_state(), source, vars_to_warm_start="a")
    assert new.params["a/w"][0, 0] == 7
    assert new.params["b/w"][0] == 0
    assert list(report.loaded) == ["a/w"]
    assert report.kept["b/w"] == "not selected"
    assert new.opt_state["0"]["m"]["b/w"][0] == 0
    new, _ = started(new_state(), source, vars_to_warm_start="w|emb")
    assert new.params["a/w"][0, 0] == 0


def test_a_list_may_name_the_step_as_well(source):
    everything, _ = started(new_state(), source, vars_to_warm_start=[".*"])
    assert int(everything.step) == 9
    some, _ = started(new_state(), source, vars_to_warm_start=["a", "emb"])
    assert (int(some.step), some.params["b/w"][0]) == (0, 0)


def test_slots_can_be_left_behind(source):
    new, report = started(new_state(), source, slots=False)
    assert new.params["a/w"][0, 0] == 7
    assert new.opt_state["0"]["m"]["a/w"][0, 0] == 0
    assert report.loaded["a/w"].endswith("fresh m")


def test_slots_come_whole_or_not_at_all(source):
    # An Ftrl that finds an Adagrad's accumulator and no linear term.
    ftrl = {"emb": {"accumulator": jnp.ones((4, 2)), "linear": jnp.zeros((4, 2))}}
    state = new_state()
    state = type(state)(**{**vars(state), "slots": ftrl})
    new, _ = started(state, source, vars_to_warm_start="emb")
    assert new.slots["emb"]["accumulator"][0, 0] == 1


def test_the_same_slot_is_found_whichever_way_a_variable_is_updated():
    names = ["training/3/m/x/y", "training/slots/emb/m", "training/0/0/mu/x/y"]
    found = checkpoints.state_names.slots_of(names, ["x/y", "emb"])
    assert found["emb"] == {"m": "training/slots/emb/m"}
    assert found["x/y"] == {"m": "training/3/m/x/y", "0/mu": "training/0/0/mu/x/y"}


def test_variables_can_have_had_other_names(source):
    new, report = started(
        new_state(),
        source,
        vars_to_warm_start="b",
        var_name_to_prev_var_name={"b/w": "bn/mean"},
        partial=True,
    )
    assert "[2] in the checkpoint, [3] in the model" in report.kept["b/w"]
    state = new_state()
    state = type(state)(**{**vars(state), "params": {"c/w": jnp.zeros((2, 2))}})
    state = type(state)(
        **{**vars(state), "opt_state": {"0": {"m": {"c/w": 0.0 * new.params["a/w"]}}}}
    )
    new, report = started(
        state,
        source,
        vars_to_warm_start="c",
        var_name_to_prev_var_name={"c/w": "a/w"},
    )
    assert new.params["c/w"][0, 0] == 7
    assert new.opt_state["0"]["m"]["c/w"][0, 0] == -7
    assert "from a/w" in report.loaded["c/w"]


def test_what_does_not_fit_is_told_with_names_and_shapes(source):
    with pytest.raises(CheckpointError) as error:
        started(new_state(rows=5), source)
    assert "emb  [4, 2] in the checkpoint, [5, 2] in the model" in str(error.value)
    assert "partial=True" in str(error.value)


def test_partial_keeps_the_initial_value_of_what_does_not_fit(source):
    new, report = started(new_state(1.0, rows=5), source, partial=True)
    assert new.tables["emb"][0, 0] == 1
    assert new.params["a/w"][0, 0] == 7
    assert list(report.kept) == ["emb"]


@pytest.mark.parametrize("pattern", ["nothing", [], None])
def test_nothing_to_load_is_an_error(source, pattern):
    with pytest.raises(CheckpointError, match="nothing to load"):
        started(new_state(), source, vars_to_warm_start=pattern)


def test_names_that_are_not_selected_are_refused(source):
    info = VocabInfo(["x"], 1, 0, ["x"])
    with pytest.raises(ConfigError, match="did you mean 'a/w'"):
        started(new_state(), source, var_name_to_prev_var_name={"a/v": "a/w"})
    with pytest.raises(ConfigError, match="vars_to_warm_start selects"):
        started(
            new_state(),
            source,
            vars_to_warm_start="a",
            var_name_to_vocab_info={"emb": info},
        )


def test_an_average_begins_at_the_loaded_value(source):
    averages = {"b/w": jnp.ones(3)}
    new, _ = started(new_state(averages=averages), source)
    assert new.averages["b/w"].tolist() == [7, 7, 7]


def test_the_table_tells_what_was_loaded_and_what_was_not(source):
    _, report = started(new_state(), source, vars_to_warm_start="a|emb")
    lines = str(report).splitlines()
    assert lines[0] == f"warm start from {source}: 2 of 4 variables"
    assert lines[1] == "  loaded  a/w  float32[2, 2], with m"
    assert lines[-1] == "  unused  bn/mean  in the checkpoint only"


def test_a_source_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingFileError, match="neither a checkpoint nor a model_dir"):
        started(new_state(), tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="ckpt_to_initialize_from is empty"):
        WarmStartSettings("")


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(ConfigError, match="regular expression"):
        WarmStartSettings("runs", vars_to_warm_start="(")
    with pytest.raises(ConfigError, match="warm_start_from must be the path"):
        checkpoints.as_settings(3)
    given = checkpoints.as_settings(b"runs/a")
    assert given.ckpt_to_initialize_from == os.path.abspath("runs/a")
    assert checkpoints.as_settings(None) is None


@pytest.fixture
def words(tmp_path):
    """make(words) -> path of a vocabulary file."""

    def make(name, text):
        path = tmp_path / f"{name}.txt"
        path.write_text(text)
        return path

    return make


def test_rows_follow_their_words_into_another_vocabulary(tmp_path, words):
    old = np.arange(8, dtype=np.float32).reshape(4, 2)  # x, y, z and a bucket
    state = new_state(7.0)
    arrays = checkpoints.snapshot(checkpoints.flatten_state(state))
    arrays |= {"emb": old, "training/slots/emb/accumulator": old + 100}
    path = checkpoints.write(tmp_path / "model.ckpt-1", arrays, 1)
    info = VocabInfo(words("new", "z\nq\nx\n"), 3, 1, words("old", "x\ny\nz"))
    new, report = started(new_state(0.5), path, var_name_to_vocab_info={"emb": info})
    own, slot = [0.5, 0.5], [-0.5, -0.5]
    assert new.tables["emb"].tolist() == [[4, 5], own, [0, 1], own]
    assert new.slots["emb"]["accumulator"].tolist() == [
        [104, 105],
        slot,
        [100, 101],
        slot,
    ]
    assert "2 of 4 by vocabulary" in report.loaded["emb"]


def moved(info, old, initial):
    at = matches(info)
    return remap_rows(info, at, old, initial, name="v").tolist()


OLD = np.arange(1, 7, dtype=np.float32).reshape(3, 2)


def test_only_the_first_words_of_the_old_vocabulary_count():
    info = VocabInfo(["c", "a"], 2, 0, ["a", "b", "c"], old_vocab_size=2)
    assert moved(info, OLD, np.zeros((2, 2))) == [[0, 0], [1, 2]]


def test_axis_one_remaps_columns_and_a_vector_its_only_axis():
    info = VocabInfo(["b", "new", "a"], 3, 0, ["a", "b"], axis=1)
    assert moved(info, OLD, np.full((3, 3), 9.0)) == [[2, 9, 1], [4, 9, 3], [6, 9, 5]]
    assert moved(info, np.array([1.0, 2.0]), np.full(3, 9.0)) == [2, 9, 1]


def test_fewer_rows_than_words_are_cut_and_more_are_refused():
    info = VocabInfo(["c", "a", "b"], 3, 1, ["a", "b", "c"])
    assert moved(info, OLD, np.zeros((2, 2))) == [[5, 6], [1, 2]]
    with pytest.raises(CheckpointError, match="has 5 entries along axis 0"):
        moved(info, OLD, np.zeros((5, 2)))


def test_a_vocabulary_of_another_table_is_noticed():
    info = VocabInfo(["d"], 1, 0, ["a", "b", "c", "d"])
    with pytest.raises(CheckpointError, match="fewer than the words of old_vocab"):
        moved(info, OLD, np.zeros((1, 2)))
    with pytest.raises(CheckpointError, match="a vocabulary changes axis 0"):
        moved(info, OLD, np.zeros((1, 3)))


def test_a_backup_initializer_makes_the_rows_without_a_match(source):
    info = VocabInfo(
        ["b", "new"], 2, 1, ["a", "b"], backup_initializer=jax.nn.initializers.ones
    )
    new, _ = started(
        new_state(rows=3),
        source,
        vars_to_warm_start=None,
        var_name_to_vocab_info={"emb": info},
    )
    assert new.tables["emb"].tolist() == [[7, 7], [1, 1], [1, 1]]
    assert new.params["a/w"][0, 0] == 0


def test_vocabularies_that_cannot_be_meant_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="axis must be 0 or 1"):
        VocabInfo(["a"], 1, 0, ["a"], axis=2)
    with pytest.raises(ConfigError, match="new_vocab_size must be >= 1"):
        VocabInfo(["a"], 0, 0, ["a"])
    with pytest.raises(ConfigError, match="2 words, fewer than the size of 3"):
        matches(VocabInfo(["a", "b"], 3, 0, ["a"]))
    with pytest.raises(MissingFileError, match="cannot be read"):
        matches(VocabInfo(str(tmp_path / "no"), 1, 0, ["a"]))


def test_line_ends_of_either_kind_end_a_word(tmp_path):
    (tmp_path / "new.txt").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "old.txt").write_bytes(b"b\na")
    info = VocabInfo(tmp_path / "new.txt", 2, 0, tmp_path / "old.txt")
    assert matches(info).tolist() == [1, 0]


def test_large_vocabularies_are_remapped_at_once(tmp_path):
    n = 300_000
    path = tmp_path / "old.txt"
    path.write_bytes(b"\n".join(b"w%d" % i for i in range(n)))
    back = tmp_path / "new.txt"
    back.write_bytes(b"\n".join(b"w%d" % i for i in reversed(range(n))))
    at = matches(VocabInfo(path, n, 1, back))
    assert at[0] == n - 1
    assert at[-2:].tolist() == [0, -1]


def test_its_repr_shows_only_what_differs_from_the_default():
    settings = WarmStartSettings("runs/a", vars_to_warm_start="dnn/.*", partial=True)
    assert repr(settings) == (
        "WarmStartSettings(ckpt_to_initialize_from='runs/a', "
        "vars_to_warm_start='dnn/.*', partial=True)"
    )
    words = [str(number) for number in range(1000)]
    assert len(repr(VocabInfo(words, 1000, 0, words))) < 200
