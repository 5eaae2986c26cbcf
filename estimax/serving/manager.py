"""The models that a server has: their versions, loaded, replaced and drained.

    manager = ModelManager([ModelConfig("ctr", "/models/ctr")], load=load)
    manager.poll()                              # every second, by the server
    with manager.acquire("ctr") as served: ...  # the highest version that is ready

A version is in one of TensorFlow Serving's states, which only go forward: START,
LOADING, AVAILABLE, UNLOADING, END. A new version is loaded before the old one is
unloaded, and a version is unloaded when its last request has been answered.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from estimax.export.manifest import MANIFEST, version_folders
from estimax.serving.batching import as_serving_error
from estimax.serving.config import ModelConfig
from estimax.serving.status import Code, ServingError, invalid, not_found
from estimax.serving.versions import LoadedVersion

_log = logging.getLogger("estimax.serving")
_ENDED_KEPT: Final = 20  # ended versions that the status of a model still lists


class State(enum.IntEnum):
    """The states of a version, with TensorFlow Serving's numbers."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(eq=False)
class Version:
    """One version of a model.

    Attributes:
      number: The number of the version.
      path: Its folder.
      state: Where it is in its life.
      error: Why it could not be loaded.
      loaded: The bundle and its programs, while it is loaded.
      requests: How many requests use it.
      failures: How often loading failed.
      retry_at: When to try again, by the manager's clock.
      is_gone: Whether its folder has been removed since it ended.
    """

    number: int
    path: Path
    state: State = State.START
    error: ServingError | None = None
    loaded: LoadedVersion | None = None
    requests: int = 0
    failures: int = 0
    retry_at: float = 0.0
    is_gone: bool = False


@dataclass(eq=False)
class Model:
    """A model and its versions."""

    config: ModelConfig
    versions: dict[int, Version] = field(default_factory=dict)

    def available(self) -> list[Version]:
        """Return the versions that answer requests, lowest first."""
        ready = (v for v in self.versions.values() if v.state == State.AVAILABLE)
        return sorted(ready, key=lambda version: version.number)


@dataclass(frozen=True)
class Served:
    """A version that a request uses."""

    model: str
    number: int
    loaded: LoadedVersion


