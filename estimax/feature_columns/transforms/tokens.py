"""The source of ids of free text: words and n-grams, hashed or from a vocabulary.

    Tokens("title", HashBucket("title", 1000), ngrams=(1, 2))

A text is split where the input thread runs, so that a server takes the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.categorical import HashBucket, Vocabulary
from estimax.feature_columns.transforms.texts import texts_of
from estimax.feature_columns.transforms.transform import (
    BundleFormat,
    IdSource,
    OutOfRange,
    Record,
    column_of,
)

# Letters, digits and _; an apostrophe within a word belongs to it: don't.
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
MOST_WORDS = 5  # of an n-gram


def tokens_of(text: str, ngrams: tuple[int, ...], *, lowercase: bool) -> list[str]:
    """Return the words and n-grams of a text, by length and then in their order.

    >>> tokens_of("Red wine, dry!", (1, 2), lowercase=True)
    ['red', 'wine', 'dry', 'red wine', 'wine dry']
    """
    words = _WORD.findall(text.lower() if lowercase else text)
    found = []
    for n in ngrams:
        found += [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
    return found


@dataclass(frozen=True)
class Tokens(IdSource):
    """The ids of the words and n-grams of a text; the source of `text_column`.

    Args:
      key: The feature, one text in a row.
      words: Which id a word or n-gram has: a `HashBucket` or `Vocabulary`.
      ngrams: How many words a token has: 1 for words, 2 for pairs of neighbours.
      lowercase: Whether the text is lowercased first.

    Example:
      >>> source = Tokens("title", HashBucket("title", 1000))
      >>> source.make_ids({"title": Strings.of(["red wine", ""])}, "error").ids.shape
      (2, 2)
    """

    kind = "tokens"
    is_integer = False

    key: str
    words: HashBucket | Vocabulary
    ngrams: tuple[int, ...] = (1,)
    lowercase: bool = True

    def __post_init__(self) -> None:
        lengths = self.ngrams
        if not lengths or any(not 1 <= n <= MOST_WORDS for n in lengths):
            raise FeatureError(
                f"feature {self.key!r}: ngrams must be lengths from 1 to {MOST_WORDS}, "
                f"such as [1, 2]; got {list(lengths)}."
            )
        if len(set(lengths)) < len(lengths):
            raise FeatureError(
                f"feature {self.key!r}: a length of ngrams is listed twice, "
                f"{list(lengths)}."
            )
        if not isinstance(self.words, HashBucket | Vocabulary) or self.words.is_integer:
            raise FeatureError(
                f"feature {self.key!r}: words must be a HashBucket or Vocabulary of "
                f"text, got {self.words!r}."
            )

    @property
    def name(self) -> str:
        return f"{self.key}_text"

    @property
    def num_buckets(self) -> int:
        return self.words.num_buckets

    @property
    def stays_in_range(self) -> bool:
        return self.words.stays_in_range

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        return self.words.entries({self.words.key: self._split(raw)})

    def make_ids(self, raw: Mapping[str, Any], out_of_range: OutOfRange) -> Ids:
        tokens = {self.words.key: self._split(raw)}
        return self.words.make_ids(tokens, out_of_range)

    def to_json(self, bundle: BundleFormat) -> Record:
        inner = bundle.write(self.words)
        return {**vars(self), "words": inner, "ngrams": list(self.ngrams)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Tokens:
        inner, lengths = bundle.read(fields["words"]), tuple(fields["ngrams"])
        return cls(**{**fields, "words": inner, "ngrams": lengths})

    def _split(self, raw: Mapping[str, Any]) -> Sparse:
        texts = texts_of(self.key, column_of(raw, self.key))
        if texts.size != len(texts):
            raise FeatureError(
                f"feature {self.key!r}: expected one text in a row, got shape "
                f"{texts.shape}."
            )
        known: dict[bytes, list[str]] = {}
        words: list[str] = []
        ends = [0]
        for text in texts.tolist():
            found = known.get(text)
            if found is None:
                decoded = text.decode(errors="replace")
                found = tokens_of(decoded, self.ngrams, lowercase=self.lowercase)
                known[text] = found
            words += found
            ends.append(len(words))
        return Sparse.of_lists(Strings.of(words), np.array(ends, np.int64))
