"""What the processes of a cluster compare before they train one model together.

    compare_calls(peers, config, max_steps=100)              # when `train` begins
    compare_models(peers, program, batch, hooks, explain)    # after recording
    comparing_steps(peers, program, context, stacks, explain)    # at the first batch

Each of them raises a ClusterError in all processes that names a difference; see
`parallel/agreement.py`. They come before the first computation of the devices that the
difference would let hang or go wrong. Without a cluster, `peers` is None and nothing is
done. `explain` returns what a model depends on (`hints_of`), for the message.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import jax
import numpy as np
from jax.interpreters import partial_eval

from estimax import hooks as stock
from estimax.core import display
from estimax.core.errors import ConfigError
from estimax.core.state import TrainState
from estimax.estimator.run_config import RunConfig
from estimax.feature_columns.transforms.words import WordList
from estimax.hooks import Hook, RunContext
from estimax.input.streams import columns
from estimax.native import loading
from estimax.optimizers import Group, Optimizer
from estimax.parallel.agreement import PROGRAM, Explain, Listed, require_equal
from estimax.parallel.processes import Processes
from estimax.staging import host_plan as plans
from estimax.staging.batches import BatchStack
from estimax.staging.host_plan import RawBatch
from estimax.staging.packing import Packed, pack
from estimax.training import Program, structure_of
from estimax.training.loop import explaining_arrays_of_model

_TOPIC = "settings"
# Settings of a RunConfig that a process may have for itself: where it finds folders,
# what it prints, how it waits, and what only the chief does.
_OWN = frozenset(
    {
        "cluster",
        "compilation_cache_dir",
        "iterations_per_loop",
        "keep_checkpoint_every_n_hours",
        "keep_checkpoint_max",
        "log_step_count_steps",
        "lost_after_secs",
        "model_dir",
        "prefetch_batches",
        "session_creation_timeout_secs",
        "use_averages",
    }
)
_JAX_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


def agree_on_seed(peers: Processes | None, config: RunConfig) -> int | None:
    """Return the seed of a `train` call; a cluster without one takes the chief's.

    Only for the part of training that all processes take part in: the chief evaluates
    alone, and must not ask the others.
    """
    if config.tf_random_seed is not None or peers is None:
        return config.tf_random_seed
    return int(peers.broadcast("seed", secrets.randbits(31)))


def compare_calls(peers: Processes | None, config: RunConfig, **arguments: Any) -> None:
    """Compare versions, devices, the RunConfig and the arguments of `train`.

    Raises:
      ClusterError: They differ.
      ConfigError: They cannot be used in a cluster.
    """
    if peers is None:
        return
    settings = {
        "version of estimax": _version("estimax"),
        "version of jax": f"{jax.__version__}, jaxlib {_version('jaxlib')}",
        "ESTIMAX_NATIVE": "on" if loading.is_on() else "off",
        "devices of a process": _devices(config),
        **{name: str(getattr(jax.config, name, None)) for name in _JAX_OPTIONS},
    }
    for field in dataclasses.fields(config):
        if field.name not in _OWN:
            settings[field.name] = describe(getattr(config, field.name))
    settings |= {name: describe(value) for name, value in arguments.items()}
    require_equal(peers, _TOPIC, settings)
    if config.debug is True:
        raise ConfigError(
            "train: RunConfig(debug=True) runs the model_fn without jit, on one device "
            f"of one process, but this process is one of {peers.count} that train "
            'together. Start one process without a cluster, or use debug="nan".'
        )


def compare_models(
    peers: Processes | None,
    program: Program,
    batch: RawBatch,
    hooks: Sequence[Hook],
    explain: Explain,
) -> None:
    """Compare what was recorded of a model: variables, optimizers, host transforms.

    Also the program that makes the initial values, and hooks whose values or saves all
    processes compute together.

    Raises:
      ClusterError: They differ.
      ConfigError: A hook of the chief requests what all processes compute.
    """
    if peers is None:
        return
    settings: dict[str, str | Listed] = {}
    read = {origin: batch[origin] for origin in program.plan.origins}
    for origin, kind in sorted(structure_of(read), key=lambda one: one[0].name):
        # What host transforms read may be padded, to another width in each share.
        tail = kind.tail if origin in program.plan.raw else ()
        shape = f"[{', '.join(map(str, tail))}]" if tail else ""
        settings[origin.name] = f"{kind.kind} {kind.dtype}{shape}".strip()
    for call in program.plan.calls:
        settings[f"transform of {call.name!r}"] = describe(call.transform)
        for place, words in enumerate(_word_lists(call.transform)):
            name = f"vocabulary{_number(place)} of {call.name!r}"
            settings[name] = Listed(words.words, words.digest.hex())
    for index, group in enumerate(program.optimizers):
        settings[f"optimizer{_number(index)}"] = _optimizer_text(group)
    init: Any = program.init  # of `jax.jit`, which has more than it is annotated with
    traced = init.trace(jax.random.key(0), _common_arrays(peers, program, batch))
    state = traced.out_info
    for name, form in {**state.params, **state.tables}.items():
        settings[f"variable {name}"] = f"{form.dtype}{list(form.shape)}"
    settings[f"{PROGRAM}the initial values"] = _list_lines(
        _without_unread(traced.jaxpr)
    )
    joint = _joint_hooks((*hooks, *program.spec.training_hooks), program.observed)
    settings["hooks"] = ", ".join(joint) or "none"
    require_equal(peers, _TOPIC, settings, explain)
    _check_chief_hooks(program)


def comparing_steps(
    peers: Processes | None,
    program: Program,
    context: RunContext,
    stacks: Iterator[BatchStack],
    explain: Explain,
) -> Iterator[BatchStack]:
    """Yield stacks; before the first, compare the program of a training step.

    The program is traced for the arrays of the first batch, so that the first step
    finds it in JAX's cache.

    Raises:
      ClusterError: The programs differ.
    """
    is_first = peers is not None
    for stack in stacks:
        if peers is not None and is_first:
            # The loop waits for this stack, but its input is there: another process
            # may have prepared fewer batches ahead, and wait for this one.
            with peers.awaiting_input(False):
                with explaining_arrays_of_model():
                    traced = program.trace_step(context.state, stack.arrays)
                listed = {
                    f"{PROGRAM}a step": _list_lines(_without_unused(traced.jaxpr))
                }
                require_equal(peers, _TOPIC, listed, explain)
            is_first = False
        yield stack


def compare_warm_starts(peers: Processes | None, state: TrainState) -> None:
    """Compare the variables that each process has read for a warm start.

    Raises:
      ClusterError: They differ.
    """
    if peers is None:
        return
    named = {**state.params, **state.tables}
    texts = {f"warm start of {name}": _array_text(a) for name, a in named.items()}
    require_equal(peers, _TOPIC, texts)


def hints_of(
    model_fn: Callable[..., Any], params: Any, program: Program
) -> dict[str, str]:
    """Return the values that a model depends on, by name, as far as they show.

    These are the params, the variables that the `model_fn` encloses, such as the
    arguments of a canned model, and the optimizers with their schedules.
    """
    hints: dict[str, Any] = {"params": params}
    if isinstance(params, Mapping):
        hints = {f"params[{name!r}]": value for name, value in params.items()}
    hints |= _used_by(model_fn)
    for index, group in enumerate(program.optimizers):
        optimizer = group.optimizer
        # The repr of an optimizer shows numbers, but of functions only their names.
        for part in ("learning_rate", "clip", "transformation"):
            hints[f"{part} of optimizer{_number(index)}"] = getattr(optimizer, part)
    return {name: describe(value) for name, value in hints.items()}


def describe(value: Any) -> str:
    """Return a text that is equal in all processes if the value is.

    >>> describe({"b": 1, "a": np.zeros(3, np.float32)})
    "{'a': float32[3] 15ec7bf0, 'b': 1}"
    """
    try:
        return display.without_addresses(_describe(value, depth=8))
    except Exception:  # of a `__repr__` that is not ours; a message must not fail by it
        return f"a {type(value).__name__}"


def _describe(value: Any, depth: int) -> str:
    if depth == 0:
        return f"a {type(value).__name__}"
    inner = functools.partial(_describe, depth=depth - 1)
    if isinstance(value, WordList):
        return f"{len(value)} words"  # compared by themselves
    if isinstance(value, Optimizer) and isinstance(value.learning_rate, float | int):
        return repr(value)
    if isinstance(value, np.ndarray | jax.Array):
        return _array_text(value)
    if hasattr(value, "_model_fn"):  # an Estimator that another one extends
        return inner(value._model_fn)
    if isinstance(value, Mapping):
        pairs = sorted((str(key), key, item) for key, item in value.items())
        return "{" + ", ".join(f"{k!r}: {inner(v)}" for _, k, v in pairs) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(inner, value))) + "}"
    if hasattr(value, "_asdict"):  # a named tuple
        return f"{type(value).__name__}({inner(value._asdict())})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inner, value))}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)
        }
        given = ", ".join(f"{n}={inner(v)}" for n, v in fields.items() if n != "loss")
        return f"{type(value).__name__}({given})"
    if callable(value) and not isinstance(value, type):
        return _function_text(value, inner)
    return repr(value)


def _array_text(value: Any) -> str:
    value = value if isinstance(value, jax.Array) else np.asarray(value)
    kind = f"{value.dtype}{list(value.shape)}"
    if isinstance(value, jax.Array):
        if not (value.is_fully_addressable or value.is_fully_replicated):
            return kind  # no process has all rows
        if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
    flat = np.ascontiguousarray(value).reshape(-1)
    return f"{kind} {hashlib.sha256(flat.view(np.uint8).data).hexdigest()[:8]}"


def _function_text(function: Any, inner: Callable[[Any], str]) -> str:
    """Return the name of a function, with the values that it encloses."""
    name = getattr(function, "__qualname__", None) or repr(function)
    given = ", ".join(f"{n}={inner(v)}" for n, v in _closure_values(function).items())
    return f"{name}({given})" if given else str(name)


def _closure_values(function: Any) -> dict[str, Any]:
    """Return the variables that a function encloses, and the arguments of a partial."""
    if isinstance(function, functools.partial):
        given = {f"argument {i}": value for i, value in enumerate(function.args)}
        return given | function.keywords | _closure_values(function.func)
    plain = getattr(function, "__func__", function)  # of a method
    code, cells = getattr(plain, "__code__", None), getattr(plain, "__closure__", None)
    if code is None or not cells:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return {n: v for n, v in found.items() if n not in ("self", "__class__")}


def _used_by(function: Any) -> dict[str, Any]:
    """Return what a function encloses, and plain values of its object and module."""
    found = _closure_values(function)
    owner = getattr(function, "__self__", None)
    held = getattr(owner, "__dict__", {})
    code = getattr(function, "__code__", None)
    names = code.co_names if code is not None else ()
    around = getattr(function, "__globals__", {})
    for name, value in [*held.items(), *((n, around.get(n)) for n in names)]:
        if isinstance(value, bool | int | float | str | tuple) and name not in found:
            found[name] = value
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _devices(config: RunConfig) -> str:
    platform = jax.default_backend()
    if isinstance(config.devices, int) or config.mesh is not None:
        return platform
    return f"{jax.local_device_count()} of {platform}"


def _word_lists(transform: Any) -> Iterator[WordList]:
    """Yield the vocabularies of a transform and of those that it contains."""
    if isinstance(transform, WordList):
        yield transform
    elif isinstance(transform, list | tuple):
        for item in transform:
            yield from _word_lists(item)
    elif dataclasses.is_dataclass(transform) and not isinstance(transform, type):
        for field in dataclasses.fields(transform):
            yield from _word_lists(getattr(transform, field.name))


def _check_chief_hooks(program: Program) -> None:
    """Raise if a hook of the chief alone requests what all processes compute."""
    saves = stock.CheckpointSaverHook  # which all processes use
    alone = [h for h in program.spec.training_chief_hooks if not isinstance(h, saves)]
    for text in _joint_hooks(alone, program.observed):
        raise ConfigError(
            f"train: {text} is among the training_chief_hooks, which run in the chief "
            "only, but all processes of a cluster compute summaries together. Move it "
            "to training_hooks, or request values of ex.log_value."
        )


def _joint_hooks(hooks: Sequence[Hook], observed: frozenset[str]) -> Iterator[str]:
    """Yield the hooks whose values or saves all processes compute together."""
    for hook in hooks:
        if isinstance(hook, stock.CheckpointSaverHook):
            yield hook.schedule
        elif isinstance(hook, stock.SummarySaverHook) or (
            isinstance(hook, stock.LoggingTensorHook | stock.FinalOpsHook)
            and not observed.isdisjoint(hook.requested)
        ):
            yield repr(hook)


def _common_arrays(peers: Processes, program: Program, batch: RawBatch) -> Packed:
    """Return the first batch in a shape that all processes have in common.

    Shares of the data may begin with batches of other sizes and widths of padded ids.
    """
    rows = min(peers.gather(_TOPIC, plans.batch_size(batch)))
    cut = {origin: columns.slice_rows(v, 0, rows) for origin, v in batch.items()}

    def agree(parts: Sequence[plans.PreparedBatch]) -> dict[str, int]:
        mine = plans.widths_of(parts)
        found = peers.gather(_TOPIC, mine)
        return {name: max(one.get(name, 0) for one in found) for name in mine}

    return pack(program.plan.prepare(cut, agree=agree))


def _optimizer_text(group: Group) -> str:
    parts = [repr(group.optimizer)]
    parts += [f"for {group.pattern}"] if group.pattern is not None else []
    parts += [f"with {group.clip}"] if group.clip is not None else []
    return display.without_addresses(", ".join(parts))


def _number(index: int) -> str:
    """Return the number of the second and further ones of a kind, as a suffix."""
    return f" {index + 1}" if index else ""


def _list_lines(jaxpr: Any) -> Listed:
    """Return a program as its lines, and the digest of each of its constants."""
    lines = display.without_addresses(str(jaxpr)).splitlines()
    return Listed.of([*lines, *(f"constant {text}" for text in _constants(jaxpr))])


def _without_unused(jaxpr: Any) -> Any:
    """Return a program without what its results do not depend on.

    Such as the array in place of a feature that the model does not read: its width may
    differ between shares of the data.
    """
    is_used = [True] * len(jaxpr.jaxpr.outvars)
    used, _ = partial_eval.dce_jaxpr(jaxpr.jaxpr, is_used, instantiate=True)
    return jaxpr.replace(jaxpr=used)


def _without_unread(jaxpr: Any) -> Any:
    """Return the program of the initial values without features that are not read.

    It also computes the loss, which it does not use. That part stays as far as it
    depends on other inputs: a difference in it is told before anything is saved.
    """
    inner = jaxpr.jaxpr
    used = _variables(inner.outvars)
    fixed: set[Any] = set()  # what depends on arrays that are made of no input
    for equation in inner.eqns:
        given = _variables(equation.invars)
        if not given or given & fixed:
            fixed.update(equation.outvars)
    kept = []
    for equation in reversed(inner.eqns):
        is_used = equation.effects or not used.isdisjoint(equation.outvars)
        if is_used:
            used |= _variables(equation.invars)
        if is_used or fixed.isdisjoint(equation.outvars):
            kept.append(equation)
    return jaxpr.replace(jaxpr=inner.replace(eqns=kept[::-1]))


def _variables(atoms: Sequence[Any]) -> set[Any]:
    return {atom for atom in atoms if not hasattr(atom, "val")}  # no literals


def _constants(jaxpr: Any) -> Iterator[str]:
    """Yield a text for each array in a program and in those that it calls."""
    for value in getattr(jaxpr, "consts", ()):
        yield _array_text(value)
    open_jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in open_jaxpr.eqns:
        for variable in equation.invars:
            value = getattr(variable, "val", None)  # of a literal
            if value is not None and np.ndim(value):
                yield _array_text(value)
        for value in jax.tree.leaves(list(equation.params.values())):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield from _constants(value)
