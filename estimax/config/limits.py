"""How large a run may become: limits on files, includes, aliases and references.

    budget = Budget()
    budget.take(nodes=10)         # None: within the limits
    budget.take(nodes=10**9)      # what was exceeded, in words

A few lines of YAML can describe more values than fit in memory: ten aliases of ten
aliases, or texts that refer to each other twice. Everything that expands takes from a
budget and is refused when the budget is used up. The limits are far above what a run
needs; longer vocabularies belong in a file of their own (`file:` or `from_data:`).
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BYTES = 8_000_000  # of all files that one run reads
MAX_INCLUDES = 100  # entries of `include`, in all files
MAX_NODES = 250_000  # values, with aliases and references expanded
MAX_CHARACTERS = 16_000_000  # of text, with aliases and references expanded
MAX_DEPTH = 50  # mappings and lists inside each other
MAX_REFERENCES = 20  # `${vars.a}` to `${vars.b}` to ...
MAX_KEY = 200  # characters of a key
MAX_PROBLEMS = 100  # reported for one run


@dataclass
class Budget:
    """What a run may still use of the limits above.

    >>> Budget().take(nodes=250_001)
    'more than 250,000 values'
    """

    nodes: int = MAX_NODES
    characters: int = MAX_CHARACTERS

    def take(self, *, nodes: int = 0, characters: int = 0) -> str | None:
        """Use some of the budget; return the limit that this exceeds, if any.

        What exceeds a limit is not used up, so that a smaller amount may still fit.
        """
        if nodes > self.nodes:
            return f"more than {MAX_NODES:,} values"
        if characters > self.characters:
            return f"more than {MAX_CHARACTERS:,} characters of text"
        self.nodes -= nodes
        self.characters -= characters
        return None
