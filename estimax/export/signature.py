"""Signatures: what may be asked of a bundle and what it answers, as values.

    Signature("predict", PREDICT, inputs=(TensorSpec("age", "float32", (None,)),), …)

Two dtypes per tensor: the one promised to callers (`dtype`, "string" for text) and the
one on the device (`compute_dtype`). A device has no int64 and no text, so `class_ids`
is promised as int64 and computed as int32, and words travel as ids with a vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import BundleError, did_you_mean
from estimax.staging import plan as plans
from estimax.staging.recording import Origin
from estimax.wire import json_text, tensors

PREDICT: Final = "tensorflow/serving/predict"
CLASSIFY: Final = "tensorflow/serving/classify"
REGRESS: Final = "tensorflow/serving/regress"
METHODS: Final = (PREDICT, CLASSIFY, REGRESS)

DEFAULT_SIGNATURE: Final = "serving_default"
STRING: Final = "string"

Kind = Literal["dense", "sparse"]


@dataclass(frozen=True)
class TensorSpec:
    """One named input or output; None in the shape is free, the batch among it.

    >>> TensorSpec("age", "float32", (None, 2)).tail
    (2,)
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    kind: Kind = "dense"
    compute_dtype: str | None = None  # None: never on the device as it is
    vocabulary: tuple[str, ...] | None = None  # of a computed text output

    @property
    def tail(self) -> tuple[int | None, ...]:
        """The shape of one row."""
        return self.shape[1:]

    def to_wire(self, computed: NDArray[Any]) -> NDArray[Any]:
        """Turn a computed array into what callers were promised."""
        if self.vocabulary is None:
            return computed.astype(self.dtype, copy=False)
        count = len(self.vocabulary)
        is_id = computed.dtype.kind in "iu"
        if not is_id or ((computed < 0) | (computed >= count)).any():
            raise BundleError(
                f"output {self.name!r}: expected ids in [0, {count}) for the words of "
                f"its vocabulary, found {computed.dtype} {computed.reshape(-1)[:8]}. "
                "The signature does not belong to the program; export the model again."
            )
        words = np.array([word.encode() for word in self.vocabulary], dtype=object)
        found: NDArray[Any] = words[computed]
        return found


@dataclass(frozen=True)
class Signature:
    """A function of a bundle by name, with the features it takes and its answers.

    >>> age = TensorSpec("age", "float32", (None,))
    >>> Signature("predict", PREDICT, (age,), ()).inputs[0].name
    'age'
    """

    name: str
    method_name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        check_method(self.name, self.method_name)


def check_method(signature: str, method: str) -> None:
    """Refuse a method that no client could call."""
    if method not in METHODS:
        raise BundleError(
            f"signature {signature!r}: unknown method {method!r}"
            f"{did_you_mean(method, METHODS)}"
        )


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """A signature as plain JSON values, without its name."""
    return {
        "method_name": signature.method_name,
        "inputs": {spec.name: _spec_to_json(spec) for spec in signature.inputs},
        "outputs": {spec.name: _spec_to_json(spec) for spec in signature.outputs},
    }


def signature_from_json(name: str, record: Mapping[str, Any]) -> Signature:
    """Build the signature that `signature_to_json` described; check every field."""
    record = json_text.mapping(record, name)
    inputs, outputs = (
        tuple(
            _spec_from_json(n, json_text.mapping(r, n))
            for n, r in json_text.mapping(record[part], part).items()
        )
        for part in ("inputs", "outputs")
    )
    return Signature(name, json_text.text(record, "method_name"), inputs, outputs)


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    record: dict[str, Any] = {"dtype": spec.dtype, "shape": list(spec.shape)}
    record |= {"kind": spec.kind, "compute_dtype": spec.compute_dtype}
    if spec.vocabulary is not None:
        record["vocabulary"] = list(spec.vocabulary)
    return record


