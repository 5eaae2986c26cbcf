"""Heads turn logits into a loss, predictions and metrics. Read `head.py` first."""

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
