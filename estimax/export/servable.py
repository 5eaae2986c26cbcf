"""What an estimator hands over to be exported: a function, its weights, host work.

    servable = Servable(function, weights, plan, example)
    write_bundle(servable, "export/final")

This room asks not who trained the function. It must be pure and traceable by jax; it
takes the weights and the prepared batch, and answers all signatures at once:

    function(weights, {"raw": {…}, "staged": {…}}) -> {signature: {output: array}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from estimax.core.errors import BundleError
from estimax.export.signature import check_method
from estimax.staging import plan as plans
from estimax.staging.recording import Origin

Outputs = dict[str, dict[str, Any]]  # arrays, Words or Int64
ServableFunction = Callable[[dict[str, Any], dict[str, dict[str, Any]]], Outputs]

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
    ...         "serving_default": {"y": x["raw"]["features/age"] * w["k"]}
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