def _spec_from_json(name: str, record: Mapping[str, Any]) -> TensorSpec:
    vocabulary, computed = record.get("vocabulary"), record["compute_dtype"]
    kind: Any = json_text.text(record, "kind")
    if kind not in ("dense", "sparse"):
        raise ValueError(f"{name!r}: unknown kind {kind!r}")
    if vocabulary is not None and (
        not isinstance(vocabulary, list)
        or not all(isinstance(word, str) for word in vocabulary)
    ):
        raise ValueError(f"{name!r}: its vocabulary is not a list of words")
    dtype = json_text.text(record, "dtype")
    return TensorSpec(
        name=name,
        dtype=dtype if dtype == STRING else check_dtype(dtype),
        shape=_shape(record),
        kind=kind,
        compute_dtype=None if computed is None else check_dtype(computed),
        vocabulary=None if vocabulary is None else tuple(vocabulary),
    )


def check_dtype(name: Any) -> str:
    """Return the name of a dtype that arrays of a bundle can have, or ValueError.

    >>> check_dtype("float32")
    'float32'
    """
    # NumPy would take "U99999999" as well, and that much memory for a value.
    if not isinstance(name, str) or name not in tensors.DTYPES | {"complex128"}:
        raise ValueError(f"unknown dtype {name!r}")
    return name


def _shape(record: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return a shape in which None is a free size."""
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


Outputs = dict[str, dict[str, Any]]  # arrays, Words or Int64
ServableFunction = Callable[[dict[str, Any], plans.PreparedBatch], Outputs]

LONE_FEATURE = "feature"  # the name, in a signature, of features that are one array


@dataclass(frozen=True, eq=False)
class Servable:
    """A predict function with all that a process without its code needs to run it.

    `plan` is the host's part for features alone: no labels, no row groups. `example`
    holds at least one row of every raw feature; shapes and dtypes are taken from it,
    and its first rows become the bundle's self-test.

    >>> age = Origin("features", "age")
    >>> servable = Servable(
    ...     function=lambda w, x: {
    ...         "serving_default": {"y": x.raw["features/age"] * w["k"]}
    ...     },
    ...     weights={"k": np.float32(2)},
    ...     plan=plans.Plan(raw=(age,), calls=()),
    ...     example={age: np.array([31.0])},
    ... )
    >>> [input_name(origin) for origin in origins_of(servable.plan)]
    ['age']
    """

    function: ServableFunction
    weights: Mapping[str, Any]  # name -> array
    plan: plans.Plan
    example: plans.RawBatch
    methods: Mapping[str, str] = field(default_factory=dict)  # default: predict

    def __post_init__(self) -> None:
        for signature, method in self.methods.items():
            check_method(signature, method)
        if self.plan.groups:
            raise BundleError("Servable: a plan with row groups trains, not serves.")
        if not origins_of(self.plan):
            object.__setattr__(self, "plan", _counting_rows(self.plan, self.example))
        origins = origins_of(self.plan)
        for origin in origins:
            if origin.part != "features":
                raise BundleError(
                    f"Servable: {origin.name} is not a feature; a request has no "
                    "labels. Build the plan in mode 'infer'."
                )
            if origin not in self.example:
                raise BundleError(
                    f"Servable: the example has no {origin.name}, which the function "
                    f"reads; it has {sorted(o.name for o in self.example)}."
                )
        if not plans.batch_size({o: self.example[o] for o in origins}):
            raise BundleError("Servable: the example needs at least one row.")


def _counting_rows(plan: plans.Plan, example: plans.RawBatch) -> plans.Plan:
    """A plan that reads one feature, for a model that reads none (a baseline, say)."""
    # Something in a request must tell how many rows to answer.
    for origin, value in example.items():
        if origin.part == "features" and isinstance(value, np.ndarray):
            return replace(plan, raw=(origin,))
    raise BundleError(
        "Servable: the function reads no feature and the example has no numeric one, "
        "so nothing in a request would tell how many rows to answer."
    )


def origins_of(plan: plans.Plan) -> tuple[Origin, ...]:
    """The raw features that a plan reads, each once: what a request must carry."""
    called = (origin for call in plan.calls for origin in call.inputs)
    return tuple(dict.fromkeys((*plan.raw, *called)))


def input_name(origin: Origin) -> str:
    """What a feature is called in a signature."""
    return LONE_FEATURE if origin.key is None else str(origin.key)
