"""Which of its three lives a `model_fn` is being built for."""

from typing import Final, Literal

Mode = Literal["train", "eval", "infer"]


class ModeKeys:
    """The modes a `model_fn` is called with, spelled as tf.estimator spells them.

    >>> ModeKeys.PREDICT
    'infer'
    """

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"
