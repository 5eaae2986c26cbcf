"""`estimax show`: print the contents of a run file, a bundle or a model directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from estimax import config
from estimax.cli.screen import results, say, size
from estimax.core.errors import MissingFileError


def show(path: Path, overrides: Sequence[str], *, as_yaml: bool) -> None:
    """Show a run file, a bundle or a model directory, whichever the path is."""
    if path.is_file():
        _show_run(path, overrides, as_yaml=as_yaml)
    elif _is_bundle(path):
        _show_bundle(path)
    elif path.is_dir():
        _show_model_dir(path)
    else:
        raise MissingFileError(
            f"{path}: expected a run file, an exported bundle or a model directory, "
            "found nothing."
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
        origin = _origin(loaded, address)
        lines.append((f"{address}: {text}", origin))
    width = min(max(len(text) for text, _ in lines), 60)
    for text, origin in lines:
        line = Text(text.ljust(width))
        line.append(f"  # {origin}", style="dim" if origin == "default" else "cyan")
        results.print(line, soft_wrap=True)


def _origin(loaded: config.LoadedRun, address: str) -> str:
    # A single item written instead of a list has an address without an index.
    for path in (address, address.replace(".0.", ".", 1)):
        if path in loaded.origins:
            return str(loaded.origins[path])
    return str(loaded.origin(address))


def _is_bundle(path: Path) -> bool:
    if (path / "manifest.json").is_file() and (path / "signatures.json").is_file():
        return True
    versions = path.glob("[0-9]*/signatures.json")
    return any(versions)


def _show_bundle(path: Path) -> None:
    from estimax import export

    about = export.load(path).describe()
    say(f"bundle {about['path']}, {size(about['size'])}")
    plain = {k: v for k, v in about.items() if isinstance(v, str | int | float)}
    for key in sorted(plain.keys() - {"path", "size"}):
        say(f"  {key}: {plain[key]}")
    _print_features(about["features"])
    _print_signatures(about["signatures"])
    weights = {
        n: (w["shape"], w["dtype"], w["bytes"]) for n, w in about["weights"].items()
    }
    results.print(_arrays_table(weights, "weights"))


def _print_features(features: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title="features of a request", title_justify="left")
    for heading in ("feature", "dtype", "shape", "vocabulary"):
        table.add_column(heading)
    for name, spec in features.items():
        words = spec["vocabulary_size"]
        table.add_row(
            name,
            spec["dtype"],
            _shape(spec["shape"]),
            "" if words is None else f"{words:,}",
        )
    results.print(table)


def _print_signatures(signatures: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title="signatures", title_justify="left")
    for heading in ("signature", "method", "output", "dtype", "shape"):
        table.add_column(heading)
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


def _show_model_dir(path: Path) -> None:
    from estimax import checkpoints

    latest = checkpoints.latest(path)
    if latest is None:
        raise MissingFileError(f"{path}: found no checkpoint, bundle or run in it.")
    manifest = checkpoints.read_manifest(latest)
    say(f"model directory {path}, latest checkpoint {latest.name}")
    kept = ", ".join(
        str(checkpoints.step_of(p)) for p in checkpoints.all_checkpoints(path)
    )
    say(f"  checkpoints at steps {kept}")
    for export in sorted((path / "export").glob("*/")):
        say(f"  bundle {export}")
    if (path / "config" / "resolved.yaml").is_file():
        say(f"  run {path / 'config' / 'resolved.yaml'}")
    arrays = {
        name: (entry.shape, entry.dtype, entry.place.size)
        for name, entry in manifest.arrays.items()
    }
    results.print(_arrays_table(arrays, "variables"))


def _arrays_table(arrays: Mapping[str, tuple[Any, Any, int]], title: str) -> Table:
    total = sum(nbytes for _, _, nbytes in arrays.values())
    heading = f"{title}: {len(arrays)}, {size(total)}"
    table = Table(title=heading, title_justify="left")
    table.add_column("name", overflow="fold")
    table.add_column("shape")
    table.add_column("dtype")
    for name, (shape, dtype, _) in sorted(arrays.items()):
        table.add_row(name, _shape(shape), str(dtype))
    return table


def _shape(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("B" if n is None else str(n) for n in shape) + "]"
