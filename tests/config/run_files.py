"""A small correct run, to spoil in one place at a time."""

from pathlib import Path

from estimax.config import LoadedRun, RunFileError, load

GOOD = """\
schema: estimax/run/v1
name: small
run: {model_dir: runs/small}
data:
  label: late
  sources:
    train: {format: csv, files: train.csv, batch_size: 32}
features:
  age: {type: numeric, normalize: zscore}
  city: {type: hashed, buckets: 100}
model:
  type: dnn
  dnn:
    features: {numeric: [age], embedding: {dim: 4, of: [city]}}
    hidden_units: [8]
train: {max_steps: 10}
"""


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def load_text(folder: Path, text: str, *overrides: str, **options: object) -> LoadedRun:
    return load(write(folder, text), overrides, **options)


def problems(folder: Path, text: str, *overrides: str) -> list[str]:
    """What is wrong with a run, without the folder's name."""
    try:
        load_text(folder, text, *overrides, environment={"HOME": "/home/me"})
    except RunFileError as error:
        return [str(p).removeprefix(f"{folder}/") for p in error.problems]
    return []


def spoiled(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must stand in the good run once"
    return GOOD.replace(old, new)
