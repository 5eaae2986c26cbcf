"""Train a tiny model in a cluster in which something goes wrong; `test_watching.py`.

    python go_wrong.py MODEL_DIR SCENARIO [--start-secs 60] [--cluster slurm]

A line "at: <place>" tells the test where this process is.
"""

import argparse
import ctypes
import time

import numpy as np

import estimax as ex


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir")
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--start-secs", type=float, default=300)
    parser.add_argument("--cluster", help="a system that JAX detects")
    args = parser.parse_args()
    config = ex.RunConfig(
        args.model_dir,
        save_summary_steps=None,
        lost_after_secs=5,
        session_creation_timeout_secs=args.start_secs,
        cluster=args.cluster,
    )
    SCENARIOS[args.scenario](config)


def tell(place):
    print("at:", place, flush=True)


def train(config, *hooks, input_fn=None, steps=10_000):
    model = model_of(config)
    model.train(input_fn or batches, hooks=[Tell(), *hooks], max_steps=steps)


def model_of(config):
    columns = [ex.feature_columns.numeric_column("x")]
    return ex.LinearRegressor(columns, optimizer="SGD", config=config)


def batches():
    x = np.arange(64, dtype=np.float32).reshape(-1, 1) / 64
    data = ex.input.Dataset.from_tensor_slices(({"x": x}, 3 * x[:, 0] + 1))
    return data.repeat().batch(16)


class Tell(ex.hooks.Hook):
    def after_run(self, context, values):
        if context.step in (1, 3):
            tell(f"step {context.step}")
        time.sleep(0.02)  # a test that waits for a step finds the run still going


class AtStep(ex.hooks.Hook):
    """Call a function after step 3 of the worker."""

    def __init__(self, config, function):
        self._is_worker = not config.is_chief
        self._function = function

    def after_run(self, context, values):
        if context.step == 3 and self._is_worker:
            self._function(context)


def just_train(config):
    train(config)


def raise_in_worker(config):
    def fail(context):
        raise ValueError("the hook of the worker is wrong")

    train(config, AtStep(config, fail))


def end_after_five_steps(config):
    train(config, steps=5)


def two_places(config):
    peers = config.connect()
    with peers.together():
        peers.wait("here" if peers.is_chief else "there")


def wait_at_step_3(config):
    train(config, AtStep(config, lambda context: context.peers.wait("alone")))


class Observe(ex.hooks.Hook):
    """Request the summaries of step 4 in the worker, which all compute together."""

    def __init__(self, config):
        self._is_worker = not config.is_chief

    def before_run(self, context):
        is_due = context.step == 3 and self._is_worker
        return sorted(context.logged) if is_due else None


def observe_alone(config):
    train(config, Observe(config))


def other_collective(config):
    """The worker takes part in a collective of another size than the chief."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    def take_part(context):
        mesh = jax.make_mesh((jax.device_count(),), ("all",))
        split = NamedSharding(mesh, PartitionSpec("all"))
        mine = np.ones((1, 1000), np.float32)
        rows = jax.make_array_from_process_local_data(split, mine)
        whole = NamedSharding(mesh, PartitionSpec())
        jax.jit(lambda x: x.sum(0), out_shardings=whole)(rows).block_until_ready()

    train(config, AtStep(config, take_part))


def hold_the_gil(config):
    """A call in the worker keeps Python's lock for longer than lost_after_secs."""
    library = ctypes.PyDLL(None)  # its functions do not release the lock
    train(config, AtStep(config, lambda context: library.sleep(15)))


def no_data_in_worker(config):
    def input_fn(input_context):
        rows = 64 if input_context.input_pipeline_id == 0 else 0
        x = np.ones((rows, 1), np.float32)
        return ex.input.Dataset.from_tensor_slices(({"x": x}, x[:, 0])).batch(16)

    train(config, input_fn=input_fn)


def directory_in_use(config):
    """The chief finds that its directory is in use."""
    from estimax.storage import locks

    def run():
        ex.train_and_evaluate(
            model_of(config),
            ex.TrainSpec(batches, max_steps=20),
            ex.EvalSpec(batches, steps=1),
        )

    if not config.is_chief:
        return run()
    import subprocess
    import sys

    code = "import sys; from estimax.storage import locks\n"
    code += "with locks.hold(sys.argv[1], 'train'): print('held', flush=True); input()"
    held = subprocess.Popen(
        [sys.executable, "-c", code, config.model_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdout.readline() == b"held\n", locks
    try:
        run()
    finally:
        held.stdin.close()
        held.wait()


def slow_start(config):
    """The input takes long to open, after the processes are connected."""

    def input_fn():
        tell("input")
        for _ in range(600):
            time.sleep(0.1)
        return batches()

    train(config, input_fn=input_fn, steps=5)


SCENARIOS = {
    function.__name__: function
    for function in (
        just_train,
        raise_in_worker,
        end_after_five_steps,
        two_places,
        wait_at_step_3,
        observe_alone,
        other_collective,
        hold_the_gil,
        no_data_in_worker,
        directory_in_use,
        slow_start,
    )
}

if __name__ == "__main__":
    main()
