"""Messages of TensorBoard plugins: precision-recall curves and hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DRAWN_THRESHOLDS = 101  # enough to draw a curve; AUC counts at 200


def encoded_pr_curve(tag: str, counts: NDArray[Any]) -> list[Any]:
    """Return the message of a precision-recall curve.

    Args:
      tag: The tag in TensorBoard.
      counts: Weights [4, T] of true positives, false positives, true negatives and
        false negatives, at T ascending and evenly spaced thresholds from 0 to 1.
    """
    from tensorboardX.proto.plugin_pr_curve_pb2 import PrCurvePluginData
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    if counts.ndim != 2 or counts.shape[0] != 4:
        raise ValueError(
            f"pr_curve {tag!r}: expected counts [4, T], got {counts.shape}."
        )
    kept = counts.astype(np.float64)
    if kept.shape[1] > _DRAWN_THRESHOLDS:
        last = kept.shape[1] - 1
        places = np.linspace(0, last, _DRAWN_THRESHOLDS).round().astype(int)
        kept = kept[:, places]
    tp, fp, _, fn = kept
    # A threshold that no score passes has no precision; 1 continues the curve.
    precision = np.divide(tp, tp + fp, out=np.ones_like(tp), where=tp + fp > 0)
    recall = np.divide(tp, tp + fn, out=np.zeros_like(tp), where=tp + fn > 0)
    rows = np.stack([*kept, precision, recall])
    tensor = TensorProto(
        dtype="DT_FLOAT",
        float_val=rows.reshape(-1).tolist(),
        tensor_shape=TensorShapeProto(
            dim=[TensorShapeProto.Dim(size=size) for size in rows.shape]
        ),
    )
    content = PrCurvePluginData(version=0, num_thresholds=rows.shape[1])
    metadata = _metadata("pr_curves", content)
    return [Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]


def encoded_hparams(values: Mapping[str, Any]) -> list[Any]:
    """Return the messages that describe a run by its hyper-parameters.

    Numbers, booleans and text keep their type; other values are written as text. The
    plugin finds the metrics of the run by itself.
    """
    from tensorboardX.proto.plugin_hparams_pb2 import (
        HParamsPluginData,
        SessionStartInfo,
    )
    from tensorboardX.proto.summary_pb2 import Summary

    start = SessionStartInfo()
    for name, value in values.items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            start.hparams[name].number_value = value
        elif value is not None:
            start.hparams[name].string_value = str(value)
    content = HParamsPluginData(version=0, session_start_info=start)
    metadata = _metadata("hparams", content)
    return [Summary.Value(tag="_hparams_/session_start_info", metadata=metadata)]


def _metadata(plugin: str, content: Any) -> Any:
    from tensorboardX.proto.summary_pb2 import SummaryMetadata

    data = SummaryMetadata.PluginData(
        plugin_name=plugin, content=content.SerializeToString()
    )
    return SummaryMetadata(plugin_data=data)
