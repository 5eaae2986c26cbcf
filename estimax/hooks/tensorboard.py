"""A hook that writes what a training has once: its graph, settings and embeddings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from estimax.hooks import summary
from estimax.hooks.hook import NEVER, Hook, RunContext, described
from estimax.hooks.summary.projector import MOST_ROWS


class BoardHook(Hook):
    """Write the model's graph, its hyper-parameters and its embeddings.

    `train` adds this hook by itself if it writes summaries. The graph and the
    hyper-parameters are written when training starts at step 0, the embeddings at the
    end of every call. When training resumes, the hook marks the step, so that events
    which a killed run wrote behind its last checkpoint do not appear twice.

    Args:
      output_dir: Folder of the event files.
      graph: Function that returns a serialized GraphDef; None for no graph.
      hparams: Hyper-parameters by name; see `ex.summary.SummaryWriter.hparams`.
      words: The words of the rows of embedding tables, by the name of the table; a
        sequence of str, bytes or int each. The first 5,000 rows are written, for
        TensorBoard's projector.

    Example:
      >>> import tempfile
      >>> folder = tempfile.mkdtemp()
      >>> BoardHook(folder, hparams={"units": 64}).begin(RunContext(step=0))
      >>> len(os.listdir(folder))
      1
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        *,
        graph: Callable[[], bytes] | None = None,
        hparams: Mapping[str, Any] | None = None,
        words: Mapping[str, Any] | None = None,
    ) -> None:
        self._output_dir = output_dir
        self._graph = graph
        self._hparams = hparams or {}
        self._words = words or {}

    def __repr__(self) -> str:
        return described(self, str(self._output_dir))

    def begin(self, context: RunContext) -> None:
        with summary.SummaryWriter(self._output_dir) as writer:
            if context.step:
                writer.restart(context.step + 1)
                return
            if self._graph is not None:
                writer.graph(self._graph())
            if self._hparams:
                writer.hparams(self._hparams)

    def end(self, context: RunContext) -> None:
        if context.state is None:
            return
        found = []
        for name, words in sorted(self._words.items()):
            table = context.state.tables.get(name)
            if table is None or table.ndim != 2 or table.shape[1] == 1:
                continue
            if table.is_fully_replicated:
                # The copy of this process, so that no other takes part in reading it.
                table = table.addressable_data(0)
            # A table that is sharded over processes is whole in none of them.
            if table.is_fully_addressable:
                # Rows behind the words are for words that are not in the vocabulary.
                rows = min(len(words), MOST_ROWS)
                listed = [_text(word) for word in words[:rows].tolist()]
                vectors = np.asarray(table[:rows])
                found.append(summary.Embedding(name, vectors, listed))
        summary.write_embeddings(self._output_dir, found)

    def next_step(self, step: int) -> int:
        return NEVER


def _text(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
