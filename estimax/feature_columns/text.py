"""Text columns: the words and n-grams of free text, as ids.

title = text_column("title", hash_buckets=10_000, ngrams=[1, 2])
net = input_layer(features, [embedding_column(title, 16)])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, FixedLenFeature
from estimax.feature_columns import transforms
from estimax.feature_columns.categorical import check_hash_size
from estimax.feature_columns.column import CategoricalColumn, ParseSpec, check_key
from estimax.feature_columns.transforms.tokens import tokens_of


@dataclass(frozen=True)
class TextColumn(CategoricalColumn):
    """The ids of words and n-grams; made by `text_column`.

    Args:
      source: Splits the text, and has the id of each token.
    """

    source: transforms.Tokens

    @property
    def key(self) -> str:  # type: ignore[override]  # a field of other columns
        """The feature."""
        return self.source.key

    @property
    def name(self) -> str:
        """The key, with `_text` behind it."""
        return self.source.name

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.source.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the feature is stored in an Example: as one text."""
        return {self.key: FixedLenFeature((1,), STRING, "")}

    @property
    def id_source(self) -> transforms.Tokens:
        return self.source


def text_column(
    key: str,
    words: Sequence[str] | None = None,
    *,
    hash_buckets: int | None = None,
    ngrams: Sequence[int] = (1,),
    lowercase: bool = True,
    num_oov_buckets: int = 0,
) -> TextColumn:
    """Take the words of a text, or pairs and longer runs of words, as ids.

    Use it for titles, comments and search queries. Wrap it in `embedding_column`, which
    takes the mean of the tokens by default, or in `indicator_column`, which counts them
    (a bag of words); linear models take it as it is. The text is split into runs of
    letters, digits and _ on the host, the same in training, bundle and server. A text
    without a known token has no id: its embedding is zero.

    Args:
      key: The feature, one text in a row.
      words: The tokens with an id of their own, such as those that `text_vocabulary`
        chooses. An n-gram is written with one blank between words.
      hash_buckets: The number of ids that tokens are hashed to, in place of `words`.
      ngrams: How many words a token has: [1, 2] for words and pairs of neighbours.
      lowercase: Whether the text is lowercased first; `words` must be then.
      num_oov_buckets: Ids for tokens that are not among the words, by hash; 0 ignores
        such tokens.

    Returns:
      A categorical column with several ids in a row.

    Raises:
      FeatureError: Not exactly one of `words` and `hash_buckets` is given, a word is
        listed twice, or a length in `ngrams` is not from 1 to 5.

    Example:
      >>> from estimax import feature_columns as fc
      >>> title = fc.text_column("title", ["red", "wine", "red wine"], ngrams=[1, 2])
      >>> counts = fc.DenseFeatures([fc.indicator_column(title)])
      >>> counts.apply({}, {"title": ["Red wine, red!", "beer"]}).tolist()
      [[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """
    check_key(key, "text_column")
    what = f"text_column {key!r}"
    if (words is None) == (hash_buckets is None):
        raise FeatureError(f"{what}: give either words or hash_buckets.")
    lengths = _validate_ngrams(ngrams, what)
    source: transforms.HashBucket | transforms.Vocabulary
    if words is None:
        check_hash_size(hash_buckets, what)
        source = transforms.HashBucket(key, int(hash_buckets or 0))
        if num_oov_buckets:
            raise FeatureError(f"{what}: num_oov_buckets is for words; remove it.")
    else:
        if isinstance(words, str) or not all(isinstance(w, str) for w in words):
            raise FeatureError(f"{what}: words must be a list of texts.")
        if not words:
            raise FeatureError(f"{what}: words must not be empty.")
        listed = transforms.WordList.of(words)
        listed.check_distinct()
        source = transforms.Vocabulary(key, listed, num_oov_buckets)
    return TextColumn(transforms.Tokens(key, source, lengths, bool(lowercase)))


def text_vocabulary(
    texts: Iterable[str],
    *,
    ngrams: Sequence[int] = (1,),
    min_count: int = 5,
    max_size: int | None = None,
    lowercase: bool = True,
) -> list[str]:
    """Return the words and n-grams of the training texts, most frequent first.

    Use it to choose the `words` of a `text_column`. A run file does the same for
    `{type: text, min_count: 5}`.

    Args:
      texts: The texts of the training rows.
      ngrams: How many words a token has, as for `text_column`.
      min_count: Leave out tokens that occur less often.
      max_size: Keep at most this many tokens; None keeps all.
      lowercase: Whether the texts are lowercased first.

    Returns:
      The tokens; those that occur equally often are in alphabetical order.

    Raises:
      FeatureError: No token occurs often enough, or an argument is wrong.

    Example:
      >>> from estimax import feature_columns as fc
      >>> fc.text_vocabulary(["Red wine", "red beer"], min_count=2)
      ['red']
    """
    lengths = _validate_ngrams(ngrams, "text_vocabulary")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokens_of(text, lengths, lowercase=lowercase))
    enough = [(token, n) for token, n in counts.items() if n >= min_count]
    enough.sort(key=lambda pair: (-pair[1], pair[0]))
    if not enough:
        raise FeatureError(
            f"text_vocabulary: no token occurs {min_count} times; lower min_count."
        )
    return [token for token, _ in enough[:max_size]]


def _validate_ngrams(given: Any, what: str) -> tuple[int, ...]:
    is_list = isinstance(given, list | tuple)
    if not is_list or not all(type(n) is int for n in given):
        raise FeatureError(
            f"{what}: ngrams must be a list of lengths such as [1, 2], got {given!r}."
        )
    return tuple(given)
