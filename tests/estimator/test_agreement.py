"""What two processes compare before they train, with threads in their place."""

import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from process_threads import in_threads, processes_of

import estimax as ex
from estimax.core.errors import ClusterError, ConfigError, SpecError
from estimax.core.spec import ModeKeys
from estimax.estimator import agreement
from estimax.hooks import RunContext
from estimax.parallel.watching import Place
from estimax.training import loop

COLUMNS = ex.feature_columns
DATA = (
    {"x": np.ones((4, 1), np.float32), "word": np.array(list("abca"))},
    np.array([0, 1, 1, 0]),
)


class OneStack:
    """Stands for the stack of batches that the first step gets."""

    def __init__(self, arrays):
        self.arrays = arrays


def compare(*models, hooks=((), ()), data=(DATA, DATA)):
    """Compare models as far as a first step; return the message, or None."""

    def run(one):
        model = models[one.index]
        with model._open(ModeKeys.TRAIN, lambda: data[one.index]) as session:
            program = model._program(session)
            explain = lambda: agreement.hints_of(  # noqa: E731
                model._model_fn, model._params, program
            )
            arrays = agreement._common_arrays(one, program, session.feed.first)
            stack = OneStack(arrays)
            state = program.form(jax.random.key(0), stack.arrays)
            try:
                agreement.compare_models(
                    one, program, session.feed.first, hooks[one.index], explain
                )
                context = RunContext(0, state)
                steps = (one, program, context, iter([stack]), explain)
                assert list(agreement.comparing_steps(*steps)) == [stack]
            except (ClusterError, ConfigError) as error:
                return str(error)

    first, second = in_threads(processes_of(2), run)
    assert first == second
    return first


def dnn(words="abc", units=2, optimizer=None, **more):
    word = COLUMNS.categorical_column_with_vocabulary_list("word", list(words))
    columns = [COLUMNS.embedding_column(word, 2), COLUMNS.numeric_column("x")]
    optimizer = optimizer or ex.optimizers.SGD(0.1)
    return ex.DNNClassifier([units], columns, optimizer=optimizer, **more)


def custom(rate=0.1, scale=None, start=0.0, params=None, chief_hooks=(), key=None):
    def model_fn(features, labels, mode, params):
        w = ex.get_variable("w", (1,), initializer=nn.initializers.constant(start))
        y = jnp.sum(features["x"] * w, axis=1)
        y = y if scale is None else y * scale
        y = y if key is None else y + jax.random.normal(key, y.shape)
        loss = jnp.mean((y - labels) ** 2) * params.get("weight", 1.0)
        ex.summary.scalar("mean", jnp.mean(y))
        return ex.EstimatorSpec(
            mode,
            loss=loss,
            train_op=optax.sgd(rate),
            training_chief_hooks=chief_hooks,
        )

    return ex.Estimator(model_fn, params=params or {})


def extended(**given):
    return ex.add_metrics(dnn(**given), lambda labels: {})


def decayed(rate):
    return ex.optimizers.SGD(
        ex.optimizers.exponential_decay(0.1, decay_steps=10, decay_rate=rate)
    )


def test_equal_models_are_equal():
    assert compare(dnn(), dnn()) is None
    assert compare(custom(), custom()) is None


def test_shares_may_begin_with_padding_of_different_widths():
    features, labels = DATA

    def padded(width):
        words = np.array([list("abca")] * width).T
        # The model reads the words by their vocabulary, and "unread" not at all.
        unread = np.ones((4, width), np.float32)
        return {**features, "word": words, "unread": unread}, labels

    data = (padded(2), padded(3))
    assert compare(dnn(), dnn(), data=data) is None
    message = compare(dnn(), dnn(units=3), data=data)
    assert "hidden_units: [2] in chief" in message


def test_widths_of_what_the_model_reads_are_compared():
    data = [({"x": np.ones((4, n), np.float32)}, DATA[1]) for n in (1, 2)]
    message = compare(custom(), custom(), data=data)
    assert "float32[1] in chief" in message
    assert "float32[2] in worker 0" in message


def test_a_key_that_the_model_encloses_is_compared():
    one, other = jax.random.key(1), jax.random.key(2)
    assert compare(custom(key=one), custom(key=one)) is None
    assert "key<fry>[] " in compare(custom(key=one), custom(key=other))


