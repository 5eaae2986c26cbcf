"""`estimax show`: print the contents of a run file, bundle, model or checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from estimax import config
from estimax.cli.console import metrics_table, results, say, size
from estimax.core.errors import MissingFileError


def show(
    path: Path, overrides: Sequence[str], *, as_yaml: bool, with_slots: bool = False
) -> None:
    """Show a run file, a bundle, a model directory or a checkpoint.

    `with_slots` shows all arrays of a checkpoint, such as the state of optimizers.
    """
    if path.is_file():
        _show_run(path, overrides, as_yaml=as_yaml)
    elif _is_bundle(path):
        _show_bundle(path)
    elif (path / "manifest.json").is_file():
        _show_checkpoint(path, with_slots=with_slots)
    elif path.is_dir():
        _show_model_dir(path, with_slots=with_slots)
    else:
        raise MissingFileError(
            f"{path}: expected a run file, an exported bundle, a model directory or a "
            "checkpoint, found nothing."
        )


def _show_run(path: Path, overrides: Sequence[str], *, as_yaml: bool) -> None:
    from estimax.config.dump import dump, dump_plain, leaves, to_plain

    loaded = config.load(path, overrides)
    if as_yaml:
        print(dump(loaded.run), end="")
        return
    lines = []
    for address, value in leaves(to_plain(loaded.run)):
        text = " ".join(dump_plain(value).removesuffix("...\n").split())
        origin = loaded.origin_of(address)
        lines.append((f"{address}: {text}", origin))
    width = min(max(len(text) for text, _ in lines), 60)
    for text, origin in lines:
        line = Text(text.ljust(width))
        line.append(f"  # {origin}", style="dim" if origin == "default" else "cyan")
        results.print(line, soft_wrap=True)


def _is_bundle(path: Path) -> bool:
    if (path / "manifest.json").is_file() and (path / "signatures.json").is_file():
        return True
    versions = path.glob("[0-9]*/signatures.json")
    return any(versions)


# Said beside the date, since the name alone sounds as if the model stopped working.
_EXPIRES = (
    "Until then, every newer jax can read the program in jax's own format. Afterwards "
    "the StableHLO in the bundle is used, which stays readable for five years from the "
    "export. Nothing has to be done; to renew both, export the model again."
)


def _show_bundle(path: Path) -> None:
    from estimax import export

    about = export.load(path).describe()
    say(f"bundle {about['path']}, {size(about['size'])}")
    plain = {k: v for k, v in about.items() if isinstance(v, str | int | float)}
    for key in sorted(plain.keys() - {"path", "size"}):
        say(f"  {key}: {plain[key]}")
        if key == "jaxexport_expires":
            results.print(Padding(Text(_EXPIRES), (0, 0, 0, 4)))
    if about["assets_extra"]:
        say(f"  assets.extra: {', '.join(about['assets_extra'])}")
    if about["metrics"]:
        results.print(metrics_table(about["metrics"], "metrics at the export"))
    if found := about.get("tables"):
        sizes = found["bytes"]
        worst = max(found["errors"].values(), default=0.0)
        say(
            f"  {found['tables']} tables in {found['dtype']}: {size(sizes['after'])} "
            f"instead of {size(sizes['before'])}; outputs change by at most "
            f"{worst:.2%} of their largest value"
        )
    if found := about.get("calibration"):
        error = found["expected_calibration_error"]
        say(
            f"  calibrated by {found['method']} on {found['rows']:,} rows: expected "
            f"calibration error {error['before']:.4f} before, {error['after']:.4f} "
            "after"
        )
    _print_features(about["features"])
    _print_signatures(about["signatures"])
    weights = {
        n: (w["shape"], w["dtype"], w["bytes"])
        for n, w in sorted(about["weights"].items())
    }
    results.print(_arrays_table(weights, "weights"))


def _print_features(features: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title="features of a request", title_justify="left")
    for heading in ("feature", "dtype", "shape", "vocabulary", "if missing"):
        table.add_column(heading, overflow="fold")
    for name, spec in features.items():
        words = spec["vocabulary_size"]
        table.add_row(
            name,
            spec["dtype"],
            _shape(spec["shape"]),
            "" if words is None else f"{words:,}",
            _if_missing(spec),
        )
    results.print(table)


def _if_missing(spec: Mapping[str, Any]) -> str:
    default = spec["default"]
    if default is None:
        is_optional = spec["dtype"] == "string" or spec["kind"] == "sparse"
        return "empty" if is_optional else "an error"
    return "filled by the model" if default != default else str(default)


def _print_signatures(signatures: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title="signatures", title_justify="left")
    for heading in ("signature", "method", "output", "dtype", "shape"):
        table.add_column(heading, overflow="fold")
    for name, signature in signatures.items():
        method = str(signature.get("method_name", ""))
        for output, spec in _outputs(signature):
            table.add_row(name, method, output, spec["dtype"], _shape(spec["shape"]))
            name = method = ""
    results.print(table)


def _outputs(signature: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    outputs = signature["outputs"]
    if isinstance(outputs, Mapping):
        return list(outputs.items())
    return [(spec["name"], spec) for spec in outputs]


def _show_model_dir(path: Path, *, with_slots: bool) -> None:
    from estimax import checkpoints

    latest = checkpoints.latest(path)
    if latest is None:
        raise MissingFileError(f"{path}: found no checkpoint, bundle or run in it.")
    say(f"model directory {path}, latest checkpoint {latest.name}")
    kept = ", ".join(
        str(checkpoints.step_of(p)) for p in checkpoints.all_checkpoints(path)
    )
    say(f"  checkpoints at steps {kept}")
    for export in sorted((path / "export").glob("*/")):
        say(f"  bundle {export}")
    if (path / "config" / "resolved.yaml").is_file():
        say(f"  run {path / 'config' / 'resolved.yaml'}")
    _print_metrics(path)
    _print_variables(latest, with_slots=with_slots)


def _show_checkpoint(path: Path, *, with_slots: bool) -> None:
    from estimax import checkpoints

    step = checkpoints.read_manifest(path).step
    say(f"checkpoint {path} of step {step:,}")
    _print_metrics(path.parent, at_step=step)
    _print_variables(path, with_slots=with_slots)


def _print_metrics(model_dir: Path, at_step: int | None = None) -> None:
    """Print the metrics of the last evaluation of each name, or of one step."""
    from estimax.hooks.summary import read_scalars

    for folder in sorted(model_dir.glob("eval*/")):
        scalars = read_scalars(folder)
        steps = {step for pairs in scalars.values() for step, _ in pairs}
        step = max(steps, default=None) if at_step is None else at_step
        if step in steps:
            metrics = {
                tag: value
                for tag, pairs in scalars.items()
                for at, value in pairs
                if at == step
            }
            results.print(metrics_table(metrics, f"{folder.name}, step {step:,}"))


def _print_variables(checkpoint: Path, *, with_slots: bool) -> None:
    """Print the variables, trained ones first, and on request all other arrays."""
    from estimax import checkpoints
    from estimax.checkpoints.state_names import is_slot

    arrays = {
        name: (entry.shape, entry.dtype, entry.size)
        for name, entry in checkpoints.read_manifest(checkpoint).arrays.items()
    }
    others = {name: arrays[name] for name in arrays if is_slot(name)}
    variables = {name: arrays[name] for name in arrays if name not in others}
    # Which variables are trained is not in the checkpoint. Most optimizers keep state
    # for those and only those.
    trained = {v for v in variables if any(f"/{v}" in name for name in others)}
    ordered = sorted(variables, key=lambda name: (name not in trained, name))
    shown = {name: variables[name] for name in ordered}
    results.print(_arrays_table(shown, "variables"))
    if with_slots:
        rest = {name: others[name] for name in sorted(others)}
        results.print(_arrays_table(rest, "state of the training"))
    else:
        total = size(sum(nbytes for _, _, nbytes in others.values()))
        say(f"and {len(others)} arrays of the training, {total}; --all shows them")


def _arrays_table(arrays: Mapping[str, tuple[Any, Any, int]], title: str) -> Table:
    total = sum(nbytes for _, _, nbytes in arrays.values())
    heading = f"{title}: {len(arrays)}, {size(total)}"
    table = Table(title=heading, title_justify="left")
    table.add_column("name", overflow="fold")
    table.add_column("shape")
    table.add_column("dtype")
    for name, (shape, dtype, _) in arrays.items():
        table.add_row(name, _shape(shape), str(dtype))
    return table


def _shape(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("B" if n is None else str(n) for n in shape) + "]"
