"""Serve exported models to clients of TensorFlow Serving, over REST and gRPC.

Read `server.py` first, then `inference.py` for the way of a request, `manager.py` for
versions and `batching.py` for batches. It needs `pip install estimax[serve]`.
"""

from estimax.serving.config import (
    BatchingConfig,
    ModelConfig,
    RestLimits,
    ServerConfig,
    VersionPolicy,
)
from estimax.serving.config_files import read_batching_config, read_model_configs
from estimax.serving.server import Server
from estimax.serving.status import Code, ServingError
from estimax.serving.versions import prepare

__all__ = [
    "BatchingConfig",
    "Code",
    "ModelConfig",
    "RestLimits",
    "Server",
    "ServerConfig",
    "ServingError",
    "VersionPolicy",
    "prepare",
    "read_batching_config",
    "read_model_configs",
]