def test_an_array_is_described_without_a_copy():
    array = np.zeros(1 << 20)
    tracemalloc.start()
    try:
        agreement.describe(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 4


def test_an_array_of_the_model_in_a_schedule_is_explained():
    # JAX notices it in the first step; another version may while it traces the step.
    class Program:
        def trace_step(self, state, arrays):
            raise jax.errors.UnexpectedTracerError("an array of another trace")

    (alone,) = processes_of(1)
    steps = (alone, Program(), RunContext(0), iter([OneStack(None)]), dict)
    with pytest.raises(SpecError, match="an array that the model_fn computed"):
        list(agreement.comparing_steps(*steps))


def test_a_process_that_traces_its_step_does_not_wait_for_input():
    (alone,) = processes_of(1)
    places = []

    class Program:
        """A program whose tracing notes what a watcher would see."""

        def trace_step(self, state, arrays):
            places.append(alone.place())
            return jax.jit(lambda x: x).trace(1.0)

    with ThreadPoolExecutor(1) as pool, alone.together():
        # The input thread prepares the next batch, and waits for the others.
        release = threading.Event()
        waiting = pool.submit(wait_as_input_thread, alone, release)
        while not alone._waits:
            time.sleep(0.01)
        steps = (alone, Program(), RunContext(0), iter([OneStack(None)]), dict)
        with alone.awaiting_input():
            assert alone.place() == Place(0, "batch", 0)
            list(agreement.comparing_steps(*steps))
            assert alone.place() == Place(0, "batch", 0)
        release.set()
        waiting.result()
    assert places == [Place(0)]


def wait_as_input_thread(peers, release):
    peers._waits[threading.get_ident()] = ("batch", 0)
    release.wait(60)
    del peers._waits[threading.get_ident()]


def test_rows_are_compared_by_what_the_model_reads():
    features, labels = DATA
    model = custom()
    with model._open(ModeKeys.TRAIN, lambda: DATA) as session:
        plan = model._program(session).plan
        crc = session.feed._checksum(plan, [DATA])
        unread = {**features, "word": np.array(list("cccc"))}
        assert session.feed._checksum(plan, [(unread, labels)]) == crc
        read = {**features, "x": features["x"] + 1}
        assert session.feed._checksum(plan, [(read, labels)]) != crc
        assert session.feed._checksum(plan, [(features, labels + 1)]) != crc


@pytest.mark.parametrize(
    ("make", "one", "other", "line"),
    [
        (dnn, {}, {"dropout": 0.5}, "dropout: None in chief"),
        (dnn, {"dropout": 0.5}, {"dropout": 0.2}, "dropout: 0.5 in chief"),
        (dnn, {}, {"units": 3}, "hidden_units: [2] in chief"),
        (dnn, {}, {"words": "acb"}, "vocabulary of 'word', item 2: b in chief"),
        (dnn, {}, {"words": "abcd"}, "vocabulary of 'word', item 4: none: there are 3"),
        (
            dnn,
            {},
            {"optimizer": ex.optimizers.SGD(0.2)},
            "optimizer: SGD(learning_rate=0.1) in chief",
        ),
        (dnn, {"optimizer": decayed(0.9)}, {"optimizer": decayed(0.8)}, "rate=0.9"),
        (extended, {"dropout": 0.5}, {"dropout": 0.2}, "dropout=0.5, "),
        (custom, {}, {"rate": 0.2}, "rate: 0.1 in chief"),
        (custom, {}, {"start": 1.0}, "start: 0.0 in chief"),
        (custom, {}, {"params": {"weight": 2.0}}, "params['weight']: not there in ch"),
        (
            custom,
            {"scale": np.ones(4, np.float32)},
            {"scale": np.array([1, 1, 2, 1], np.float32)},
            "scale: float32[4]",
        ),
    ],
)
def test_a_difference_between_models_is_named(make, one, other, line):
    message = compare(make(**one), make(**other))
    assert line in message


def test_hooks_that_all_processes_need_are_compared(tmp_path):
    saver = ex.hooks.CheckpointSaverHook(tmp_path, save_steps=5)
    other = ex.hooks.CheckpointSaverHook(tmp_path / "b", save_steps=5)
    rare = ex.hooks.CheckpointSaverHook(tmp_path, save_steps=50)
    loss = ex.hooks.LoggingTensorHook(["loss"], every_n_iter=3)
    rate = ex.hooks.LoggingTensorHook(["learning_rate"], every_n_iter=3)
    model = custom()
    dense = dnn()
    assert compare(model, model, hooks=([saver, loss], [other])) is None
    assert "save_steps=50" in compare(model, model, hooks=([saver], [rare]))
    assert "learning_rate" in compare(dense, dense, hooks=([rate], []))


def test_a_hook_of_the_chief_may_not_request_what_all_compute():
    losses = ex.hooks.LoggingTensorHook(["loss"], every_n_iter=3)
    means = ex.hooks.LoggingTensorHook(["mean"], every_n_iter=3)
    model = custom(chief_hooks=[losses])
    assert compare(model, model) is None
    model = custom(chief_hooks=[means])
    assert "is among the training_chief_hooks" in compare(model, model)


def compare_calls(*configs, **arguments):
    def run(one):
        own = {name: values[one.index] for name, values in arguments.items()}
        try:
            agreement.compare_calls(one, configs[one.index], **own)
        except (ClusterError, ConfigError) as error:
            return str(error)

    return in_threads(processes_of(2), run)[0]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("tf_random_seed", 3),
        ("save_summary_steps", 7),
        ("save_checkpoints_steps", 7),
        ("shard_tables_above", 7),
        ("precision", "bfloat16"),
        ("debug", True),
    ],
)
def test_a_run_config_that_differs_is_refused(tmp_path, setting, value):
    config = ex.RunConfig(tmp_path)
    message = compare_calls(config, config.replace(**{setting: value}))
    assert f"\n  {setting}: " in message
    assert f"{value!r} in worker 0 (process 1 of 2)" in message


