"""Embeddings for TensorBoard's projector: vectors and words as TSV files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# TensorBoard draws fewer than this with ease, and a table takes 30 ms to write.
MOST_ROWS = 5_000
_FOLDER = "embeddings"


class Embedding(NamedTuple):
    """A table of vectors to show in the projector.

    Attributes:
      name: The name of the table, as shown in TensorBoard.
      vectors: The vectors, [V, D].
      words: What each row stands for, V words; shown beside its point.

    Example:
      >>> Embedding("city", [[0.1, 0.2]], ["Oslo"]).words
      ['Oslo']
    """

    name: str
    vectors: ArrayLike
    words: Sequence[str]


def write_embeddings(
    logdir: str | os.PathLike[str], embeddings: Sequence[Embedding]
) -> None:
    """Write tables of vectors for TensorBoard's projector.

    `train` does this at its end for embeddings of columns with a vocabulary. Call it
    for vectors of your own. The tables that the folder has are replaced. Of each table,
    the first 5,000 rows are written.

    Args:
      logdir: The folder that TensorBoard reads, such as the model directory.
      embeddings: The tables.

    Raises:
      ValueError: The vectors are not [V, D], or there are not V words.

    Example:
      >>> import tempfile
      >>> folder = tempfile.mkdtemp()
      >>> cities = Embedding("city", np.eye(2), ["Oslo", "Rome"])
      >>> write_embeddings(folder, [cities])
      >>> (Path(folder) / "embeddings" / "city.words.tsv").read_text()
      'Oslo\\nRome\\n'
    """
    entries = []
    for name, given, words in embeddings:
        vectors = np.asarray(given, np.float32)
        if vectors.ndim != 2 or len(words) != len(vectors):
            raise ValueError(
                f"write_embeddings: {name!r} needs vectors [V, D] and V words, got "
                f"{vectors.shape} and {len(words)} words."
            )
        stem = re.sub(r"[^-\w.]", "_", name)
        path = Path(logdir) / _FOLDER
        path.mkdir(parents=True, exist_ok=True)
        rows = ("\t".join(f"{x:.6g}" for x in row) for row in vectors[:MOST_ROWS])
        _write_lines(path / f"{stem}.tsv", rows)
        # A file with one column has no heading; tabs and line ends would add cells.
        shown = (" ".join(str(word).split()) or "(empty)" for word in words[:MOST_ROWS])
        _write_lines(path / f"{stem}.words.tsv", shown)
        entries.append(
            "embeddings {\n"
            f'  tensor_name: "{_escape(name)}"\n'
            f'  tensor_path: "{_FOLDER}/{stem}.tsv"\n'
            f'  metadata_path: "{_FOLDER}/{stem}.words.tsv"\n'
            "}\n"
        )
    if entries:
        config = Path(logdir) / "projector_config.pbtxt"
        config.write_text("".join(entries), encoding="utf-8")


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
