"""The records of models: versions found on disk, their states, and a staged reload.

    model = ServedModel(ModelConfig("ctr", "/models/ctr"))
    model.found = list_versions("/models/ctr")
    model.wanted()                      # the versions to serve, from policy and disk
    model.available()                   # the versions that answer requests now

    staged = StagedReload(configs, models)
    ...                                 # list folders, load what is wanted
    staged.holds()                      # False: wait; raises: refuse
    gone = staged.commit(models)        # now it is in force; unload what is gone
    staged.withdraw()                   # does nothing after `commit`

These are plain records and decisions. `manager.py` changes them, under its lock only.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from estimax.serving.config import ModelConfig
from estimax.serving.status import Code, ServingError, not_found
from estimax.serving.threads import StopSignal
from estimax.serving.version_folders import Stamp, VersionFolder
from estimax.serving.versions import LoadedVersion

_ENDED_KEPT: Final = 20  # ended versions that the status of a model still lists


class VersionState(enum.IntEnum):
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
      folder: Its folder, as it was found.
      state: Where it is in its life.
      error: Why the last try to load it failed.
      loaded: The bundle and its programs, while it is loaded. A version of a
        configuration that is not in force yet is loaded and stays LOADING.
      requests: How many requests use it.
      failures: How often loading failed.
      retry_at: When to try again, by the manager's clock.
      is_loading: Whether a thread loads it.
      begins_again: Whether it was unwanted, or asked for again, since it failed: if
        it is wanted, it is tried afresh.
    """

    number: int
    folder: VersionFolder
    state: VersionState = VersionState.START
    error: ServingError | None = None
    loaded: LoadedVersion | None = None
    requests: int = 0
    failures: int = 0
    retry_at: float = 0.0
    is_loading: bool = False
    begins_again: bool = False

    @property
    def path(self) -> Path:
        """The folder to load."""
        return self.folder.path

    @property
    def has_failed(self) -> bool:
        """Whether loading failed, and no further try is under way."""
        return self.failures > 0 and not self.is_loading and self.loaded is None

    def starts_over(self, stamp: Stamp | None) -> bool:
        """Return whether a version that is wanted begins a new life.

        One that was unloaded does. One that could not be loaded does if its folder was
        written again, or if it was unwanted in between.
        """
        if self.state is VersionState.END and not self.failures:
            return True
        return self.has_failed and (self.begins_again or self.folder.stamp != stamp)

    def is_due(self, now: float) -> bool:
        """Return whether it is time to load the version, or to try again."""
        if self.is_loading or self.loaded is not None:
            return False
        return self.state is VersionState.START or (
            self.state is VersionState.LOADING and now >= self.retry_at
        )


@dataclass(eq=False)
class ServedModel:
    """A model and its versions.

    Attributes:
      config: The configuration in force.
      asked: A configuration that a reload asks for. Its versions are loaded beside
        the versions of `config`. They answer no request until all of them are loaded.
      is_joining: Whether `config` itself is only asked for.
      found: The versions on disk when it was last read; None before.
      listing_error: Why the folder cannot be read at present.
      versions: The versions by number. Replaced, never changed in place.
    """

    config: ModelConfig
    asked: ModelConfig | None = None
    is_joining: bool = False
    found: Mapping[int, VersionFolder] | None = None
    listing_error: ServingError | None = None
    versions: dict[int, Version] = field(default_factory=dict)

    def available(self) -> list[Version]:
        """Return the versions that answer requests, lowest first."""
        ready = (v for v in self.versions.values() if v.state is VersionState.AVAILABLE)
        return sorted(ready, key=lambda version: version.number)

    def in_force(self) -> list[int]:
        """Return the versions on disk that may answer requests."""
        return [] if self.is_joining else self.chosen_by(self.config)

    def wanted(self) -> list[int]:
        """Return the versions on disk to load, for `config` and for a reload."""
        # Both are loaded: the versions in force answer until the reload is complete.
        asked = [] if self.asked is None else self.chosen_by(self.asked)
        return sorted({*self.in_force(), *asked})

    def chosen_by(self, config: ModelConfig) -> list[int]:
        """Return the versions on disk that the policy of a configuration chooses."""
        return config.version_policy.choose(list(self.found or ()))

    def is_settled(self) -> bool:
        """Return whether it is ready, or every version has been tried in vain."""
        if self.available():
            return True
        if self.found is None and self.listing_error is None:
            return False
        tried = (VersionState.START, VersionState.LOADING)
        return not any(
            version.state in tried and not version.failures
            for version in self.versions.values()
        )

    def add(self, version: Version) -> None:
        """Add a version, and forget those that ended long ago and are not wanted."""
        versions = {**self.versions, version.number: version}
        unwanted = versions.keys() - self.wanted()
        ended = [n for n in unwanted if versions[n].state is VersionState.END]
        # TensorFlow Serving lists ended versions for ever; a server that gets one every
        # hour would answer ever longer lists.
        for number in sorted(ended)[:-_ENDED_KEPT]:
            del versions[number]
        # Replaced as a whole: `snapshot` and status pages may still iterate over the
        # dict before.
        self.versions = versions

    def snapshot(self) -> ServedModel:
        """Return a copy that does not change when the model does."""
        copied = copy.copy(self)
        copied.versions = {n: copy.copy(v) for n, v in self.versions.items()}
        return copied


