"""Words to indices and back, for a hand-written `model_fn`.

    ids = ex.lookup.string_to_index(features["words"], "words.txt", num_oov_buckets=1)
    tags = ex.lookup.index_to_string(best_ids, ["O", "PER", "LOC"])

They take the place of TensorFlow's lookup tables. There is nothing to initialize: the
words are read when the model is traced, and an exported bundle contains them.
"""

from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.v1.lookup.words import index_to_string, string_to_index

__all__ = ["index_to_string", "string_to_index"]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.lookup", name, __all__)
