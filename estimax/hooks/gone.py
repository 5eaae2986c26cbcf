"""Names of tf.estimator's hooks that are not here, and what to use in their place."""

from typing import Any

_ADVICE = {
    "CheckpointInputPipelineHook": (
        "a checkpoint holds the input's position by itself, as long as "
        "RunConfig(resume_input=True)"
    ),
    "FeedFnHook": (
        "there are no placeholders to feed; yield the values from the input_fn, as "
        "features"
    ),
    "NanLossDuringTrainingError": "it is estimax.core.errors.NanLossError here",
    "SessionRunArgs": "return a list of names from before_run",
    "SessionRunContext": "it is ex.hooks.RunContext here",
    "SessionRunHook": "subclass ex.hooks.Hook",
    "SessionRunValues": "after_run gets a dict of the values by name",
}


def __getattr__(name: str) -> Any:
    advice = _ADVICE.get(name)
    raise AttributeError(
        f"module 'estimax.hooks' has no attribute {name!r}"
        + (f": {advice}." if advice else "")
    )