# The folder, whether requests are answered meanwhile, the signal -> the loaded version.
LoadFunction = Callable[[Path, bool, StopSignal], LoadedVersion]


@dataclass(eq=False)
class Load:
    """One try to load a version, in a thread of its own.

    Attributes:
      model: The name of the model.
      version: What it loads.
      started: When, by the manager's clock.
      signal: Stops it.
    """

    model: str
    version: Version
    started: float
    signal: StopSignal = field(default_factory=StopSignal)


@dataclass(frozen=True)
class AcquiredVersion:
    """A version that a request uses."""

    model: str
    number: int
    loaded: LoadedVersion


class StagedReload:
    """The models of a configuration that is asked for.

    Args:
      configs: The configuration.
      current: The models in force. Those that are asked to change are marked.
    """

    def __init__(
        self, configs: Sequence[ModelConfig], current: Mapping[str, ServedModel]
    ) -> None:
        self.models: dict[str, ServedModel] = {}
        self.joining: list[ServedModel] = []
        self._asked: list[ServedModel] = []
        self._configs = configs
        for config in configs:
            model = current.get(config.name)
            if model is None or model.config.base_path != config.base_path:
                model = ServedModel(config, asked=config, is_joining=True)
                self.joining.append(model)
                self._asked.append(model)
            elif model.config != config or not model.available():
                self._ask(model, config)
            self.models[config.name] = model

    def paths(self) -> list[str]:
        """Return the folders to read before anything is decided."""
        asked = (model for model in self._asked if not _is_relabelled(model))
        return list(dict.fromkeys(model.config.base_path for model in asked))

    def holds(self) -> bool:
        """Return whether everything that was asked for is loaded.

        Raises:
          ServingError: It will not be.
        """
        # Look at every model: a failure is told without waiting for other models.
        held = [_holds(model) for model in self._asked]
        return all(held)

    def commit(self, current: Mapping[str, ServedModel]) -> list[ServedModel]:
        """Put the configuration in force; return the models that are gone."""
        for config in self._configs:
            model = self.models[config.name]
            model.config, model.asked, model.is_joining = config, None, False
        kept = list(self.models.values())
        return [model for model in current.values() if model not in kept]

    def withdraw(self) -> None:
        """Ask for nothing any more."""
        for model in self._asked:
            model.asked = None

    def _ask(self, model: ServedModel, config: ModelConfig) -> None:
        model.asked = config
        self._asked.append(model)
        for version in model.versions.values():
            # Who asks for a version that failed before wants to see it tried again.
            version.begins_again |= version.has_failed


def _holds(model: ServedModel) -> bool:
    asked = model.asked
    assert asked is not None
    if _is_relabelled(model):
        _check_labels(model, asked, [version.number for version in model.available()])
        return True
    if model.listing_error is not None:
        error = model.listing_error
        raise ServingError(error.code, f"model {asked.name!r}: {error}")
    found = model.found or {}
    wanted = model.chosen_by(asked)
    policy = asked.version_policy
    # A version that is named must exist; "latest" and "all" take what there is.
    missing = set(policy.versions) - found.keys() if policy.kind == "specific" else ()
    if missing or not wanted:
        what = f"version {min(missing)}" if missing else "a version"
        raise not_found(
            f"model {asked.name!r}: expected {what} in {asked.base_path}, found: "
            f"{', '.join(map(str, found)) or 'none'}."
        )
    _check_labels(model, asked, wanted)
    for number in wanted:
        version = model.versions[number]
        if version.has_failed and version.error is not None:
            error = version.error
            raise ServingError(error.code, f"model {asked.name!r}: {error}")
    return all(model.versions[number].loaded is not None for number in wanted)


def _is_relabelled(model: ServedModel) -> bool:
    """Return whether a model that answers is asked for new labels only.

    Then a newer version that cannot be loaded is no reason to refuse them.
    """
    return (
        model.asked is not None
        and not model.is_joining
        and model.asked.version_policy == model.config.version_policy
        and bool(model.available())
    )


def _check_labels(
    model: ServedModel, asked: ModelConfig, wanted: Sequence[int]
) -> None:
    """Raise if a label in use would move to a version that is not served."""
    ready = {version.number for version in model.available()}
    for label, number in asked.version_labels.items():
        before = model.config.version_labels.get(label)
        # Clients that use the label would get errors from now on.
        if before in ready and number != before and number not in wanted:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"model {asked.name!r}: label {label!r} points to version {before}, "
                f"which is ready, and cannot move to version {number}, which is not.",
            )
