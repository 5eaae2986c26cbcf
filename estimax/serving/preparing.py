"""Fill the compilation cache before a server starts, e.g. when an image is built.

for path in prepare(ServerConfig(models=(ModelConfig("ctr", "/models/ctr"),))):
    print(path)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from estimax.core.errors import ConfigError
from estimax.export.manifest import MANIFEST, version_folders
from estimax.serving.batching import Scheduler
from estimax.serving.config import ModelConfig, read_model_configs
from estimax.serving.examples import compile_parser
from estimax.serving.model_batching import batching_of
from estimax.serving.server_config import ServerConfig
from estimax.serving.versions import load_version


def prepare(config: ServerConfig) -> Iterator[Path]:
    """Compile the models of a server into the compilation cache.

    Use it when an image is built, so that a server in it starts from a full cache. It
    loads every version that a server would, and the parser of Examples.

    Args:
      config: The settings of the server.

    Yields:
      The folder of each version, after it has been compiled.

    Raises:
      EstimaxError: A version cannot be loaded, or a model has none.
    """
    scheduler = Scheduler(1)
    try:
        models = config.models or read_model_configs(
            Path(config.model_config_file or "")
        )
        for model in models:
            for path in _versions_to_serve(model):
                batching = batching_of(
                    path, config.batching, reads_file=config.reads_batching_params
                )
                loaded = load_version(path, batching, scheduler)
                compile_parser(loaded.bundle)
                loaded.close()
                yield path
    finally:
        scheduler.close()


def _versions_to_serve(config: ModelConfig) -> list[Path]:
    """Return the folders of the versions of a model that its policy chooses.

    Raises:
      ConfigError: There is none.
    """
    base = Path(config.base_path)
    if (base / MANIFEST).is_file():
        return [base]
    try:
        folders = version_folders(base)
    except OSError as error:
        raise ConfigError(f"{base}: cannot be read: {error.strerror}.") from None
    complete = {n: path for n, path in folders.items() if (path / MANIFEST).is_file()}
    chosen = config.version_policy.choose(list(complete))
    if not chosen:
        raise ConfigError(f"model {config.name!r}: {base} has no version to serve.")
    return [complete[number] for number in chosen]
