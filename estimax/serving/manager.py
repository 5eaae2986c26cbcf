"""The models that a server has: their versions, loaded, replaced and drained.

    manager = ModelManager([ModelConfig("ctr", "/models/ctr")], load=load)
    manager.poll()                              # every second, by the server
    with manager.acquire("ctr") as served: ...  # the highest version that is ready

Every event (a folder was listed, a load ended, a configuration was replaced, a request
ended) is recorded under one lock, and then `_reconcile` compares what is wanted with
what is there, starts loads and unloads versions. It decides from the records alone and
waits for nothing. Whatever may wait, folders and loads, runs in threads of their own,
without the lock, which every request takes.

A version is in one of TensorFlow Serving's states: START, LOADING, AVAILABLE,
UNLOADING, END. A new version is loaded before the old one is unloaded, and a version is
unloaded when its last request has been answered. A version that ended and is wanted
again starts over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from estimax.serving.batching import as_serving_error
from estimax.serving.config import ModelConfig
from estimax.serving.lifecycle import (
    AcquiredVersion,
    Load,
    LoadFunction,
    ServedModel,
    StagedReload,
    Version,
    VersionState,
)
from estimax.serving.status import Code, ServingError, invalid, not_found
from estimax.serving.threads import run_in_thread
from estimax.serving.version_folders import VersionFolder, list_versions
from estimax.storage.files import is_remote

_log = logging.getLogger("estimax.serving")
# A load that takes longer no longer counts among `load_threads`: it probably waits for
# its disk, and other models are not to wait with it.
_SLOW_SECONDS: Final = 60.0
_STORE_SECONDS: Final = 30.0  # between two listings of an object store


class ModelManager:
    """Loads versions as they appear on disk, and hands them to requests.

    Args:
      configs: The models to serve.
      load: Loads the version in a folder. It is called in a thread; the second argument
        is whether requests are answered meanwhile, the third tells it to stop.
      retries: How often a version that cannot be loaded is tried again.
      retry_seconds: The time between two tries.
      load_seconds: The time after which a load counts as failed.
      listing_seconds: The time after which a folder counts as one that hangs.
      load_threads: How many versions are loaded at the same time. None: one for each
        processor, at least 2 and at most 4.
      clock: Returns seconds, for tests.
    """

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        load: LoadFunction,
        *,
        retries: int = 5,
        retry_seconds: float = 60.0,
        load_seconds: float = 900.0,
        listing_seconds: float = 10.0,
        load_threads: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load_version = load
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._load_seconds = load_seconds
        self._listing_seconds = listing_seconds
        self._load_threads = load_threads or max(2, min(4, os.cpu_count() or 1))
        self._clock = clock
        # Guards every record below. Reentrant, because ending a request reconciles,
        # which may end a version. Never held while a folder is read or a version is
        # loaded: storage may hang for minutes, and every request takes this lock.
        self._changed = threading.Condition(threading.RLock())
        self._models = {config.name: ServedModel(config) for config in configs}
        self._joining: list[ServedModel] = []  # of the reload under way
        # Held for a whole reload, minutes long; one reload at a time. Taken before
        # `_changed`, never after.
        self._reload_lock = threading.Lock()
        self._loads: dict[Path, Load] = {}  # one thread for each folder at most
        self._listings: dict[str, float] = {}  # folders being read, since when
        self._listed: dict[str, float] = {}  # folders that were read, and when
        self._listeners: list[Callable[[], None]] = []
        self._told: set[str] = set()
        self._has_started = False  # every model was ready or failed once
        self._is_stopping = False
        self._is_closed = False
        self.listing_failures: Counter[str] = Counter()  # by model

    # What requests, status pages and probes ask for.

    def models(self) -> dict[str, ServedModel]:
        """Return copies of the models by name, in the order of the configuration."""
        with self._changed:
            return {name: model.snapshot() for name, model in self._models.items()}

    def has_model(self, name: str) -> bool:
        """Return whether a model of this name is served."""
        return name in self._models

    def is_ready(self) -> bool:
        """Return whether every model has a version that answers requests."""
        with self._changed:
            return all(model.available() for model in self._models.values())

    def is_model_ready(self, name: str) -> bool | None:
        """Return whether a model has a version that answers; None if it is unknown."""
        with self._changed:
            model = self._models.get(name)
            return None if model is None else bool(model.available())

    @contextmanager
    def acquire(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[AcquiredVersion]:
        """Hold a version for a request; it is not unloaded before the block ends.

        Raises:
          ServingError: NOT_FOUND for an unknown model or a version that is not ready,
            INVALID_ARGUMENT for an unknown label.
        """
        with self._changed:
            found = _find(self._model(name), version, label)
            assert found.loaded is not None
            # Counted under the same lock that chose it: between the choice and the
            # count nobody can unload it.
            found.requests += 1
            served = AcquiredVersion(name, found.number, found.loaded)
        try:
            yield served
        finally:
            with self._changed:
                found.requests -= 1
                # The last request of a version that was replaced frees it.
                if found.state is VersionState.UNLOADING:
                    self._end_if_drained(name, found)
                    self._reconcile()

    def versions(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> list[Version]:
        """Return copies of the known versions of a model, or of the one asked for."""
        with self._changed:
            model = self._model(name)
            if label is not None:
                version = _version_of_label(model, label)
            versions = model.snapshot().versions
        if version is None:
            return sorted(versions.values(), key=lambda v: -v.number)
        if version not in versions:
            raise not_found(f"model {name!r} has no version {version}.")
        return [versions[version]]

    def loading(self) -> set[Path]:
        """Return the folders that threads are loading, given up or not."""
        with self._changed:
            return set(self._loads)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener`, which must not wait, whenever a version changes."""
        with self._changed:
            self._listeners.append(listener)

    def notify(self) -> None:
        """Call the listeners: something that they answer from has changed."""
        with self._changed:
            self._tell_changed()

    # What the server calls.

    def begin_with(self, configs: Sequence[ModelConfig]) -> None:
        """Replace the models to serve before the first `poll`, when none is loaded."""
        with self._changed:
            self._models = {config.name: ServedModel(config) for config in configs}

    def poll(self) -> None:
        """Read the folders of all models; load and unload versions.

        A folder that hangs is waited for once, for up to `listing_seconds`. An object
        store is read every 30 seconds.
        """
        self.tick()
        with self._changed:
            paths = {model.config.base_path for model in self._known()}
            for path in paths & self._listings.keys():
                self._note_hung_listing(path)
            fresh = {path for path in paths if self._is_to_be_read(path)}
        self._read_folders(fresh, self._listing_seconds)

    def _is_to_be_read(self, path: str) -> bool:
        """Return whether it is time to read a folder; an object store costs money."""
        last = self._listed.get(path)
        return (
            last is None
            or not is_remote(path)
            or (self._clock() - last >= _STORE_SECONDS)
        )

    def tick(self) -> None:
        """Give up loads that take too long, and try again what is due."""
        with self._changed:
            for load in self._loads.values():
                is_overdue = self._clock() - load.started > self._load_seconds
                if is_overdue and not load.signal.is_stopped:
                    load.signal.stop()
                    self._fail(load, self._overdue_error(load.version))
            self._reconcile()

    def reload(self, configs: Sequence[ModelConfig], timeout: float) -> None:
        """Replace the configuration, or raise and change nothing.

        Returns when every version that the new configuration asks for is loaded, and
        requests are answered accordingly. Until then, and if it is refused, requests
        are answered as before.

        Args:
          configs: All models to serve from now on.
          timeout: Seconds until the reload is refused.

        Raises:
          ServingError: A version is not there, cannot be loaded, or not in time, or a
            label in use would move to a version that is not served.
        """
        names = ", ".join(config.name for config in configs)
        deadline = time.monotonic() + timeout
        try:
            if not self._reload_lock.acquire(timeout=max(timeout, 0.0)):
                raise ServingError(
                    Code.ABORTED, "another configuration is still being loaded."
                )
            try:
                self._reload(configs, deadline)
            finally:
                self._reload_lock.release()
        except ServingError as error:
            _log.error("the new configuration is refused (%s): %s", names, error)
            raise
        _log.info("new configuration: %s", names)

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until every model has an available version or has failed to load.

        Returns:
          Whether every model is ready.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopping or self._is_settled(), timeout
            )
            return self.is_ready()

    def stop_loading(self) -> None:
        """Load nothing more, and tell loads under way to stop."""
        with self._changed:
            # Also wakes `wait_until_ready`, so that a server can be stopped while its
            # first load hangs.
            self._is_stopping = True
            for load in self._loads.values():
                load.signal.stop()
            self._changed.notify_all()

    def close(self, timeout: float = 10.0) -> bool:
        """Unload all versions once their requests have ended.

        Returns:
          Whether all loads have ended within `timeout` seconds.
        """
        self.stop_loading()
        with self._changed:
            for model in self._known():
                self._remove(model)
            self._is_closed = True
            # A load may not see its signal, e.g. while its disk hangs. The server then
            # ends without waiting for it.
            return self._changed.wait_for(lambda: not self._loads, timeout)

    # Listing folders.

    def _read_folders(self, paths: Iterable[str], seconds: float) -> None:
        """Read folders in threads of their own, and wait for them for some time.

        A folder that is being read already is not waited for.
        """
        with self._changed:
            # A folder that hangs has one thread, not one more at each poll.
            fresh = set(paths) - self._listings.keys()
            self._listings.update(dict.fromkeys(fresh, time.monotonic()))
        for path in fresh:
            try:
                # The lock is free here: `os.listdir` of a network disk may take
                # seconds.
                run_in_thread(partial(self._list, path), "list")
            except RuntimeError as error:  # there are too many threads
                self._end_listing(path, None, str(error))
        with self._changed:
            self._wait_for_listings(fresh, seconds)

    def _wait_for_listings(self, paths: Iterable[str], seconds: float) -> None:
        self._changed.wait_for(
            lambda: self._is_stopping or self._listings.keys().isdisjoint(paths),
            seconds,
        )

    def _list(self, path: str) -> None:
        try:
            found = list_versions(path)
        except Exception as error:  # whatever it is, the next poll tries again
            self._end_listing(path, None, getattr(error, "strerror", None) or error)
        else:
            self._end_listing(path, found, None)

    def _end_listing(
        self, path: str, found: Mapping[int, VersionFolder] | None, reason: object
    ) -> None:
        with self._changed:
            del self._listings[path]
            self._listed[path] = self._clock()
            self._note_listing(path, found, reason)
            self._reconcile()

    def _note_listing(
        self, path: str, found: Mapping[int, VersionFolder] | None, reason: object
    ) -> None:
        """Record what is in a folder, or the reason why nobody knows."""
        shown = _shorten_path(path)
        for model in self._known():
            name = model.config.name
            if model.config.base_path != path:
                continue
            if found is None:
                # Keep what is loaded: the storage may be away for a moment.
                error = ServingError(
                    Code.UNAVAILABLE, f"{shown} cannot be read: {reason}."
                )
                self.listing_failures[name] += 1
                if str(error) != str(model.listing_error):
                    _log.warning("model %s: %s", name, error)
                model.listing_error = error
                continue
            if model.listing_error is not None:
                _log.info("model %s: %s can be read again", name, shown)
                for version in model.versions.values():
                    # The storage may be why it could not be loaded.
                    version.begins_again |= version.has_failed
            model.found, model.listing_error = found, None
            if not found:
                self._tell_once(
                    f"model {name!r}: {shown} has no complete version; expected "
                    f"sub-folders with a number as their name, such as {shown}/1"
                )

    def _note_hung_listing(self, path: str) -> None:
        if time.monotonic() - self._listings[path] >= self._listing_seconds:
            self._note_listing(path, None, "the storage hangs")

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            _log.warning("%s", message)

    # Deciding: what is wanted against what is there.

    def _reconcile(self) -> None:
        """Load what is wanted and unload what is not. Called after every event."""
        if self._is_closed:
            self._tell_changed()
            return
        for model in self._known():
            self._reconcile_model(model)
        # Sticky: from now on loads compile in a child, to spare the requests.
        self._has_started |= self._is_settled()
        # After every model was reconciled, so that the loads can be put in order.
        self._start_loads()
        self._tell_changed()

    def _reconcile_model(self, model: ServedModel) -> None:
        wanted, answers = model.wanted(), model.in_force()
        for number in wanted:
            assert model.found is not None
            self._want(model, number, model.found[number])
        for number in answers:
            version = model.versions[number]
            # Loaded just now, or still answering its last requests.
            is_loaded = version.state in (VersionState.LOADING, VersionState.UNLOADING)
            if is_loaded and version.loaded is not None:
                version.state = VersionState.AVAILABLE
        # Until a wanted version answers, another one has to.
        can_answer = any(v.number in answers for v in model.available())
        for version in model.versions.values():
            version.begins_again |= version.number not in wanted
            if version.state is VersionState.AVAILABLE:
                is_needed = version.number in answers or not can_answer
            else:
                is_needed = version.number in wanted
            if not is_needed:
                self._unload(model, version)

    def _want(self, model: ServedModel, number: int, folder: VersionFolder) -> None:
        version = model.versions.get(number)
        if version is None or version.starts_over(folder.stamp):
            version = Version(number, folder)
            model.add(version)
        version.begins_again = False

    def _start_loads(self) -> None:
        if self._is_stopping:
            return
        now = self._clock()
        running = sum(
            not load.signal.is_stopped and now - load.started < _SLOW_SECONDS
            for load in self._loads.values()
        )
        due = [
            (model, version)
            for model in self._known()
            for version in model.versions.values()
            if version.is_due(now) and version.path not in self._loads
        ]
        # Models that cannot answer yet come first, and the newest version of a model.
        due.sort(key=lambda each: (bool(each[0].available()), -each[1].number))
        for model, version in due[: max(self._load_threads - running, 0)]:
            if version.path not in self._loads:  # two models may share a folder
                self._start_load(model, version)

    def _start_load(self, model: ServedModel, version: Version) -> None:
        load = self._loads[version.path] = Load(
            model.config.name, version, self._clock()
        )
        version.state = VersionState.LOADING
        version.is_loading = True
        _log.info("model %s: loading version %d", model.config.name, version.number)
        is_serving = self._has_started and any(
            model.available() for model in self._models.values()
        )
        try:
            run_in_thread(partial(self._load, load, is_serving), "load")
        except RuntimeError as error:  # there are too many threads
            del self._loads[version.path]
            self._fail(load, error)

    # Loading and unloading.

    def _load(self, load: Load, is_serving: bool) -> None:
        version = load.version
        loaded, error = None, None
        try:
            # Without the lock, for seconds or minutes.
            version.folder.fetch(load.signal.check)
            loaded = self._load_version(version.path, is_serving, load.signal)
        except Exception as caught:
            error = caught
        with self._changed:
            del self._loads[version.path]
            version.is_loading = False
            if load.signal.is_stopped:
                # Its time was up, or nobody wants the version any more.
                if loaded is not None:
                    loaded.close()
            elif error is not None:
                self._fail(load, error)
            else:
                # Still LOADING: `_reconcile` makes it available, unless it belongs to a
                # reload that is not in force yet.
                version.loaded, version.error, version.failures = loaded, None, 0
                seconds = self._clock() - load.started
                _log.info(
                    "model %s: version %d is ready (%.1f s)",
                    *(load.model, version.number, seconds),
                )
            self._reconcile()

    def _fail(self, load: Load, error: Exception) -> None:
        version = load.version
        version.is_loading = False
        version.failures += 1
        version.error = as_serving_error(error)
        version.retry_at = self._clock() + self._retry_seconds
        if version.failures > self._retries:
            version.state = VersionState.END
        _log.error("model %s: version %d: %s", load.model, version.number, error)

    def _overdue_error(self, version: Version) -> ServingError:
        return ServingError(
            Code.DEADLINE_EXCEEDED,
            f"{version.folder} was not loaded within {self._load_seconds:g} s; is its "
            "storage slow? The option --load-timeout allows more time.",
        )

    def _unload(self, model: ServedModel, version: Version) -> None:
        if version.state >= VersionState.UNLOADING:
            return
        load = self._loads.get(version.path)
        if load is not None and load.version is version:
            load.signal.stop()
        # First no new requests (only AVAILABLE versions get them), then the end of
        # those under way, then the memory.
        version.state = VersionState.UNLOADING
        self._end_if_drained(model.config.name, version)

    def _end_if_drained(self, name: str, version: Version) -> None:
        if version.requests:
            return
        version.state = VersionState.END
        if version.loaded is not None:
            version.loaded.close()
            version.loaded = None
            _log.info("model %s: version %d is unloaded", name, version.number)
        self._tell_changed()

    def _remove(self, model: ServedModel) -> None:
        for version in model.versions.values():
            self._unload(model, version)

    # Reloading.

    def _reload(self, configs: Sequence[ModelConfig], deadline: float) -> None:
        with self._changed:
            # The order of a reload: mark what is asked for, list the folders afresh,
            # load beside the versions in force, and only when everything is loaded
            # replace the models at once. Any failure before that withdraws the marks,
            # and clients never notice.
            staged = StagedReload(configs, self._models)
            self._joining = staged.joining
        try:
            self._list_now(staged.paths(), deadline)
            with self._changed:
                self._reconcile()
                while not staged.holds():
                    self._wait_for_change(deadline)
                # No request can come between these lines: the lock is held since
                # `holds` returned True.
                for model in staged.commit(self._models):
                    self._remove(model)
                self._models = staged.models
                # Before the lock is free: its versions do not answer until then.
                self._joining = []
                self._reconcile()
        finally:
            with self._changed:
                staged.withdraw()
                for model in staged.joining:
                    if model.is_joining:
                        self._remove(model)
                self._joining = []
                self._reconcile()

    def _list_now(self, paths: Sequence[str], deadline: float) -> None:
        """Read folders afresh: a listing under way may have begun too early."""
        with self._changed:
            self._wait_for_listings(paths, deadline - time.monotonic())
        self._read_folders(paths, deadline - time.monotonic())
        with self._changed:
            hung = [path for path in paths if path in self._listings]
        if hung:
            raise ServingError(
                Code.DEADLINE_EXCEEDED,
                f"{_shorten_path(hung[0])} was not read in time; its storage hangs.",
            )

    def _wait_for_change(self, deadline: float) -> None:
        if self._is_stopping:
            raise ServingError(Code.UNAVAILABLE, "the server is stopping.")
        if not self._changed.wait(max(deadline - time.monotonic(), 0.0)):
            raise ServingError(
                Code.DEADLINE_EXCEEDED,
                "a version that was asked for is still being loaded; the "
                "configuration in force stays.",
            )

    # Small things.

    def _known(self) -> list[ServedModel]:
        return [*self._models.values(), *self._joining]

    def _is_settled(self) -> bool:
        return all(model.is_settled() for model in self._models.values())

    def _tell_changed(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def _model(self, name: str) -> ServedModel:
        if name not in self._models:
            known = ", ".join(self._models) or "none"
            raise not_found(f"model {name!r} is not served here; models: {known}.")
        return self._models[name]


def _find(model: ServedModel, version: int | None, label: str | None) -> Version:
    """Return the version that answers a request."""
    name = model.config.name
    if label is not None:
        version = _version_of_label(model, label)
    ready = {v.number: v for v in model.available()}
    if version is None and ready:
        return ready[max(ready)]
    if version is None:
        reason = "" if model.listing_error is None else f" {model.listing_error}"
        raise not_found(f"model {name!r} has no version that is ready.{reason}")
    if version not in ready:
        raise not_found(
            f"version {version} of model {name!r} is not ready; ready: "
            f"{', '.join(map(str, ready)) or 'none'}."
        )
    return ready[version]


def _version_of_label(model: ServedModel, label: str) -> int:
    labels = model.config.version_labels
    if label not in labels:
        raise invalid(
            f"model {model.config.name!r} has no label {label!r}; labels: "
            f"{', '.join(labels) or 'none'}."
        )
    return labels[label]


def _shorten_path(path: str) -> str:
    """Return a path for a message: one that is too long is a reason for errors."""
    return path if len(path) <= 200 else f"{path[:200]}..."
