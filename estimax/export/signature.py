"""Signatures describe the functions of a bundle; a servable becomes a bundle.

    Signature("predict", PREDICT, inputs=(TensorInfo("age", "float32", (None,)),), …)
    Servable(function, weights, plan, example)

A tensor has two dtypes: the one that callers see (`dtype`, "string" for text) and the
one on the device (`compute_dtype`). A device has no int64 and no text. So `class_ids`
are int64 for callers and computed as int32, and words are computed as ids in a
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import BundleError, did_you_mean
from estimax.formats import tensors
from estimax.staging import host_plan as plans
from estimax.staging.trace import Origin
from estimax.storage import json_text

if TYPE_CHECKING:  # `text_requests` imports this module
    from estimax.export.text_requests import CsvRequest

PREDICT: Final = "tensorflow/serving/predict"
"""The method of a signature that returns its outputs by name."""
CLASSIFY: Final = "tensorflow/serving/classify"
"""The method of a signature that returns classes and their scores."""
REGRESS: Final = "tensorflow/serving/regress"
"""The method of a signature that returns one number for each example."""
EVALUATE: Final = "tensorflow/supervised/eval"
"""The method of a signature that takes labels and returns metrics of a batch."""
METHODS: Final = (PREDICT, CLASSIFY, REGRESS, EVALUATE)

DEFAULT_SIGNATURE: Final = "serving_default"
STRING: Final = "string"

LONE_FEATURE: Final = "feature"  # the name of features that are one array
LONE_LABEL: Final = "label"

TensorKind = Literal["dense", "sparse"]
Default = Any  # None, a number, or nested tuples of numbers
# signature -> output -> array, Words or Int64
SignatureOutputs = dict[str, dict[str, Any]]
# weights by name, the prepared features -> outputs
ServableFunction = Callable[[dict[str, Any], plans.PreparedBatch], SignatureOutputs]


@dataclass(frozen=True, repr=False)
class TensorInfo:
    """One named input or output of a signature.

    Args:
      name: The name of the feature or output.
      dtype: The dtype that callers see; "string" for text.
      shape: The shape with the batch first. None: any size.
      kind: "dense", or "sparse" for rows of different lengths.
      compute_dtype: The dtype on the device. None: only the host reads the feature.
      vocabulary: The words of a text output, in the order of their ids. None: an output
        that is not computed as ids.
      default: What stands for a missing number of an input: one number, or one for each
        position of a row. NaN: the model replaces NaN. None: no number may be missing.
      forwards: For an output that repeats a feature, the name of the feature among the
        arrays of `Bundle.forwarded`. None: the output is computed.

    Example:
      >>> TensorInfo("age", "float32", (None, 2))
      TensorInfo(age: float32 [None, 2])
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    kind: TensorKind = "dense"
    compute_dtype: str | None = None  # None: only the host reads it
    vocabulary: tuple[str, ...] | None = None  # the words of a text output
    default: Default = None  # stands for a missing number of an input
    forwards: str | None = None

    def __repr__(self) -> str:
        words = "" if self.vocabulary is None else f", {len(self.vocabulary)} words"
        return f"TensorInfo({self._text()}{words})"

    def _text(self) -> str:
        kind = "sparse " if self.kind == "sparse" else ""
        return f"{self.name}: {kind}{self.dtype} {list(self.shape)}"

    @property
    def tail(self) -> tuple[int | None, ...]:
        """The shape of one row."""
        return self.shape[1:]

    def to_wire(self, computed: NDArray[Any]) -> NDArray[Any]:
        """Convert a computed array to the dtype that callers see.

        Args:
          computed: An array of `compute_dtype`; ids for an output with a vocabulary.

        Returns:
          An array of `dtype`; for text, an object array of bytes.

        Raises:
          BundleError: An id is outside the vocabulary.

        Example:
          >>> spec = TensorInfo("word", "string", (None,), vocabulary=("no", "yes"))
          >>> spec.to_wire(np.array([1, 0])).tolist()
          [b'yes', b'no']
        """
        return self._convert(computed, self._words_as_bytes)

    def to_python(self, computed: NDArray[Any]) -> NDArray[Any]:
        """Convert a computed array as `to_wire` does, but text to `str`.

        Args:
          computed: An array of `compute_dtype`; ids for an output with a vocabulary.

        Returns:
          An array of `dtype`; for text, an object array of `str`.

        Raises:
          BundleError: An id is outside the vocabulary.

        Example:
          >>> spec = TensorInfo("word", "string", (None,), vocabulary=("no", "yes"))
          >>> spec.to_python(np.array([1, 0])).tolist()
          ['yes', 'no']
        """
        if self.forwards is not None and self.dtype == STRING:
            return _decode_words(computed)
        return self._convert(computed, self._words)

    @cached_property
    def _words(self) -> NDArray[Any]:
        return np.array(self.vocabulary or (), dtype=object)

    @cached_property
    def _words_as_bytes(self) -> NDArray[Any]:
        return np.array([word.encode() for word in self._words], dtype=object)

    def _convert(self, computed: NDArray[Any], words: NDArray[Any]) -> NDArray[Any]:
        if self.forwards is not None:
            return computed
        if self.vocabulary is None:
            return computed.astype(self.dtype, copy=False)
        count = len(words)
        lowest, highest = computed.min(initial=0), computed.max(initial=0)
        if computed.dtype.kind not in "iu" or lowest < 0 or highest >= max(count, 1):
            raise BundleError(
                f"output {self.name!r}: expected ids in [0, {count}) for the words of "
                f"its vocabulary, found {computed.dtype} {computed.reshape(-1)[:8]}. "
                "The signature does not belong to the program; export the model again."
            )
        found: NDArray[Any] = words[computed]
        return found


