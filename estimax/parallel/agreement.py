"""What must be equal in all processes of a cluster, compared before they compute.

    require_equal(peers, "settings", {"max_steps": "100", "precision": "float32"})

The processes run one program together. If a setting differs in one of them, they wait
for each other for ever, or train a wrong model without notice. So they exchange a
digest of all settings first. Only if the digests differ, they find out which settings
do, and every process raises an error that names the setting, the processes and their
values.

The value of a setting is text, or a `Listed` of many items, such as the words of a
vocabulary, of which only the first that differs is exchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from estimax.core.errors import ClusterError
from estimax.parallel.processes import Processes

PROGRAM = "program of "  # what the names of programs begin with
_MOST_SHOWN = 3  # settings in a message, and hints
_MOST_CHARACTERS = 200  # of a value


class Sliceable(Protocol):
    """A list, a text, `Strings` or an array."""

    def __len__(self) -> int:
        """Return the number of items."""

    def __getitem__(self, index: Any, /) -> Any:
        """Return an item, or the items of a slice."""


@dataclass(frozen=True)
class Listed:
    """The value of a setting that has many items.

    Attributes:
      items: The items, compared by their text.
      digest: Stands for all of them.
    """

    items: Sliceable
    digest: str

    @classmethod
    def of(cls, items: Sequence[Any]) -> Listed:
        """Return the value with a digest of its items."""
        return cls(items, _digest(map(_text, items)))


Settings = Mapping[str, str | Listed]
Explain = Callable[[], Mapping[str, str]]


def require_equal(
    peers: Processes,
    topic: str,
    settings: Settings,
    explain: Explain = dict[str, str],
) -> None:
    """Compare settings with all processes; raise in all of them if one differs.

    Args:
      peers: The processes. All call this with the same topic.
      topic: The topic of the exchange, of one thread.
      settings: The value of each setting by its name, in the order of the message.
      explain: Returns values that may differ, but explain a difference if they do.
        Called only if there is one.

    Raises:
      ClusterError: A setting differs. The message has a line for it.
    """
    digests = {name: _digest_of(value) for name, value in settings.items()}
    all_digests = peers.gather(topic, _digest(f"{n}={d}" for n, d in digests.items()))
    if len(set(all_digests)) == 1:
        return
    differing = _different(peers, topic, digests)
    # A program is hard to read: show it if nothing else tells the difference.
    named = [name for name in differing if not name.startswith(PROGRAM)] or differing
    hints = explain()
    reasons = _different(peers, topic, {n: _digest_of(v) for n, v in hints.items()})
    every = {**settings, **hints}
    names = dict.fromkeys([*reasons[:_MOST_SHOWN], *named[:_MOST_SHOWN]])
    lines = [_line(peers, topic, name, every.get(name)) for name in names]
    raise ClusterError(
        "the processes of the cluster were started with different settings, and cannot "
        "train one model:\n" + "\n".join(f"  {line}" for line in lines) + "\n"
        "Start all of them with the same program, settings, files and versions."
    )


def _different(peers: Processes, topic: str, digests: Mapping[str, str]) -> list[str]:
    """Return the names whose digests differ, in the order of the chief's settings."""
    found = peers.gather(topic, dict(digests))
    names = dict.fromkeys(name for one in found for name in one)
    return [name for name in names if len({one.get(name) for one in found}) > 1]


def _line(peers: Processes, topic: str, name: str, value: str | Listed | None) -> str:
    """Return the values of all processes for one setting, as a line."""
    text = "not there" if value is None else value
    place = ""
    if all(peers.gather(topic, isinstance(text, Listed))):
        assert isinstance(text, Listed)
        at = _first_difference(peers, topic, text.items)
        place, count = f", item {at + 1}", len(text.items)
        text = _text(text.items[at]) if at < count else f"none: there are {count}"
    if isinstance(text, Listed):
        text = f"{len(text.items)} items"
    shown = _window(peers, topic, text.strip())
    values: dict[str, list[str]] = {}
    for index, one in enumerate(peers.gather(topic, shown)):
        values.setdefault(one, []).append(peers.name_of(index))
    told = "; ".join(f"{one} in {', '.join(who)}" for one, who in values.items())
    return f"{name}{place}: {told}"


def _window(peers: Processes, topic: str, text: str) -> str:
    """Return a text; if it is long, the part where the texts of processes differ."""
    text = text.encode(errors="replace").decode().replace("\n", " ")
    if max(peers.gather(topic, len(text))) <= _MOST_CHARACTERS:
        return text
    start = max(_first_difference(peers, topic, text) - _MOST_CHARACTERS // 2, 0)
    end = start + _MOST_CHARACTERS
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"


def _first_difference(peers: Processes, topic: str, items: Sliceable) -> int:
    """Return the first place at which the items of the processes differ."""
    low, high = 0, min(peers.gather(topic, len(items)))
    # Items before `low` are equal. The first difference is at `high` or before.
    while low < high:
        middle = (low + high + 1) // 2
        mine = _digest(map(_text, items[low:middle]))
        if len(set(peers.gather(topic, mine))) == 1:
            low = middle
        else:
            high = middle - 1
    return low


def _digest_of(value: str | Listed) -> str:
    return value.digest if isinstance(value, Listed) else _digest([value])


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogateescape")
        digest.update(len(data).to_bytes(8, "little"))  # so that items do not run on
        digest.update(data)
    return digest.hexdigest()


def _text(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode(errors="surrogateescape")
    return str(item)
