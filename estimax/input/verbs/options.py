"""Options: tf.data's switches, so that programs that set them keep working.

    options = Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    data = data.with_options(options)

Of these only `auto_shard_policy` (see `auto_shard`) and
`threading.private_threadpool_size` (the threads that AUTOTUNE means) change anything:
order is always deterministic, and there is nothing to optimise by switches.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from estimax.input.streams.stream import Context, Node, Stream


class AutoShardPolicy(enum.Enum):
    """How `auto_shard` divides the input between processes.

    >>> AutoShardPolicy.AUTO.name
    'AUTO'
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2


class Switches:
    """A group of options; any name can be set, as TensorFlow has many.

    >>> switches = Switches()
    >>> switches.map_parallelization = True
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None  # as TensorFlow's are before they are set


@dataclass
class Distribute:
    """Options about many processes."""

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO


@dataclass
class Options:
    """Switches that change speed and division of work, never values.

    >>> Options().experimental_distribute.auto_shard_policy.name
    'AUTO'
    """

    deterministic: bool | None = None
    experimental_slack: bool | None = None
    threading: Switches = field(default_factory=Switches)
    autotune: Switches = field(default_factory=Switches)
    experimental_distribute: Distribute = field(default_factory=Distribute)
    experimental_optimization: Switches = field(default_factory=Switches)


@dataclass(frozen=True, eq=False)
class WithOptions:
    """The source, with options attached; no stage of its own."""

    source: Node
    options: Options
    name = ""

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> Stream:
        """The source itself."""
        return self.source.open(context)


def options_of(node: Node | None) -> Options | None:
    """The options nearest to the end of a chain."""
    while node is not None:
        if isinstance(node, WithOptions):
            return node.options
        node = node.source
    return None
