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

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from estimax.core.display import html_table
from estimax.core.errors import BundleError, MissingFileError, did_you_mean
from estimax.core.sparse import padded_length
from estimax.export import functions, host_plan, manifest, selftest
from estimax.export.functions import ArgumentSpec
from estimax.export.host_plan import HashedColumns
from estimax.export.manifest import BundleFiles
from estimax.export.requests import RequestReader
from estimax.export.signature import (
    DEFAULT_SIGNATURE,
    Signature,
    first_few,
    input_name,
    origins_of,
    signature_from_json,
)
from estimax.export.text_requests import (
    CSV_FILE,
    EXAMPLES_FILE,
    EXAMPLES_NAMES,
    CsvRequest,
    ParseExamples,
    parser_from_json,
    parser_of,
    specs_of,
)
from estimax.formats import tensors
from estimax.staging import host_plan as plans
from estimax.staging.trace import Origin
from estimax.storage import forks, json_text

# Larger batches run in pieces, which bounds memory and the sizes to compile.
MOST_ROWS = 4096

Arrays = dict[str, NDArray[Any]]
WEIGHTS = "weights.safetensors"
EVAL_FOLDER = "eval"  # in the folder of a version
# The signatures that heads make; those of several heads have these after a "/".
_HEAD_SIGNATURES = (DEFAULT_SIGNATURE, "predict", "classification", "regression")
_INTERNAL = ("files", "checksum")  # fields of the manifest that `describe` leaves out


