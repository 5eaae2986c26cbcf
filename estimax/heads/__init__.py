"""Heads turn logits into a loss, predictions, metrics and serving signatures.

    head = ex.heads.MultiClassHead(3)
    head.create_estimator_spec(features, mode, logits, labels, optimizer="Adam")

Read `head.py` first: the interface `Head`, and `BaseHead`, from which heads inherit.
"""

from estimax.heads import losses
from estimax.heads.binary_class import BinaryClassHead
from estimax.heads.head import BaseHead, Head, make_spec
from estimax.heads.multi_class import MultiClassHead
from estimax.heads.multi_head import MultiHead
from estimax.heads.multi_label import MultiLabelHead
from estimax.heads.regression import (
    LogisticRegressionHead,
    PoissonRegressionHead,
    RegressionHead,
)
from estimax.heads.sequential import SequentialHeadWrapper

__all__ = [
    "BaseHead",
    "BinaryClassHead",
    "Head",
    "LogisticRegressionHead",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "PoissonRegressionHead",
    "RegressionHead",
    "SequentialHeadWrapper",
    "losses",
    "make_spec",
]
