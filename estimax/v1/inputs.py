"""The names of `tf.estimator.inputs`; the other sources of data are in `ex.input`."""

from estimax.input import numpy_input_fn, pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]
