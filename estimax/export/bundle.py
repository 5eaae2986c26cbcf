"""Load a bundle and predict with it, without the model's code or any training code.

    bundle = load("export/final")            # the newest version, checked for damage
    bundle.predict({"age": [31, 46], "city": ["Oslo", "Rome"]})["probabilities"]

A server that batches requests calls the three steps of `predict` itself:

    batch = bundle.check(features)           # request -> raw batch
    arrays = bundle.transform(batch)         # raw batch -> arrays
    bundle.run("predict", arrays)            # arrays -> answers

A program is compiled per batch size. So batches are padded to a power of two, and the
answers are cut back. Padding repeats the last row, because zeros may be invalid input.
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
    first_few,
    input_name,
    origins_of,
    signature_from_json,
)
from estimax.staging import plan as plans
from estimax.staging.recording import Origin
from estimax.wire import json_text

# Larger batches run in pieces, which bounds memory and the sizes to compile.
MOST_ROWS = 4096

Arrays = dict[str, NDArray[Any]]
WEIGHTS = "weights.safetensors"
_INTERNAL = ("files", "checksum")  # fields of the manifest that `describe` leaves out


def load(
    path: str | os.PathLike[str], *, verify: bool = True, self_test: bool = False
) -> Bundle:
    """Load a bundle.

    Sizes of all files and hashes of the files that are parsed are always checked.

    Args:
      path: The folder of a version, or a folder of versions, of which the newest
        complete one is loaded.
      verify: Whether to check the hashes of weights and assets too. It reads all files.
      self_test: Whether to run the example of the export and compare the answers.

    Returns:
      A `Bundle`.

    Raises:
      MissingFileError: There is no such folder.
      BundleError: The bundle is incomplete, damaged, made by a newer estimax, exported
        for other platforms, or fails the self-test.

    Example:
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