def _decode_words(texts: NDArray[Any]) -> NDArray[Any]:
    """Return text as `str`; what is not UTF-8 stays bytes."""
    decoded = np.empty(texts.size, object)
    for place, text in enumerate(texts.reshape(-1)):
        try:
            decoded[place] = text.decode()
        except UnicodeDecodeError:
            decoded[place] = text
    return decoded.reshape(texts.shape)


@dataclass(frozen=True, repr=False)
class Signature:
    """One function of a bundle: its name, method, inputs and outputs.

    Args:
      name: The name that callers give, e.g. `"serving_default"`.
      method_name: `PREDICT`, `CLASSIFY` or `REGRESS`, the method of TensorFlow Serving,
        or `EVALUATE` of a program that also takes labels.
      inputs: The features that it takes. All signatures of a bundle take the same.
      outputs: What it returns.

    Raises:
      BundleError: `method_name` is none of these.

    Example:
      >>> age = TensorInfo("age", "float32", (None,))
      >>> Signature("predict", PREDICT, (age,), ())
      Signature('predict', tensorflow/serving/predict)
        inputs: age: float32 [None]
        outputs: none
    """

    name: str
    method_name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    def __post_init__(self) -> None:
        check_method(self.name, self.method_name)

    def without_rows(self) -> dict[str, NDArray[Any]]:
        """Return the answers to a request that has no rows: empty arrays by name."""
        return {
            spec.name: np.empty(
                (0, *(n or 0 for n in spec.tail)),
                object if spec.dtype == STRING else spec.dtype,
            )
            for spec in self.outputs
        }

    @property
    def is_by_row(self) -> bool:
        """Whether every row is answered alone, whatever other rows are beside it."""
        return self.method_name != EVALUATE

    def __repr__(self) -> str:
        return "\n".join(
            (
                f"Signature({self.name!r}, {self.method_name})",
                f"  inputs: {first_few([spec._text() for spec in self.inputs])}",
                f"  outputs: {first_few([spec._text() for spec in self.outputs])}",
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class Servable:
    """A prediction function with everything that another process needs to run it.

    `Estimator.export_saved_model` makes one. Build it yourself to export a function
    that was not trained by an estimator, and pass it to `write_bundle`.

    Args:
      function: `function(weights, inputs)`, which returns signature name to output name
        to array. It must return a signature "serving_default". `inputs.raw` has the
        numeric features, `inputs.staged` the results of host transforms.
      weights: Name to array.
      plan: The host transforms of the features. It has no labels and no row groups.
      example: At least one row of every raw feature. It sets dtypes and shapes, and its
        first rows become the self-test of the bundle.
      methods: Signature name to `PREDICT`, `CLASSIFY` or `REGRESS`. Default: `PREDICT`.
      parse_spec: Feature name to `FixedLenFeature`, `VarLenFeature` and so on, if
        requests may also be serialized tf.train.Examples. None: they may not.
      examples_name: A name of the serialized Examples in a request, besides "examples"
        and "inputs". None: no other.
      csv: How to decode requests of CSV records, if requests may have them. None: they
        may not.
      exported: Where `write_bundle` keeps the exported functions, by shapes and
        platforms. With the dict of an earlier servable of the same function, only the
        weights are written anew.

    Raises:
      BundleError: The example or `parse_spec` lacks a feature, the example has no rows,
        the plan reads labels, or a method is unknown.

    Example:
      >>> age = Origin("features", "age")
      >>> servable = Servable(
      ...     function=lambda w, x: {
      ...         "serving_default": {"y": x.raw["features/age"] * w["k"]}
      ...     },
      ...     weights={"k": np.float32(2)},
      ...     plan=plans.HostPlan(raw=(age,), calls=()),
      ...     example={age: np.array([31.0])},
      ... )
      >>> servable
      Servable(features: age; weights: k)
    """

    function: ServableFunction
    weights: Mapping[str, Any]  # name -> array
    plan: plans.HostPlan
    example: plans.RawBatch
    methods: Mapping[str, str] = field(default_factory=dict)  # default: predict
    parse_spec: Mapping[str, Any] | None = None
    examples_name: str | None = None
    csv: CsvRequest | None = None
    exported: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for signature, method in self.methods.items():
            check_method(signature, method)
        if self.plan.groups:
            raise BundleError(
                "Servable: the plan has row groups, which only training uses. Build "
                "the plan in mode 'infer'."
            )
        if not origins_of(self.plan):
            object.__setattr__(self, "plan", _counting_rows(self.plan, self.example))
        origins = origins_of(self.plan)
        takes_labels = EVALUATE in self.methods.values()
        for origin in origins:
            if origin.part != "features" and not takes_labels:
                raise BundleError(
                    f"Servable: {origin.name} is not a feature; a request has no "
                    "labels. Build the plan in mode 'infer'."
                )
            if origin not in self.example:
                raise BundleError(
                    f"Servable: the example has no {origin.name}, which the function "
                    f"reads; it has {sorted(o.name for o in self.example)}."
                )
            if (
                self.parse_spec is not None
                and input_name(origin) not in self.parse_spec
            ):
                raise BundleError(
                    f"Servable: parse_spec has no {input_name(origin)!r}, which the "
                    f"function reads; it has {sorted(self.parse_spec)}."
                )
        names = [input_name(origin) for origin in origins]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BundleError(
                f"Servable: {twice!r} is both a feature and a label. Give the label "
                "another name."
            )
        if not plans.batch_size({o: self.example[o] for o in origins}):
            raise BundleError("Servable: the example needs at least one row.")

    def __repr__(self) -> str:
        features = first_few([input_name(origin) for origin in origins_of(self.plan)])
        return (
            f"Servable(features: {features}; weights: {first_few(list(self.weights))})"
        )


def first_few(texts: Sequence[str], most: int = 8) -> str:
    """Return the first few texts and how many more there are, for `repr`.

    >>> first_few(["a", "b", "c"], most=2)
    'a, b, and 1 more'
    """
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return ", ".join([*texts[:most], *more]) or "none"


def check_method(signature: str, method: str) -> None:
    """Raise BundleError unless the method is one of TensorFlow Serving."""
    if method not in METHODS:
        raise BundleError(
            f"signature {signature!r}: unknown method {method!r}"
            f"{did_you_mean(method, METHODS)}"
        )


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """Return a signature as JSON values, without its name."""
    return {
        "method_name": signature.method_name,
        "inputs": {spec.name: _spec_to_json(spec) for spec in signature.inputs},
        "outputs": {spec.name: _spec_to_json(spec) for spec in signature.outputs},
    }


def signature_from_json(name: str, record: Mapping[str, Any]) -> Signature:
    """Return the signature that `signature_to_json` described; check every field."""
    record = json_text.mapping(record, name)
    inputs, outputs = (
        tuple(
            _spec_from_json(n, json_text.mapping(r, n))
            for n, r in json_text.mapping(record[part], part).items()
        )
        for part in ("inputs", "outputs")
    )
    return Signature(name, json_text.text(record, "method_name"), inputs, outputs)


def _spec_to_json(spec: TensorInfo) -> dict[str, Any]:
    record: dict[str, Any] = {"dtype": spec.dtype, "shape": list(spec.shape)}
    record |= {"kind": spec.kind, "compute_dtype": spec.compute_dtype}
    if spec.vocabulary is not None:
        record["vocabulary"] = list(spec.vocabulary)
    if spec.default is not None:
        record["default"] = spec.default
    if spec.forwards is not None:
        record["forwards"] = spec.forwards
    return record


def _spec_from_json(name: str, record: Mapping[str, Any]) -> TensorInfo:
    vocabulary, computed = record.get("vocabulary"), record["compute_dtype"]
    kind: Any = json_text.text(record, "kind")
    if kind not in ("dense", "sparse"):
        raise ValueError(f"{name!r}: unknown kind {kind!r}")
    if vocabulary is not None and (
        not isinstance(vocabulary, list)
        or not all(isinstance(word, str) for word in vocabulary)
    ):
        raise ValueError(f"{name!r}: its vocabulary is not a list of strings")
    dtype = json_text.text(record, "dtype")
    return TensorInfo(
        name=name,
        dtype=dtype if dtype == STRING else check_dtype(dtype),
        shape=_shape(record),
        kind=kind,
        compute_dtype=None if computed is None else check_dtype(computed),
        vocabulary=None if vocabulary is None else tuple(vocabulary),
        default=_default(name, record.get("default"), _shape(record)[1:]),
        forwards=json_text.text(record, "forwards") if "forwards" in record else None,
    )


def _default(name: str, given: Any, tail: tuple[int | None, ...]) -> Default:
    """Return a default with lists as tuples; raise ValueError if it does not fit."""
    if given is None:
        return None
    numbers = np.asarray(given)  # raises ValueError for lists of different lengths
    if numbers.dtype.kind not in "iuf" or numbers.shape not in ((), tail):
        raise ValueError(f"{name!r}: expected numbers as default, found {given!r}")
    return _as_tuples(given)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def check_dtype(name: Any) -> str:
    """Return `name` if arrays of a bundle may have this dtype, else raise ValueError.

    >>> check_dtype("float32")
    'float32'
    """
    # NumPy would accept "U99999999" too and allocate 400 MB per value.
    if not isinstance(name, str) or name not in tensors.DTYPES | {"complex128"}:
        raise ValueError(f"unknown dtype {name!r}")
    return name


def _shape(record: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return a shape, in which None is any size; raise ValueError if it is none."""
    given = record["shape"]
    if not isinstance(given, list):
        raise ValueError(f"shape: expected a list, found {given!r}")
    fixed = [0 if size is None else size for size in given]
    sizes = json_text.dimensions({"shape": fixed}, "shape")
    if any(size >= 2**31 for size in sizes):
        raise ValueError(f"shape: expected sizes below 2^31, found {given}")
    return tuple(
        None if free is None else size for free, size in zip(given, sizes, strict=True)
    )


def _counting_rows(plan: plans.HostPlan, example: plans.RawBatch) -> plans.HostPlan:
    """Return a plan that reads one feature, for a function that reads none."""
    # The answer has as many rows as the features.
    for origin, value in example.items():
        if origin.part == "features" and isinstance(value, np.ndarray):
            return replace(plan, raw=(origin,))
    raise BundleError(
        "Servable: the function reads no feature and the example has no numeric one, "
        "so a request would not determine the number of rows of the answer."
    )


def origins_of(plan: plans.HostPlan) -> tuple[Origin, ...]:
    """Return the raw features that a plan reads, each once."""
    called = (origin for call in plan.calls for origin in call.inputs)
    forwarded = (one.origin for one in plan.forwarded)
    return tuple(dict.fromkeys((*plan.raw, *called, *forwarded)))


def input_name(origin: Origin) -> str:
    """Return the name of a feature in a signature."""
    if origin.key is not None:
        return origin.short_name
    return LONE_FEATURE if origin.part == "features" else LONE_LABEL
