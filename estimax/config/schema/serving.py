"""The section `serving`, derived from `estimax.serving`; for `estimax serve run.yaml`.

serving:
  model_name: census
  rest_port: 8501
  batching: {batch_sizes: [1, 8, 64], timeout_micros: 1000}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from estimax.config.decode import About
from estimax.config.schema.derive import derive

_AT_LEAST_0 = About("", at_least=0)
_AT_LEAST_1 = About("", at_least=1)

BatchingSection = derive(
    "BatchingSection",
    "serving/config.py",
    "BatchingConfig",
    calls="estimax.serving.BatchingConfig",
    limits={
        "batch_sizes": About("", at_least=1, min_items=1),
        "timeout_micros": _AT_LEAST_0,
        "max_enqueued_batches": _AT_LEAST_1,
        "threads": _AT_LEAST_1,
        "list_length": _AT_LEAST_1,
        "max_list_length": _AT_LEAST_1,
    },
)
RestSection = derive(
    "RestSection",
    "serving/config.py",
    "RestLimits",
    calls="estimax.serving.RestLimits",
    python_only={"token": "a secret; pass a file with --token-file"},
)


@dataclass(frozen=True, kw_only=True)
class ServingBase:
    """The keys of `serving` that are not arguments of `ServerConfig`."""

    model_name: Annotated[
        str | None, About("The name in requests; null is the name of the run.")
    ] = None
    export: Annotated[
        str | None,
        About("The name of the export to serve; null is the first in `export`."),
    ] = None


if TYPE_CHECKING:

    class ServingSection(ServingBase):
        """The section `serving`; its derived keys are those of `ServerConfig`."""

        def __getattr__(self, name: str) -> Any: ...

else:
    ServingSection = derive(
        "ServingSection",
        "serving/config.py",
        "ServerConfig",
        calls="estimax.serving.ServerConfig",
        base=ServingBase,
        elsewhere={"models": "`serving.export` and `serving.model_name`"},
        python_only={
            "model_config_file": "a file of models, instead of a run",
            "model_config_poll_seconds": "of a file of models, instead of a run",
            "reuse_port": "set by --workers",
        },
        kinds={"BatchingConfig": BatchingSection, "RestLimits": RestSection},
        limits={
            "grpc_port": About("", at_least=0, at_most=65535),
            "rest_port": About("", at_least=0, at_most=65535),
            "poll_seconds": _AT_LEAST_0,
            "max_rows": _AT_LEAST_1,
            "max_connections": _AT_LEAST_1,
            "load_retries": _AT_LEAST_0,
            "load_threads": _AT_LEAST_1,
            "request_log_rate": About("", at_least=0, at_most=1),
        },
        doc="The server of `estimax serve run.yaml`: ports, batches and limits.",
    )
