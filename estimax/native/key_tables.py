"""Tables in which the kernels find the wanted keys of a record."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native.buffers import Scratch
from estimax.native.features import KINDS, Wanted

# Entries with longer keys have lengths of two bytes, and no head is made for them.
_LONGEST_KEY = 110

_scratch = Scratch()


@functools.lru_cache(maxsize=64)
def key_table(
    kernels: ModuleType, keys: tuple[str, ...]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct keys as bytes, where each ends, and the slots of a hash table.

    `kernels` is the module of kernels for Examples. A slot holds the number of a key,
    or -1 if it is free. The table is kept and not to be written to.
    """
    encoded = Strings.of(list(keys))
    # At most a quarter full, so that a probe seldom takes a second step.
    slots = np.full(1 << (4 * len(keys) + 1).bit_length(), -1, np.int64)
    kernels.fill_key_slots(encoded.data, encoded.offsets, slots)
    return encoded.data, encoded.offsets, slots


def heads_of(wanted: Sequence[Wanted]) -> NDArray[np.int64]:
    """Return the bytes that stand before the values of each feature, for `match_head`.

    Item f of the array is the place in it where the description of feature f begins:

        the size of the head in bytes; 0 if there is none
        the size that the values must stay below, so that lengths fit in one byte
        pairs of words (bytes, mask) for the first 8 bytes of the head, for the last 8,
        and for each further 8 between them

    The mask has a 1 in every byte that is a length. Each length grows by one with every
    byte of values, so that the bytes of a head are `bytes + size * mask`.
    """
    out = [0] * len(wanted)
    for f, one in enumerate(wanted):
        key, kind = one.key.encode(), 8 * KINDS[one.dtype] + 2
        n = len(key)
        out[f] = len(out)
        if n >= _LONGEST_KEY:
            out += [0, 0]
            continue
        head = bytes([10, n + 8, 10, n, *key, 18, 4, kind, 2, 10, 0])
        mask = bytes(i in (1, n + 5, n + 7, n + 9) for i in range(len(head)))
        out += [len(head), 128 - (n + 8)]
        last = len(head) - 8
        for at in (0, last, *range(8, last, 8)):
            for text in (head, mask):
                out.append(int.from_bytes(text[at : at + 8], "little", signed=True))
    return np.array(out, np.int64)


def work_arrays(
    kernels: ModuleType, features: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return scratch memory for `locate`: the keys seen, and the places found."""
    return (
        _scratch.take("seen", 3 * (kernels.REMEMBERED + 1)).reshape((-1, 3)),
        _scratch.take("found", 3 * features).reshape((-1, 3)),
    )
