"""Load a SavedModel in TensorFlow and call a signature; run in TensorFlow's Python.

python saved_model_client.py SAVED_MODEL SIGNATURE INPUTS.npz OUTPUTS.npz
"""

import sys

import numpy as np
import tensorflow as tf

folder, signature, given, wanted = sys.argv[1:]
model = tf.saved_model.load(folder)
with np.load(given) as arrays:
    inputs = {name: tf.constant(arrays[name]) for name in arrays}
outputs = model.signatures[signature](**inputs)
found = {name: tensor.numpy() for name, tensor in outputs.items()}
np.savez(
    wanted,
    **{
        name: array.astype("S") if array.dtype == object else array
        for name, array in found.items()
    },
)
print(tf.__version__, sorted(model.signatures))
