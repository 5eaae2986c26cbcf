"""Options: tf.data's settings, so that programs that set them keep working.

    options = Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    data = data.with_options(options)

Two of them have an effect: `experimental_distribute.auto_shard_policy` (see
`Dataset.auto_shard`) and `threading.private_threadpool_size` (the number of threads
that AUTOTUNE stands for). Order is always deterministic, so all other
options change nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from estimax.input.streams.stream import Context, DatasetNode, Stream, VerbNode


class AutoShardPolicy(enum.Enum):
    """How `Dataset.auto_shard` divides the input between processes.

    Set it as `Options.experimental_distribute.auto_shard_policy`.

    Attributes:
      OFF: Do not divide. Every process reads all the data.
      AUTO: Divide by file if there are at least as many files as processes, otherwise
        by record. The default.
      FILE: Divide by file; raise `InputError` if there are fewer files than processes.
      DATA: Divide by record: every process opens all files and keeps its part.

    >>> options = Options()
    >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    >>> from estimax.input import Dataset
    >>> data = Dataset.range(4).with_options(options).auto_shard(2, 0)
    >>> [int(x) for x in data]
    [0, 1, 2, 3]
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2


class OptionGroup:
    """A group of options. Any name can be set; names that were not set are None.

    >>> group = OptionGroup()
    >>> group.map_parallelization = True
    >>> group.map_parallelization, group.noop_elimination
    (True, None)
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@dataclass
class DistributeOptions:
    """Options for training with several processes.

    Attributes:
      auto_shard_policy: How `Dataset.auto_shard` divides the input.
    """

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO


@dataclass
class Options:
    """Settings of a dataset, as in tf.data. They never change values or their order.

    Use it to choose how input is divided between processes, or how many threads
    AUTOTUNE stands for. The other options are accepted so that programs written for
    tf.data run unchanged; they have no effect. Attach options with
    `Dataset.with_options`.

    Args:
      deterministic: No effect: the order is always deterministic.
      experimental_slack: No effect.
      threading: `threading.private_threadpool_size` is the number of threads that
        `num_parallel_calls=AUTOTUNE` stands for. By default it is the number of
        processor cores, at most 8.
      autotune: No effect.
      experimental_distribute: `experimental_distribute.auto_shard_policy` is the
        `AutoShardPolicy` of `Dataset.auto_shard`.
      experimental_optimization: No effect.

    >>> options = Options()
    >>> options.threading.private_threadpool_size = 4
    >>> from estimax.input import Dataset
    >>> data = Dataset.range(3).with_options(options)
    >>> data.options().threading.private_threadpool_size
    4
    """

    deterministic: bool | None = None
    experimental_slack: bool | None = None
    threading: OptionGroup = field(default_factory=OptionGroup)
    autotune: OptionGroup = field(default_factory=OptionGroup)
    experimental_distribute: DistributeOptions = field(
        default_factory=DistributeOptions
    )
    experimental_optimization: OptionGroup = field(default_factory=OptionGroup)


@dataclass(frozen=True, eq=False)
class WithOptions(VerbNode):
    """The source with options attached; it adds no stage and no name to the chain."""

    options: Options
    name = ""

    def open(self, context: Context) -> Stream:
        return self.source.open(context)


def options_of(node: DatasetNode | None) -> Options | None:
    """Return the options that were attached last, or None."""
    while node is not None:
        if isinstance(node, WithOptions):
            return node.options
        node = node.source
    return None
