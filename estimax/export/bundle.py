"""A loaded bundle: predictions without the model's code, or any that trains.

    bundle = load("export/final")            # newest version, checked against damage
    bundle.predict({"age": [31, 46], "city": ["Oslo", "Rome"]})["probabilities"]

    bundle.check(features)      the same in three steps, for a server that batches:
    bundle.transform(batch)     request → raw batch → arrays → answers
    bundle.run(name, arrays)

A program is compiled per batch size, so batches are padded to a power of two (with a
repeated row: zeros may be no valid input) and answers cut back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from estimax.core.errors import BundleError, MissingFileError, did_you_mean
from estimax.core.sparse import padded_length
from estimax.export import functions, host_plan, manifest, selftest
from estimax.export.functions import ArgumentSpec
from estimax.export.manifest import BundleFiles
from estimax.export.requests import read_request
from estimax.export.signature import (
    DEFAULT_SIGNATURE,
    Signature,
    input_name,
    origins_of,
    signature_from_json,
)
from estimax.staging import plan as plans
from estimax.staging.recording import Origin
from estimax.wire import json_text

# Larger batches run in pieces: bounded memory, and few sizes to compile.
MOST_ROWS = 4096

Arrays = dict[str, NDArray[Any]]
WEIGHTS = "weights.safetensors"


def load(
    path: str | os.PathLike[str], *, verify: bool = True, self_test: bool = False
) -> Bundle:
    """Load a bundle from its version folder, or the newest one under a base folder.

    Sizes are always checked and every file that is parsed is checked by hash; `verify`
    also hashes the weights and assets. `self_test` runs the example of the export.

    >>> load("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    MissingFileError: no/such/folder: expected a bundle's folder, found none.
    """
    folder = manifest.resolve(Path(path))
    files = BundleFiles.open(folder)
    files.check_all(content=verify)
    _check_platform(files)
    try:
        bundle = _read(files)
    except (BundleError, MissingFileError):
        raise
    except _OTHER_CONTENT as error:
        raise BundleError(
            f"{folder}: expected the files of an estimax bundle, found other content "
            f"({type(error).__name__}: {error})."
        ) from error
    if self_test:
        bundle.self_test()
    return bundle


# What reading raises when a file parses but says something else than we wrote.
_OTHER_CONTENT = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, eq=False)
class Bundle:
    """An exported model, loaded. Safe to use from several threads."""

    path: Path
    signatures: Mapping[str, Signature]
    manifest: Mapping[str, Any]
    plan: plans.Plan
    # Flat name -> dtype and shape of every array that `run` takes; named are free.
    arguments: Mapping[str, ArgumentSpec]
    weights: Mapping[str, jax.Array]
    _programs: Mapping[str, Callable[..., dict[str, jax.Array]]]
    _files: BundleFiles

    def predict(self, features: Any, signature: str = DEFAULT_SIGNATURE) -> Arrays:
        """Answer a request: a dict of arrays, lists, `Strings` or `Sparse`.

        Numbers come back as NumPy arrays, text as object arrays of bytes.
        """
        self.signature(signature)
        batch = self.check(features)
        if not plans.batch_size(batch):
            return self._empty(signature)
        return self.run(signature, self.transform(batch))

    def signature(self, name: str) -> Signature:
        """A signature by name."""
        if name not in self.signatures:
            raise BundleError(
                f"unknown signature {name!r}{did_you_mean(name, self.signatures)}"
            )
        return self.signatures[name]

    def check(self, features: Any) -> dict[Origin, Any]:
        """Check a request against the signatures' inputs; returns the raw batch.

        Every signature of a bundle takes the same features.
        """
        specs = next(iter(self.signatures.values())).inputs
        return read_request(specs, features, origins_of(self.plan))

    def transform(self, batch: plans.RawBatch) -> Arrays:
        """Do the host's part: the arrays that `run` takes, by flat name."""
        arrays = host_plan.flat_inputs(self.plan.prepare(batch))
        for name, spec in self.arguments.items():
            arrays[name] = _fitted(name, spec, arrays.get(name))
        return {name: arrays[name] for name in self.arguments}

    def run(self, signature: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Compute the answers of one signature for prepared arrays."""
        rows = len(next(iter(arrays.values())))
        pieces = [
            self._compute(
                signature, {n: a[i : i + MOST_ROWS] for n, a in arrays.items()}
            )
            for i in range(0, rows, MOST_ROWS)
        ]
        answers: Arrays = {}
        for spec in self.signature(signature).outputs:
            parts = [np.asarray(piece[spec.name])[:n] for piece, n in pieces]
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
            answers[spec.name] = spec.to_wire(whole)
        return answers

    def warm_up(
        self, batch_sizes: Sequence[int], signatures: Sequence[str] | None = None
    ) -> None:
        """Compile for batch sizes ahead of requests, with rows of the self-test."""
        example, _ = self._test()
        arrays = self.transform(example)
        for name in signatures or self.signatures:
            for size in batch_sizes:
                self.run(name, {n: _repeated(a[:1], size) for n, a in arrays.items()})

    def self_test(self) -> None:
        """Run the exporter's example; an error when the answers are not the same."""
        example, expected = self._test()
        rows = plans.batch_size(example)
        # Twice as many rows: answers must not hang on the size of the batch.
        transformed = self.transform(example).items()
        arrays = {name: _repeated(array, 2 * rows) for name, array in transformed}
        for name, answers in expected.items():
            found = {n: a[:rows] for n, a in self.run(name, arrays).items()}
            platform = jax.default_backend()
            selftest.check_answers(name, answers, found, platform=platform)

    def describe(self) -> dict[str, Any]:
        """What the bundle is, as plain values: for a command line, or a page."""
        sizes = host_plan.vocabulary_sizes(self.plan)
        about = {k: v for k, v in self.manifest.items() if k not in _INTERNAL}
        first = next(iter(self.signatures.values()))
        return {
            "path": str(self.path),
            **about,
            "size": sum(f["size"] for f in self.manifest["files"].values()),
            "signatures": {n: _described(s) for n, s in self.signatures.items()},
            "features": {
                spec.name: {
                    "kind": spec.kind,
                    "dtype": spec.dtype,
                    "shape": list(spec.shape),
                    "vocabulary_size": sizes.get(spec.name),
                }
                for spec in first.inputs
            },
            "transforms": [
                {"name": call.name, "reads": [o.name for o in call.inputs]}
                for call in self.plan.calls
            ],
            "weights": {
                name: {
                    "shape": list(array.shape),
                    "dtype": array.dtype.name,
                    "bytes": array.nbytes,
                }
                for name, array in self.weights.items()
            },
        }

    def _compute(
        self, signature: str, arrays: Arrays
    ) -> tuple[dict[str, jax.Array], int]:
        rows = len(next(iter(arrays.values())))
        bucket = padded_length(rows)
        padded = {name: _repeated(array, bucket) for name, array in arrays.items()}
        return self._programs[signature](self.weights, padded), rows

    def _empty(self, signature: str) -> Arrays:
        return {
            spec.name: np.empty(
                (0, *(n or 0 for n in spec.tail)),
                object if spec.vocabulary is not None else spec.dtype,
            )
            for spec in self.signatures[signature].outputs
        }

    def _test(self) -> tuple[dict[Origin, Any], selftest.Answers]:
        record = self._files.read_json("selftest.json")
        example, answers = selftest.selftest_from_json(record)
        outputs = {
            name: {spec.name for spec in signature.outputs}
            for name, signature in self.signatures.items()
        }
        if example.keys() != set(origins_of(self.plan)) or any(
            name not in outputs or not found.keys() <= outputs[name]
            for name, found in answers.items()
        ):
            raise BundleError(
                f"{self.path / 'selftest.json'}: expected rows of the features and "
                "answers of the signatures, found others."
            )
        return example, answers


_INTERNAL = ("files", "checksum")


def _read(files: BundleFiles) -> Bundle:
    records = json_text.mapping(files.read_json("signatures.json"), "signatures.json")
    signatures = {name: signature_from_json(name, r) for name, r in records.items()}
    if not signatures:
        raise ValueError("signatures.json: expected at least one signature")
    stems = {
        name: json_text.text(record, "function") for name, record in records.items()
    }
    exported = {
        stem: functions.read_function(files.read, stem)
        for stem in dict.fromkeys(stems.values())
    }
    first = next(iter(exported.values()))
    for stem, function in exported.items():
        if functions.arguments_of(function) != functions.arguments_of(first):
            raise ValueError(f"functions/{stem} takes other arguments than the others")
    weights = _read_weights(files, functions.weights_of(first))
    jitted = {stem: jax.jit(function.call) for stem, function in exported.items()}
    for name in files.manifest["files"]:
        if name.startswith("assets/"):
            files.check(name, content=True)
    plan = host_plan.plan_from_json(
        files.read_json("transforms.json"), files.folder / "assets"
    )
    for name, signature in signatures.items():
        _check_signature(signature, exported[stems[name]], plan)
    return Bundle(
        path=files.folder,
        signatures=signatures,
        manifest=files.manifest,
        plan=plan,
        arguments=functions.inputs_of(first),
        weights=jax.device_put(weights),
        _programs={name: jitted[stem] for name, stem in stems.items()},
        _files=files,
    )


def _check_signature(
    signature: Signature, function: functions.Exported, plan: plans.Plan
) -> None:
    """Raise unless a signature describes the features and results that there are."""
    features = {input_name(origin) for origin in origins_of(plan)}
    if {spec.name for spec in signature.inputs} != features:
        raise ValueError(
            f"signature {signature.name!r}: expected the inputs {sorted(features)}"
        )
    results = functions.results_of(function)
    for spec in signature.outputs:
        result = results[spec.name]
        sizes = tuple(dim if isinstance(dim, int) else None for dim in result.shape)
        if (spec.compute_dtype, spec.shape) != (result.dtype, sizes):
            raise ValueError(
                f"signature {signature.name!r}, output {spec.name!r}: expected "
                f"{result}, found {spec.compute_dtype} of {list(spec.shape)}"
            )


def _read_weights(files: BundleFiles, specs: Mapping[str, ArgumentSpec]) -> Arrays:
    path = files.path(WEIGHTS)
    try:
        weights = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise BundleError(f"{path}: expected weights, found {error}.") from error
    found = {n: ArgumentSpec(a.dtype.name, a.shape) for n, a in weights.items()}
    for name, spec in specs.items():
        if found.get(name) != spec:
            raise BundleError(
                f"{path}: expected weight {name!r} of {spec}, found {found.get(name)}."
            )
    return {name: weights[name] for name in specs}


def _fitted(name: str, spec: ArgumentSpec, array: Any) -> NDArray[Any]:
    """An array as the program takes it, or an error that says which is not."""
    if array is None:
        raise BundleError(f"{name}: expected an array, found none.")
    fits = len(array.shape) == len(spec.shape) and all(
        isinstance(dim, str) or dim == n
        for dim, n in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise BundleError(
            f"{name}: expected shape {list(spec.shape)}, found {list(array.shape)}; "
            "the example given to the export had no such rows."
        )
    return np.asarray(array, spec.dtype)


def _repeated(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The array with its last row repeated until it has so many."""
    missing = rows - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])


def _check_platform(files: BundleFiles) -> None:
    platforms = files.manifest.get("platforms", [])
    if not functions.runs_here(platforms):
        raise BundleError(
            f"{files.folder}: exported for {', '.join(platforms)}, but jax runs on "
            f"{jax.default_backend()} here. Export with that among its platforms, or "
            "set JAX_PLATFORMS to one of them."
        )


def _described(signature: Signature) -> dict[str, Any]:
    return {
        "method_name": signature.method_name,
        "inputs": {
            s.name: {"dtype": s.dtype, "shape": list(s.shape)} for s in signature.inputs
        },
        "outputs": {
            s.name: {
                "dtype": s.dtype,
                "shape": list(s.shape),
                "vocabulary_size": None if s.vocabulary is None else len(s.vocabulary),
            }
            for s in signature.outputs
        },
    }
