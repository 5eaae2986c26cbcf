"""What programs of TensorFlow 1 use: its losses, metrics, optimizers and columns.

    ex.losses.sigmoid_cross_entropy(labels, logits)    # estimax.v1.losses
    ex.metrics.v1.accuracy(labels, predictions)        # estimax.v1.metrics

Each part has its public name: `ex.losses`, `ex.crf`, `ex.lookup`, `ex.inputs` and
`ex.experimental`, and `v1` in `ex.metrics`, `ex.optimizers` and `ex.feature_columns`.
New programs need none of them. The parts have layers of their own.
"""