# The errors of reading a file that parses but was not written by estimax.
_OTHER_CONTENT = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """An exported model, loaded by `load`. Several threads may use it at the same time.

    Args:
      path: The folder of the version.
      signatures: Signature name to `Signature`.
      manifest: The content of `manifest.json`: versions, training step, files.
      plan: The host transforms of the features.
      arguments: Flat name to dtype and shape of every array that `run` takes. A string
        in a shape is a free size.
      weights: Name to array.

    Example:
      >>> import tempfile
      >>> from estimax.export import Servable, write_bundle
      >>> age = Origin("features", "age")
      >>> double = lambda w, x: {"serving_default": {"y": x.raw["features/age"] * 2}}
      >>> plan = plans.Plan(raw=(age,), calls=())
      >>> servable = Servable(double, {}, plan, {age: np.array([31.0])})
      >>> with tempfile.TemporaryDirectory() as base:
      ...     bundle = load(write_bundle(servable, base, platforms=("cpu",)))
      >>> bundle.predict({"age": [1.0, 2.0, 3.0]})
      {'y': array([2., 4., 6.], dtype=float32)}
    """

    path: Path
    signatures: Mapping[str, Signature]
    manifest: Mapping[str, Any]
    plan: plans.Plan
    arguments: Mapping[str, ArgumentSpec]
    weights: Mapping[str, jax.Array]
    _programs: Mapping[str, Callable[..., dict[str, jax.Array]]]
    _files: BundleFiles

    def __repr__(self) -> str:
        names = [spec.name for spec in next(iter(self.signatures.values())).inputs]
        size = sum(array.nbytes for array in self.weights.values())
        return "\n".join(
            (
                f"Bundle({str(self.path)!r}, step={self.manifest.get('step')})",
                f"  features: {first_few(names)}",
                f"  signatures: {first_few(list(self.signatures))}",
                f"  weights: {len(self.weights)} arrays, {size:,} bytes",
            )
        )

    def predict(self, features: Any, signature: str = DEFAULT_SIGNATURE) -> Arrays:
        """Answer a request.

        Args:
          features: Feature name to an array, list, `Strings` or `Sparse`, one entry per
            row; or a data frame.
          signature: The name of the signature to call.

        Returns:
          Output name to a NumPy array. Text is an object array of bytes.

        Raises:
          BundleError: A feature is missing, unknown, or of another dtype or shape, or
            there is no such signature.
        """
        self.signature(signature)
        batch = self.check(features)
        if not plans.batch_size(batch):
            return self._empty(signature)
        return self.run(signature, self.transform(batch))

    def signature(self, name: str) -> Signature:
        """Return a signature by name.

        Args:
          name: The name, e.g. `"serving_default"`.

        Raises:
          BundleError: There is no such signature.
        """
        if name not in self.signatures:
            raise BundleError(
                f"unknown signature {name!r}{did_you_mean(name, self.signatures)}"
            )
        return self.signatures[name]

    def check(self, features: Any) -> dict[Origin, Any]:
        """Check a request and convert it to a raw batch.

        All signatures of a bundle take the same features, so the result fits each.

        Args:
          features: Feature name to an array, list, `Strings` or `Sparse`, one entry per
            row.

        Returns:
          Origin to raw value, for `transform`. Raw batches can be concatenated.

        Raises:
          BundleError: A feature is missing, unknown, or of another dtype or shape.
        """
        specs = next(iter(self.signatures.values())).inputs
        return read_request(specs, features, origins_of(self.plan))

    def transform(self, batch: plans.RawBatch) -> Arrays:
        """Run the host transforms: strings to ids, padding and so on.

        Args:
          batch: A raw batch, as `check` returns it.

        Returns:
          Flat name to array, for `run`.

        Raises:
          BundleError: An array does not have the shape that the program takes.
        """
        arrays = host_plan.flat_inputs(self.plan.prepare(batch))
        for name, spec in self.arguments.items():
            arrays[name] = _fitted(name, spec, arrays.get(name))
        return {name: arrays[name] for name in self.arguments}

    def run(self, signature: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Compute the answers of one signature.

        Args:
          signature: The name of the signature.
          arrays: Flat name to array, as `transform` returns them.

        Returns:
          Output name to a NumPy array with one entry per row.
        """
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
        """Compile programs before the first request, with rows of the self-test.

        Args:
          batch_sizes: The batch sizes to compile for. Each is rounded up to a power of
            two.
          signatures: The names of the signatures. None: all.
        """
        example, _ = self._test()
        arrays = self.transform(example)
        for name in signatures or self.signatures:
            for size in batch_sizes:
                self.run(name, {n: _repeated(a[:1], size) for n, a in arrays.items()})

    def self_test(self) -> None:
        """Run the example of the export and compare the answers.

        Raises:
          BundleError: An answer differs by more than rounding.
        """
        example, expected = self._test()
        rows = plans.batch_size(example)
        # Twice the rows of the export, since answers must not depend on the batch size.
        transformed = self.transform(example).items()
        arrays = {name: _repeated(array, 2 * rows) for name, array in transformed}
        for name, answers in expected.items():
            found = {n: a[:rows] for n, a in self.run(name, arrays).items()}
            platform = jax.default_backend()
            selftest.check_answers(name, answers, found, platform=platform)

    def describe(self) -> dict[str, Any]:
        """Return a description of the bundle as JSON values, e.g. for a web page.

        Returns:
          Path, versions, training step, size in bytes, signatures, features, transforms
          and
          weights.
        """
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
                "answers of the signatures, found other names."
            )
        return example, answers


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
            raise ValueError(
                f"functions/{stem}: expected the same arguments as the other functions"
            )
    weights = _read_weights(files, functions.arguments_of(first)[0])
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
        arguments=functions.arguments_of(first)[1],
        weights=jax.device_put(weights),
        _programs={name: jitted[stem] for name, stem in stems.items()},
        _files=files,
    )


def _check_signature(
    signature: Signature, function: functions.Exported, plan: plans.Plan
) -> None:
    """Raise ValueError unless a signature fits the features and the program."""
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
    """Return an array in the dtype that the program takes, or raise for its shape."""
    if array is None:
        raise BundleError(f"{name}: expected an array, found none.")
    fits = len(array.shape) == len(spec.shape) and all(
        isinstance(dim, str) or dim == n
        for dim, n in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise BundleError(
            f"{name}: expected shape {list(spec.shape)}, found {list(array.shape)}; "
            "rows of the example given to the export had another shape."
        )
    return np.asarray(array, spec.dtype)


def _repeated(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return the array with its last row repeated up to `rows` rows."""
    missing = rows - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])


def _check_platform(files: BundleFiles) -> None:
    platforms = files.manifest.get("platforms", [])
    if not functions.runs_here(platforms):
        raise BundleError(
            f"{files.folder}: exported for {', '.join(platforms)}, but jax runs on "
            f"{jax.default_backend()} here. Export again with this platform, or set "
            f"JAX_PLATFORMS to one of {', '.join(platforms)}."
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