def test_what_concerns_one_process_only_may_differ(tmp_path):
    config = ex.RunConfig(tmp_path)
    own = config.replace(
        model_dir=str(tmp_path / "b"), log_step_count_steps=None, prefetch_batches=5
    )
    assert compare_calls(config, own, max_steps=(5, 5)) is None
    assert "max_steps: 5 in chief" in compare_calls(config, own, max_steps=(5, 6))


def test_a_model_that_is_not_compiled_is_refused(tmp_path):
    config = ex.RunConfig(tmp_path, debug=True)
    assert "this process is one of 2 that train together" in compare_calls(
        config, config
    )


def test_without_a_seed_the_processes_take_that_of_the_chief(tmp_path):
    given = ex.RunConfig(tmp_path, tf_random_seed=5)
    assert agreement.agree_on_seed(None, given) == 5
    assert agreement.agree_on_seed(None, ex.RunConfig(tmp_path)) is None
    one, other = in_threads(
        processes_of(2), lambda p: agreement.agree_on_seed(p, ex.RunConfig(tmp_path))
    )
    assert one == other


def test_values_read_for_a_warm_start_are_compared(tmp_path):
    models = [custom(start=0.0), custom(start=1.0)]

    def run(one):
        model = models[one.index]
        with model._open(ModeKeys.TRAIN, lambda: DATA) as session:
            program = model._program(session)
            state = session.start_state(program, None, model._warm_start)
        with pytest.raises(ClusterError, match="warm start of w: float32"):
            agreement.compare_warm_starts(one, state)

    in_threads(processes_of(2), run)


def observed(*steps_and_names):
    """Request values in two processes; return what each of them computes."""
    model = custom()
    with model._open(ModeKeys.TRAIN, lambda: DATA) as session:
        program = model._program(session)

    def run(one):
        step, names = steps_and_names[one.index]
        try:
            return loop._names_to_observe(
                program, set(names), RunContext(step, peers=one)
            )
        except ClusterError as error:
            return str(error)

    return in_threads(processes_of(2), run)


def test_processes_compute_all_values_that_one_of_them_requests():
    one, other = observed((3, ["mean", "loss"]), (3, ["weight_norm/w"]))
    assert one == other == {"mean", "weight_norm/w"}


def test_values_that_are_requested_at_different_steps_are_an_error():
    message, _ = observed((3, ["mean"]), (4, ["mean"]))
    assert "chief (process 0 of 2) at step 3, worker 0 (process 1 of 2) at" in message
