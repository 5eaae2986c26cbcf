"""The states of versions, and which versions of a model are wanted.

    model = Model(ModelConfig("ctr", "/models/ctr"))
    model.found = list_versions(Path("/models/ctr"))
    model.wanted()                  # the versions to serve, from policy and disk
    model.available()               # the versions that answer requests now

These are plain records. `manager.py` changes them, under its lock only.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from estimax.serving.config import ModelConfig
from estimax.serving.listing import Stamp, VersionFolder
from estimax.serving.loading import StopSignal
from estimax.serving.status import ServingError
from estimax.serving.versions import LoadedVersion

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
      stamp: The stamp of its manifest when it was found.
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
    path: Path
    stamp: Stamp | None = None
    state: State = State.START
    error: ServingError | None = None
    loaded: LoadedVersion | None = None
    requests: int = 0
    failures: int = 0
    retry_at: float = 0.0
    is_loading: bool = False
    begins_again: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether loading failed, and no further try is under way."""
        return self.failures > 0 and not self.is_loading and self.loaded is None

    def starts_over(self, stamp: Stamp | None) -> bool:
        """Return whether a version that is wanted begins a new life.

        One that was unloaded does. One that could not be loaded does if its folder was
        written again, or if it was unwanted in between.
        """
        if self.state is State.END and not self.failures:
            return True
        return self.has_failed and (self.begins_again or self.stamp != stamp)

    def is_due(self, now: float) -> bool:
        """Return whether it is time to load the version, or to try again."""
        if self.is_loading or self.loaded is not None:
            return False
        return self.state is State.START or (
            self.state is State.LOADING and now >= self.retry_at
        )


@dataclass(eq=False)
class Model:
    """A model and its versions.

    Attributes:
      config: The configuration in force.
      asked: A configuration that a reload asks for. Its versions are loaded beside
        those of `config`, and answer no request until all that was asked for holds.
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
        ready = (v for v in self.versions.values() if v.state is State.AVAILABLE)
        return sorted(ready, key=lambda version: version.number)

    def in_force(self) -> list[int]:
        """Return the versions on disk that may answer requests."""
        return [] if self.is_joining else self.chosen_by(self.config)

    def wanted(self) -> list[int]:
        """Return the versions on disk to be loaded, also those of a reload."""
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
        tried = (State.START, State.LOADING)
        return not any(
            version.state in tried and not version.failures
            for version in self.versions.values()
        )

    def add(self, version: Version) -> None:
        """Add a version, and forget those that ended long ago and are not wanted."""
        versions = {**self.versions, version.number: version}
        unwanted = versions.keys() - self.wanted()
        ended = [n for n in unwanted if versions[n].state is State.END]
        for number in sorted(ended)[:-_ENDED_KEPT]:
            del versions[number]
        self.versions = versions

    def snapshot(self) -> Model:
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
class Served:
    """A version that a request uses."""

    model: str
    number: int
    loaded: LoadedVersion