class ModelManager:
    """Loads versions as they appear on disk, and hands them to requests.

    Args:
      configs: The models to serve.
      load: Loads the version in a folder. It is called in a thread, one at a time; the
        second argument is whether other versions are being served meanwhile.
      retries: How often a version that cannot be loaded is tried again.
      retry_seconds: The time between two tries.
      clock: Returns seconds, for tests.
    """

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        load: Callable[[Path, bool], LoadedVersion],
        *,
        retries: int = 5,
        retry_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load_version = load
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._models = {config.name: Model(config) for config in configs}
        self._changed = threading.Condition(threading.RLock())
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._warned: set[str] = set()
        self._is_closed = False

    def models(self) -> dict[str, Model]:
        """Return the models by name, in the order of the configuration."""
        with self._changed:
            return dict(self._models)

    def model(self, name: str) -> Model:
        """Return a model, or raise NOT_FOUND."""
        with self._changed:
            if name not in self._models:
                known = ", ".join(self._models) or "none"
                raise not_found(f"model {name!r} is not served here; models: {known}.")
            return self._models[name]

    def is_ready(self) -> bool:
        """Return whether every model has a version that answers requests."""
        with self._changed:
            return all(model.available() for model in self._models.values())

    @contextmanager
    def acquire(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Served]:
        """Hold a version for a request; it is not unloaded before the block ends.

        Raises:
          ServingError: NOT_FOUND for an unknown model or a version that is not ready,
            INVALID_ARGUMENT for an unknown label.
        """
        with self._changed:
            found = self._find(self.model(name), version, label)
            assert found.loaded is not None
            found.requests += 1
            served = Served(name, found.number, found.loaded)
        try:
            yield served
        finally:
            with self._changed:
                found.requests -= 1
                self._end_if_drained(found)

    def versions(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> list[Version]:
        """Return the known versions of a model, or the one asked for."""
        with self._changed:
            model = self.model(name)
            if label is not None:
                version = self._labelled(model, label)
            if version is None:
                return sorted(model.versions.values(), key=lambda v: -v.number)
            if version not in model.versions:
                raise not_found(f"model {name!r} has no version {version}.")
            return [model.versions[version]]

    def poll(self) -> None:
        """Look at the folders of all models; start to load and unload versions."""
        with self._changed:
            for model in self._models.values():
                self._poll_model(model)

    def reload(self, configs: Sequence[ModelConfig], timeout: float) -> None:
        """Replace the configuration, and wait until new models are ready or failed.

        Raises:
          ServingError: A new model could not be loaded, or not in time.
        """
        with self._changed:
            self._check_labels(configs)
            old = self._models
            self._models = {}
            for config in configs:
                model = old.pop(config.name, None) or Model(config)
                model.config = config
                self._models[config.name] = model
            for model in old.values():
                for version in list(model.versions.values()):
                    self._unload(version)
            self.poll()
            ended = self._changed.wait_for(
                lambda: all(_is_settled(model) for model in self._models.values()),
                timeout,
            )
            for model in self._models.values():
                self._raise_failure(model, ended)

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until every model has an available version or has failed to load.

        Returns:
          Whether every model is ready.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: all(_is_settled(model) for model in self._models.values()),
                timeout,
            )
            return self.is_ready()

    def close(self) -> None:
        """Unload all versions once their requests have ended."""
        with self._changed:
            self._is_closed = True
            for model in self._models.values():
                for version in list(model.versions.values()):
                    self._unload(version)
        self._loader.shutdown(cancel_futures=True)

    def _find(self, model: Model, version: int | None, label: str | None) -> Version:
        if label is not None:
            version = self._labelled(model, label)
        ready = {v.number: v for v in model.available()}
        if version is None:
            if not ready:
                raise not_found(
                    f"model {model.config.name!r} has no version that is ready."
                )
            return ready[max(ready)]
        if version not in ready:
            raise not_found(
                f"version {version} of model {model.config.name!r} is not ready; "
                f"ready: {', '.join(map(str, ready)) or 'none'}."
            )
        return ready[version]

    def _labelled(self, model: Model, label: str) -> int:
        labels = model.config.version_labels
        if label not in labels:
            raise invalid(
                f"model {model.config.name!r} has no label {label!r}; labels: "
                f"{', '.join(labels) or 'none'}."
            )
        return labels[label]

    def _check_labels(self, configs: Sequence[ModelConfig]) -> None:
        """Raise if a label that is in use would point to a version not yet ready."""
        for config in configs:
            model = self._models.get(config.name)
            if model is None:
                continue
            ready = {version.number for version in model.available()}
            for label, number in config.version_labels.items():
                before = model.config.version_labels.get(label)
                if before in ready and number != before and number not in ready:
                    raise ServingError(
                        Code.FAILED_PRECONDITION,
                        f"model {config.name!r}: label {label!r} points to version "
                        f"{before}, which is ready, and cannot move to version "
                        f"{number}, which is not.",
                    )

    def _poll_model(self, model: Model) -> None:
        found = self._on_disk(model.config)
        if not found:
            return  # keep what is loaded: the storage may be away for a moment
        for version in model.versions.values():
            version.is_gone |= version.state == State.END and (
                version.number not in found
            )
        wanted = model.config.version_policy.choose(list(found))
        for number in sorted(wanted, reverse=True):
            self._want(model, number, found[number])
        if any(version.number in wanted for version in model.available()):
            for version in model.available():
                if version.number not in wanted:
                    self._unload(version)

    def _on_disk(self, config: ModelConfig) -> dict[int, Path]:
        """Return the complete versions of a model, and say once what is odd."""
        base = Path(config.base_path)
        if (base / MANIFEST).is_file():
            return {int(base.name) if base.name.isdecimal() else 1: base}
        try:
            folders = version_folders(base)
        except OSError as error:
            self._warn(
                f"model {config.name!r}: {base} cannot be read: {error.strerror}"
            )
            return {}
        complete = {n: p for n, p in folders.items() if (p / MANIFEST).is_file()}
        if not complete:
            self._warn(
                f"model {config.name!r}: {base} has no complete version; expected "
                f"sub-folders with a number as their name, such as {base / '1'}"
            )
        return complete

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)

    def _want(self, model: Model, number: int, path: Path) -> None:
        version = model.versions.get(number)
        if version is None or version.is_gone:
            version = model.versions[number] = Version(number, path)
            _forget_ended(model)
        is_due = version.state == State.START or (
            version.state == State.LOADING
            and version.failures > 0
            and self._clock() >= version.retry_at
        )
        if is_due and not self._is_closed:
            version.state = State.LOADING
            version.retry_at = float("inf")  # until this try has ended
            self._loader.submit(self._load, model.config.name, version)

    def _load(self, name: str, version: Version) -> None:
        with self._changed:
            is_serving = any(model.available() for model in self._models.values())
        start = self._clock()
        try:
            loaded = self._load_version(version.path, is_serving)
        except Exception as error:
            self._failed(name, version, error)
            return
        with self._changed:
            version.loaded, version.error = loaded, None
            if version.state == State.LOADING:
                version.state = State.AVAILABLE
            else:
                self._end_if_drained(version)  # unwanted by now
            self._changed.notify_all()
        seconds = self._clock() - start
        _log.info(
            "model %s: version %d is ready (%.1f s)", name, version.number, seconds
        )
        self.poll()

    def _failed(self, name: str, version: Version, error: Exception) -> None:
        _log.error("model %s: version %d: %s", name, version.number, error)
        with self._changed:
            version.failures += 1
            version.error = as_serving_error(error)
            version.retry_at = self._clock() + self._retry_seconds
            if version.failures > self._retries or version.state != State.LOADING:
                version.state = State.END
            self._changed.notify_all()

    def _unload(self, version: Version) -> None:
        if version.state < State.UNLOADING:
            version.state = State.UNLOADING
            self._end_if_drained(version)

    def _end_if_drained(self, version: Version) -> None:
        if version.state != State.UNLOADING or version.requests:
            return
        version.state = State.END
        if version.loaded is not None:
            version.loaded.close()
            version.loaded = None
        self._changed.notify_all()

    def _raise_failure(self, model: Model, ended: bool) -> None:
        if model.available():
            return
        name = model.config.name
        for version in model.versions.values():
            if version.error is not None:
                raise ServingError(
                    version.error.code, f"model {name!r}: {version.error}"
                )
        if not ended:
            raise ServingError(
                Code.DEADLINE_EXCEEDED, f"model {name!r} is still being loaded."
            )
        raise not_found(f"model {name!r}: no version was found on disk.")


def _is_settled(model: Model) -> bool:
    """Return whether a model is ready, or has no version that is being tried first."""
    if model.available():
        return True
    tried = (State.START, State.LOADING)
    return not any(
        version.state in tried and not version.failures
        for version in model.versions.values()
    )


def _forget_ended(model: Model) -> None:
    ended = [v.number for v in model.versions.values() if v.state == State.END]
    for number in sorted(ended)[:-_ENDED_KEPT]:
        del model.versions[number]
