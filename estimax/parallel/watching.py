"""The watcher of a process: it sees that another is lost, has failed, or that all wait.

    watcher = Watcher(store, processes, lost_after_secs=30, end=print)
    watcher.look()              # None, or why this process has to end

Every process writes a beat to the store each second: a number that grows, and where the
process is. A beat that stays the same tells of a lost process. Processes that are all
alive but wait for each other in different places would wait for ever; `is_deadlock` has
the rule that finds them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from estimax.parallel.processes import Processes

PREFIX = "estimax"
_STOP_SECS = 10.0  # a thread that takes longer does not call the store
_Told = Mapping[str, Any]  # a beat or a note, from JSON


class Store(Protocol):
    """The key-value store of `jax.distributed`."""

    def key_value_set(
        self, key: str, value: str, allow_overwrite: bool = False
    ) -> None:
        """Set a key; an existing key is an error unless `allow_overwrite`."""

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Wait for a key; raise an error that holds DEADLINE_EXCEEDED after a time."""

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Return the keys that begin with `key`, and their values."""

    def key_value_delete(self, key: str) -> None:
        """Delete a key, or all keys that begin with `key` if it ends with a slash."""


@dataclass(frozen=True)
class Place:
    """Where a process is while it trains with the others.

    Attributes:
      step: The last step that it has begun.
      topic: The exchange in which it waits for the others; None if it does not wait.
      number: Which exchange of the topic, from 0.
    """

    step: int
    topic: str | None = None
    number: int = 0

    def __str__(self) -> str:
        if self.topic is None:
            return f"has begun step {self.step}"
        since = f"after step {self.step}" if self.step else "before the first step"
        return f"waits in {self.topic!r} {since}"


def is_deadlock(places: Sequence[Place | None]) -> bool:
    """Return whether processes that stay in these places wait for each other for ever.

    Processes that run the same program take part in the same exchanges, in the same
    order. If they all wait but in different exchanges, none can go on. A process that
    has begun a later step than one that waits cannot finish it: the step needs both.

    >>> is_deadlock([Place(3, "saved"), Place(3, "seed")])
    True
    >>> is_deadlock([Place(3, "saved"), Place(3)])  # the second may still save
    False
    >>> is_deadlock([Place(3, "saved"), Place(4)])
    True
    """
    known = [place for place in places if place is not None]
    waiting = [place for place in known if place.topic is not None]
    if len(known) < len(places) or not waiting:
        return False
    if len(waiting) == len(known):
        return len({(place.topic, place.number) for place in waiting}) > 1
    earliest = min(place.step for place in waiting)
    return all(place.step > earliest for place in known if place.topic is None)


class Watcher:
    """Show that this process is alive and where it is, and look for the others.

    Args:
      store: The key-value store that all processes share.
      processes: The processes, seen from this one.
      lost_after_secs: Seconds without a sign of life after which a process is lost, and
        for which all must wait to count as waiting for each other.
      end: Called in a thread with the reason if this process has to end.
      clock: Returns the time in seconds.
    """

    def __init__(
        self,
        store: Store,
        processes: Processes,
        lost_after_secs: float,
        end: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._processes = processes
        self._lost_after = lost_after_secs
        self.interval = min(1.0, lost_after_secs / 10)
        self._end = end
        self._clock = clock
        self._beats = 0
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="estimax-watcher", daemon=True
        )
        # For each other process, its last sign of life and when it changed.
        now = clock()
        self._seen: dict[int, tuple[int, float]] = {
            other: (0, now)
            for other in range(processes.count)
            if other != processes.index
        }
        # The places of all processes, and since when none of them has changed.
        self._places: tuple[list[Place | None], float] = ([], now)

    def start(self) -> None:
        """Start the thread that watches the other processes."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Python must not exit while it calls the store."""
        self._is_stopped.set()
        self._thread.join(_STOP_SECS)

    def wait_for_loss(self) -> None:
        """Wait as long as it may take to notice that a process was lost."""
        time.sleep(self._lost_after + 3 * self.interval)

    def wait_for_others(self) -> None:
        """Wait until the others have read what this process has told them."""
        time.sleep(3 * self.interval)

    def _run(self) -> None:
        while not self._is_stopped.wait(self.interval):
            try:
                problem = self.look()
            except RuntimeError:  # the store cannot be reached
                if not self._is_stopped.is_set():
                    self._processes.lose_service()
                return
            if problem is not None and not self._is_stopped.is_set():
                self._end(problem)
                return

    def look(self) -> str | None:
        """Look once; return a message if this process has to end."""
        me = self._processes.index
        # The place is read before it is told. If it changes in between, the others see
        # an old place once, and compare again a second later.
        self._beats += 1
        place = self._processes.place()
        beat = {"beat": self._beats, "place": None if place is None else asdict(place)}
        self._store.key_value_set(
            f"{PREFIX}/beats/{me}", json.dumps(beat), allow_overwrite=True
        )
        beats, notes = self._read_by_process("beats"), self._read_by_process("notes")
        # A known reason first: a process that failed soon looks lost as well.
        return (
            self._find_failure(notes)
            or self._find_loss(beats, notes)
            or self._find_stuck(beats)
        )

    def _find_failure(self, notes: Mapping[int, _Told]) -> str | None:
        # A process that has ended its part well is not ended by another one's failure.
        if "done" in notes.get(self._processes.index, {}):
            return None
        for other in self._seen:
            note = notes.get(other, {})
            if "failed" in note:
                return f"{self._processes.name_of(other)} ended: {note['failed']}"
        # Why a process ends that has noticed the problem first.
        return next(
            (notes[n]["ends"] for n in self._seen if "ends" in notes.get(n, {})), None
        )

    def _find_loss(
        self,
        beats: Mapping[int, _Told],
        notes: Mapping[int, _Told],
    ) -> str | None:
        now = self._clock()
        for other, (last, since) in self._seen.items():
            # Counts are compared, not times: the clocks of machines differ.
            beat = beats.get(other, {}).get("beat", 0)
            if beat != last or "done" in notes.get(other, {}):
                self._seen[other] = (beat, now)
            elif now - since > self._lost_after:
                return (
                    f"{self._processes.name_of(other)} was lost: no sign of life for "
                    f"{now - since:.0f} seconds. Was it killed, or is its machine or "
                    "the network down? Its own output may say more: processes that "
                    "run different programs (other settings, data or versions) end "
                    "inside a collective (Gloo). A single call that holds Python's "
                    "lock (GIL) for so long looks the same: for such a call raise "
                    "RunConfig(lost_after_secs=…)."
                )
        return None

    def _find_stuck(self, beats: Mapping[int, _Told]) -> str | None:
        now = self._clock()
        places = [
            _place_from(beats.get(index, {}).get("place"))
            for index in range(self._processes.count)
        ]
        # Processes tell their places at different times, so one look may show a state
        # that never was. Only places that none has left for long are a deadlock.
        before, since = self._places
        if places != before or not is_deadlock(places):
            self._places = (places, now)
            return None
        if now - since <= self._lost_after:
            return None
        told = "; ".join(
            f"{self._processes.name_of(index)} {place}"
            for index, place in enumerate(places)
        )
        return (
            "the processes wait for each other in different places, for "
            f"{now - since:.0f} seconds: {told}. They do not run the same program: "
            "compare their settings, hooks, data and versions."
        )

    def _read_by_process(self, kind: str) -> dict[int, _Told]:
        found = self._store.key_value_dir_get(f"{PREFIX}/{kind}/")
        return {int(key.rpartition("/")[2]): json.loads(text) for key, text in found}


def _place_from(given: object) -> Place | None:
    return Place(**given) if isinstance(given, dict) else None