def load(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    self_test: bool = False,
    memory_map: bool = False,
) -> Bundle:
    """Load a bundle.

    Sizes of all files and hashes of the files that are parsed are always checked.

    Args:
      path: The folder of a version, or a folder of versions, of which the newest
        complete one is loaded.
      verify: Whether to check the hashes of weights and assets too. It reads all files.
      self_test: Whether to run the example of the export and compare the answers.
      memory_map: Whether to use the file of the weights as memory, which processes of
        one machine then share. The file must not be changed in place while the bundle
        is in use.

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
    forks.check("export.load")
    folder = manifest.resolve(Path(path))
    files = BundleFiles.open(folder)
    files.check_all(content=verify)
    _check_platform(files)
    try:
        bundle = _read(files, memory_map)
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
      csv: Decodes requests of CSV records. None: requests have none.

    Example:
      >>> import tempfile
      >>> from estimax.export import Servable, write_bundle
      >>> age = Origin("features", "age")
      >>> double = lambda w, x: {"serving_default": {"y": x.raw["features/age"] * 2}}
      >>> plan = plans.HostPlan(raw=(age,), calls=())
      >>> servable = Servable(double, {}, plan, {age: np.array([31.0])})
      >>> with tempfile.TemporaryDirectory() as base:
      ...     bundle = load(write_bundle(servable, base, platforms=("cpu",)))
      >>> bundle.predict({"age": [1.0, 2.0, 3.0]})
      {'y': array([2., 4., 6.], dtype=float32)}
    """

    path: Path
    signatures: Mapping[str, Signature]
    manifest: Mapping[str, Any]
    plan: plans.HostPlan
    arguments: Mapping[str, ArgumentSpec]
    weights: Mapping[str, jax.Array]
    _programs: Mapping[str, functions.BundleProgram]  # by signature
    _files: BundleFiles
    _parse_examples: ParseExamples | None = None
    csv: CsvRequest | None = None

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

    def _repr_html_(self) -> str:
        """Return the `repr` and the inputs and outputs of every signature."""
        return html_table(
            ["signature", "", "name", "dtype", "shape"],
            [
                (name, kind, spec.name, spec.dtype, list(spec.shape))
                for name, signature in self.signatures.items()
                for kind, specs in (
                    ("input", signature.inputs),
                    ("output", signature.outputs),
                )
                for spec in specs
            ],
            title=repr(self),
        )

    def predict(
        self,
        features: Any,
        signature: str | None = None,
        *,
        ignore_extra: bool = False,
    ) -> Arrays:
        """Predict every row of a table.

        Integers are accepted for floats, and whole floats for integers. A missing value
        (None, NaN, a null) becomes the default of its column; missing text is empty.

        Args:
          features: One of: a data frame of pandas or polars; a pyarrow Table; a list of
            dicts, one per row; a dict of columns (arrays, lists, Series, `Strings`,
            `Sparse`), in which a single value stands for every row. If the model was
            exported with `build_parsing_serving_input_receiver_fn`, also
            `{"examples": records}` or `{"inputs": records}` with a list of serialized
            tf.train.Examples; if its receiver decodes CSV or parses Examples, also
            `{"csv_row": lines}` under the receiver's name.
          signature: The name of the signature to call. None: `default_signature`.
          ignore_extra: Whether to ignore columns that the model does not use. Otherwise
            they are an error.

        Returns:
          Output name to a NumPy array. Text is an object array of `str`.

        Raises:
          BundleError: A feature is missing, unknown, or of another dtype or shape; a
            value is missing and its column has no default; or there is no such
            signature.

        Example:
          >>> import tempfile
          >>> from estimax.export import Servable, write_bundle
          >>> age = Origin("features", "age")
          >>> def double(weights, inputs):
          ...     return {"serving_default": {"y": inputs.raw["features/age"] * 2}}
          >>> plan = plans.HostPlan(raw=(age,), calls=())
          >>> servable = Servable(double, {}, plan, {age: np.array([31.0])})
          >>> with tempfile.TemporaryDirectory() as base:
          ...     bundle = load(write_bundle(servable, base, platforms=("cpu",)))
          >>> rows = [{"age": 1, "name": "Ada"}, {"age": 2, "name": "Bob"}]
          >>> bundle.predict(rows, ignore_extra=True)
          {'y': array([2., 4.], dtype=float32)}
        """
        called = self.signature(
            self.default_signature if signature is None else signature
        )
        batch = self.check(features, ignore_extra=ignore_extra)
        if not plans.batch_size(batch):
            return called.without_rows()
        arrays, forwarded = self.transform(batch), self.forwarded(batch)
        computed = self._compute_outputs(called, arrays, forwarded)
        return {
            spec.name: spec.to_python(computed[spec.name]) for spec in called.outputs
        }

    def __call__(self, features: Any, signature: str = "serving_default") -> Arrays:
        """Predict every row of a table, as a predictor of `tf.contrib.predictor` does.

        It is `predict` with the default signature of TensorFlow: for a classifier, that
        of classes and scores.

        Args:
          features: A table, in one of the forms that `predict` takes.
          signature: The name of the signature to call.

        Returns:
          Output name to a NumPy array.

        Raises:
          BundleError: As for `predict`.
        """
        return self.predict(features, signature)

    @property
    def default_signature(self) -> str:
        """The signature that `predict` and `estimax run` call if none is named.

        It is "predict" if the bundle has that signature, which returns all predictions
        of a model, the only signature if there is one, and else "serving_default".
        """
        return default_signature(self.signatures)

    def signature(self, name: str) -> Signature:
        """Return a signature by name.

        Args:
          name: The name, e.g. `"serving_default"`.

        Raises:
          BundleError: There is no such signature.
        """
        return signature_named(name, self.signatures)

    def check(self, features: Any, *, ignore_extra: bool = False) -> dict[Origin, Any]:
        """Check a request and convert it to a raw batch.

        All signatures of a bundle take the same features, so the result fits each.

        Args:
          features: A table, in one of the forms that `predict` takes.
          ignore_extra: Whether to ignore columns that the model does not use.

        Returns:
          Origin to raw value, for `transform`. Raw batches can be concatenated.

        Raises:
          BundleError: A feature is missing, unknown, or of another dtype or shape.
        """
        examples = self._examples_in(features)
        if self._parse_examples is not None and examples is not None:
            features = self._parse_examples(features[examples])
        elif self.csv is not None and _has_only(self.csv.name, features):
            features = self.csv(features[self.csv.name])
        return self._read_request(features, ignore_extra=ignore_extra)

    def _examples_in(self, features: Any) -> str | None:
        """Return the name of the serialized Examples in a request, None for others."""
        names = {*EXAMPLES_NAMES, self.manifest.get("examples_name")}
        # A feature of such a name is a feature.
        names -= {spec.name for spec in next(iter(self.signatures.values())).inputs}
        return next((name for name in names if _has_only(name, features)), None)

    @cached_property
    def parse_examples(self) -> ParseExamples:
        """Parses serialized tf.train.Examples into features.

        If the export did not say how, each feature is parsed as the signatures
        describe it.
        """
        if self._parse_examples is not None:
            return self._parse_examples
        return parser_of(specs_of(next(iter(self.signatures.values())).inputs))

    @cached_property
    def _read_request(self) -> RequestReader:
        specs = next(iter(self.signatures.values())).inputs
        return RequestReader(specs, origins_of(self.plan))

    def transform(self, batch: plans.RawBatch) -> Arrays:
        """Run the host transforms: strings to ids, padding and so on.

        Args:
          batch: A raw batch, as `check` returns it.

        Returns:
          Flat name to array, for `run`.

        Raises:
          BundleError: An array does not have the shape that the program takes.
        """
        arrays = host_plan.flat_inputs(self._columns.prepare(batch))
        sizes: dict[str, int] = {}
        return {
            name: _fit_argument(name, spec, arrays.get(name), sizes)
            for name, spec in self.arguments.items()
        }

    @cached_property
    def _columns(self) -> HashedColumns:
        return HashedColumns(self.plan)

    def forwarded(self, batch: plans.RawBatch) -> Arrays:
        """Return the features of a batch that are outputs as they are.

        Args:
          batch: A raw batch, as `check` returns it.

        Returns:
          `TensorInfo.forwards` of an output to its array.
        """
        found = self.plan.forward(batch)
        return {host_plan.forwarded_name(one): value for one, value in found.items()}

    def run(
        self,
        signature: str,
        arrays: Mapping[str, NDArray[Any]],
        forwarded: Mapping[str, NDArray[Any]] | None = None,
    ) -> Arrays:
        """Compute the answers of one signature.

        Args:
          signature: The name of the signature.
          arrays: Flat name to array, as `transform` returns them.
          forwarded: What `forwarded` returns. Needed if an output repeats a feature.

        Returns:
          Output name to a NumPy array with one entry per row. Text is an object array
          of bytes, as in an answer of TensorFlow Serving.
        """
        called = self.signature(signature)
        computed = self._compute_outputs(called, arrays, forwarded or {})
        return {spec.name: spec.to_wire(computed[spec.name]) for spec in called.outputs}

    def _compute_outputs(
        self,
        signature: Signature,
        arrays: Mapping[str, NDArray[Any]],
        forwarded: Mapping[str, NDArray[Any]],
    ) -> Arrays:
        forks.check("the bundle")
        if not signature.is_by_row:
            whole = self._programs[signature.name].call(self.weights, dict(arrays))
            return self._with_forwarded(signature, whole, forwarded)
        rows = len(next(iter(arrays.values())))
        pieces = [
            self._compute(
                signature.name, {n: a[i : i + MOST_ROWS] for n, a in arrays.items()}
            )
            for i in range(0, rows, MOST_ROWS)
        ]
        answers: Arrays = {}
        for name in pieces[0][0]:
            parts = [np.asarray(piece[name])[:n] for piece, n in pieces]
            answers[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._with_forwarded(signature, answers, forwarded)

    def _with_forwarded(
        self,
        signature: Signature,
        computed: Mapping[str, Any],
        forwarded: Mapping[str, NDArray[Any]],
    ) -> Arrays:
        """Return all outputs: the computed ones, and features as they are."""
        return {
            spec.name: np.asarray(computed[spec.name])
            if spec.forwards is None
            else forwarded[spec.forwards]
            for spec in signature.outputs
        }

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
                rows = {
                    n: with_last_row_repeated(a[:1], size) for n, a in arrays.items()
                }
                answers, _ = self._compute(name, rows)
                for answer in answers.values():
                    answer.block_until_ready()

    def example(self) -> dict[Origin, Any]:
        """Return the rows of the self-test as a raw batch, for `transform`."""
        return self._test()[0]

    def extra_file(self, name: str) -> Path | None:
        """Return the path of a file in `assets.extra/`; None if there is none.

        The file need not be listed in the manifest, so that one can be added later.

        Args:
          name: The path of the file under `assets.extra/`.

        Raises:
          BundleError: The name or a link leads out of the bundle.
        """
        path = self._files.path(f"assets.extra/{name}")
        return path if path.is_file() else None

    def compile(
        self, signatures: Sequence[str], arrays: Mapping[str, NDArray[Any]]
    ) -> Any:
        """Compile the programs of some signatures as one, for arrays of these shapes.

        A server calls it for every batch size before the first request. Signatures of
        one model share most of their operations, which XLA merges: compiling three
        together took 0.5 times as long, and running them as long as one. A new version
        that differs in its weights only compiles nothing.

        Args:
          signatures: The names of the signatures.
          arrays: Flat name to array, as `transform` returns them.

        Returns:
          `program(bundle.weights, arrays)`, which returns signature to output name to
          array, and raises for arrays of another shape.
        """
        programs = {name: self._programs[name] for name in signatures}
        return functions.compile_together(programs, self.weights, arrays)

    def function_of(self, signature: str) -> str:
        """Return the name of the file in `functions/` that a signature runs.

        Args:
          signature: The name of the signature.
        """
        records = self._files.read_json("signatures.json")
        return json_text.text(records[self.signature(signature).name], "function")

    def exported(self, function: str) -> functions.Exported:
        """Read a program again, e.g. to write it in another format.

        Args:
          function: The name of its file, from `function_of`.
        """
        return functions.read_function(self._files.read, function)

    def program_groups(self) -> list[dict[str, str]]:
        """Return groups of signatures to compile together.

        Each is a dict of a signature to the first one that runs the same program. The
        signatures of heads are one group, because they compute the same logits. Every
        other signature is a group of its own: one may take much longer than another.
        """
        alike: dict[int, list[str]] = {}  # the signatures of every program
        for name, program in self._programs.items():
            alike.setdefault(id(program), []).append(name)
        groups: dict[str, dict[str, str]] = {}
        for names in alike.values():
            endings = {name.rpartition("/")[2] for name in names}
            group = "" if endings & set(_HEAD_SIGNATURES) else names[0]
            groups.setdefault(group, {}).update(dict.fromkeys(names, names[0]))
        return list(groups.values())

    def self_test(
        self, answer: Callable[[str, plans.RawBatch], Arrays] | None = None
    ) -> None:
        """Run the example of the export and compare the answers.

        Args:
          answer: Computes the answers of a signature for a raw batch, e.g. with
            programs that a server has compiled. None: `run`.

        Raises:
          BundleError: An answer differs by more than rounding.
        """
        example, expected = self._test()
        for name, answers in expected.items():
            found = (answer or self._answer_twice)(name, example)
            platform = jax.default_backend()
            selftest.check_answers(name, answers, found, platform=platform)

    def _answer_twice(self, name: str, batch: plans.RawBatch) -> Arrays:
        """Answer a batch together with as many other rows."""
        rows = plans.batch_size(batch)
        given = self.transform(batch), self.forwarded(batch)
        if not self.signature(name).is_by_row:
            return self.run(name, *given)
        # Twice the rows of the export, since answers must not depend on the batch size.
        arrays, forwarded = (
            {n: with_last_row_repeated(array, 2 * rows) for n, array in group.items()}
            for group in given
        )
        return {n: a[:rows] for n, a in self.run(name, arrays, forwarded).items()}

    def describe(self) -> dict[str, Any]:
        """Return a description of the bundle as JSON values, e.g. for a web page.

        Returns:
          Path, versions, training step, metrics at the export, names in
          `assets.extra/`, size in bytes, signatures, features, whether requests may be
          tf.train.Examples, transforms and weights.
        """
        sizes = host_plan.vocabulary_sizes(self.plan)
        about = {k: v for k, v in self.manifest.items() if k not in _INTERNAL}
        extra = "assets.extra/"
        first = next(iter(self.signatures.values()))
        return {
            "path": str(self.path),
            **about,
            "metrics": about.get("metrics", {}),
            "assets_extra": [
                name.removeprefix(extra)
                for name in self.manifest["files"]
                if name.startswith(extra)
            ],
            "size": sum(f["size"] for f in self.manifest["files"].values()),
            "signatures": {n: _describe(s) for n, s in self.signatures.items()},
            "features": {
                spec.name: {
                    "kind": spec.kind,
                    "dtype": spec.dtype,
                    "shape": list(spec.shape),
                    "vocabulary_size": sizes.get(spec.name),
                    "default": spec.default,
                }
                for spec in first.inputs
            },
            "parses_examples": self._parse_examples is not None,
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
        padded = {
            name: with_last_row_repeated(array, bucket)
            for name, array in arrays.items()
        }
        return self._programs[signature].call(self.weights, padded), rows

    def _test(self) -> tuple[dict[Origin, Any], selftest.AnswersBySignature]:
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


def default_signature(signatures: Mapping[str, Signature]) -> str:
    """Return the name of the signature that is called if none is named."""
    if len(signatures) == 1:
        return next(iter(signatures))
    return "predict" if "predict" in signatures else DEFAULT_SIGNATURE


def signature_named(name: str, signatures: Mapping[str, Signature]) -> Signature:
    """Return a signature; raise BundleError if there is none of this name."""
    if name not in signatures:
        raise BundleError(f"unknown signature {name!r}{did_you_mean(name, signatures)}")
    return signatures[name]


def _has_only(name: str | None, features: Any) -> bool:
    return isinstance(features, Mapping) and list(features) == [name]


def read_signatures(files: BundleFiles) -> dict[str, Signature]:
    """Return the signatures of a bundle by name, without loading its programs.

    Raises:
      BundleError: The file is damaged.
      ValueError: It has other content.
    """
    records = json_text.mapping(files.read_json("signatures.json"), "signatures.json")
    signatures = {name: signature_from_json(name, r) for name, r in records.items()}
    if not signatures:
        raise ValueError("signatures.json: expected at least one signature")
    return signatures


def has_programs_in_use(path: Path) -> bool:
    """Return whether another bundle that is loaded has all programs of this one.

    Raises:
      BundleError: The bundle is incomplete or damaged.
    """
    files = BundleFiles.open(manifest.resolve(path))
    suffix = functions.SUFFIXES[0]
    stems = [Path(n).stem for n in files.manifest["files"] if n.endswith(suffix)]
    return all(functions.is_in_use(_content_of(files, stem)) for stem in stems)


def _content_of(files: BundleFiles, stem: str) -> str:
    """Return the hashes of a program's files; reading one of them compares its hash."""
    names = (f"{functions.FOLDER}/{stem}{suffix}" for suffix in functions.SUFFIXES)
    listed = files.manifest["files"]
    return " ".join(listed[name]["sha256"] for name in names if name in listed)


def _read(files: BundleFiles, memory_map: bool) -> Bundle:
    signatures = read_signatures(files)
    records = json_text.mapping(files.read_json("signatures.json"), "signatures.json")
    stems = {
        name: json_text.text(record, "function") for name, record in records.items()
    }
    programs = {
        stem: functions.load_program(files.read, stem, _content_of(files, stem))
        for stem in dict.fromkeys(stems.values())
    }
    arguments = {
        stem: functions.arguments_of(p.exported) for stem, p in programs.items()
    }
    first = next(iter(arguments.values()))
    for stem, own in arguments.items():
        if own != first:
            raise ValueError(
                f"functions/{stem}: expected the same arguments as the other functions"
            )
    weights = _read_weights(files, first[0], memory_map)
    for name in files.manifest["files"]:
        if name.startswith("assets/"):
            files.check(name, content=True)
    plan = host_plan.plan_from_json(
        files.read_json("transforms.json"), files.folder / "assets"
    )
    for name, signature in signatures.items():
        _check_signature(signature, programs[stems[name]].exported, plan)
    parse = None
    if EXAMPLES_FILE in files.manifest["files"]:
        inputs = next(iter(signatures.values())).inputs
        parse = parser_from_json(files.read_json(EXAMPLES_FILE), inputs)
    csv = None
    if CSV_FILE in files.manifest["files"]:
        names = [spec.name for spec in next(iter(signatures.values())).inputs]
        csv = CsvRequest.from_json(files.read_json(CSV_FILE), names)
    return Bundle(
        path=files.folder,
        signatures=signatures,
        manifest=files.manifest,
        plan=plan,
        arguments=first[1],
        weights=jax.device_put(weights),
        _programs={name: programs[stem] for name, stem in stems.items()},
        _files=files,
        _parse_examples=parse,
        csv=csv,
    )


def _check_signature(
    signature: Signature, function: functions.Exported, plan: plans.HostPlan
) -> None:
    """Raise ValueError unless a signature fits the features and the program."""
    features = {input_name(origin) for origin in origins_of(plan)}
    if {spec.name for spec in signature.inputs} != features:
        raise ValueError(
            f"signature {signature.name!r}: expected the inputs {sorted(features)}"
        )
    results = functions.results_of(function)
    forwarded = {host_plan.forwarded_name(one) for one in plan.forwarded}
    for spec in signature.outputs:
        if spec.forwards is not None:
            if spec.forwards not in forwarded:
                raise ValueError(
                    f"signature {signature.name!r}, output {spec.name!r}: "
                    f"{spec.forwards!r} is not among {sorted(forwarded)}"
                )
            continue
        result = results[spec.name]
        sizes = tuple(dim if isinstance(dim, int) else None for dim in result.shape)
        if (spec.compute_dtype, spec.shape) != (result.dtype, sizes):
            raise ValueError(
                f"signature {signature.name!r}, output {spec.name!r}: expected "
                f"{result}, found {spec.compute_dtype} of {list(spec.shape)}"
            )


def _read_weights(
    files: BundleFiles, specs: Mapping[str, ArgumentSpec], memory_map: bool
) -> Arrays:
    path = files.path(WEIGHTS)
    try:
        read = tensors.map_file if memory_map else safetensors.numpy.load_file
        weights = read(path)
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise BundleError(f"{path}: expected weights, found {error}.") from error
    found = {n: ArgumentSpec(a.dtype.name, a.shape) for n, a in weights.items()}
    for name, spec in specs.items():
        if found.get(name) != spec:
            raise BundleError(
                f"{path}: expected weight {name!r} of {spec}, found {found.get(name)}."
            )
    return {name: weights[name] for name in specs}


def _fit_argument(
    name: str, spec: ArgumentSpec, array: Any, sizes: dict[str, int]
) -> NDArray[Any]:
    """Return an array in the dtype that the program takes, or raise for its shape.

    `sizes` has the free sizes of the arrays before; add the sizes of this array.
    """
    if array is None:
        raise BundleError(f"{name}: expected an array, found none.")
    found = array.shape
    fits = len(found) == len(spec.shape)
    if fits:
        # A loop and no generator: a server runs it for every array of every batch.
        for dim, n in zip(spec.shape, found, strict=True):
            if (sizes.setdefault(dim, n) if isinstance(dim, str) else dim) != n:
                fits = False
                break
    if not fits:
        expected = [
            sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape
        ]
        raise BundleError(
            f"{name}: expected shape {expected}, found {list(array.shape)}; rows of "
            "the example given to the export, or other features of this request, have "
            "another shape."
        )
    dtype = _dtype_of(spec.dtype)
    return array if array.dtype is dtype else np.asarray(array, dtype)


@functools.cache
def _dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(name)


def with_last_row_repeated(array: NDArray[Any], rows: int) -> NDArray[Any]:
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


def _describe(signature: Signature) -> dict[str, Any]:
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
