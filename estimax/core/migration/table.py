"""The table of TensorFlow's names without a counterpart, and what to write for each.

    advice("reduce_sum")     # "write jnp.sum(x, axis, …) …"
    advice("math.exp")       # the advice for "exp": other modules repeat the top

`arrays.py`, `models.py` and `programs.py` hold the rows: names, a colon, and what to
write; lines that start with a space continue a row. A text that starts with "= " is
code, and is shown as "write CODE". `module.*` is the row of a module and of all names
in it that have no row of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from estimax.core.migration import arrays, models, programs

# Modules whose names are also elsewhere: `tf.math.exp` is `tf.exp`. The first column is
# replaced by the second, and the result is looked up again.
_SAME: tuple[tuple[str, str], ...] = (
    ("compat.v1.", ""),
    ("compat.v2.", ""),
    ("python.keras.", "keras."),
    ("python.ops.init_ops.", "initializers."),
    ("python.ops.init_ops_v2.", "initializers."),
    ("python.ops.lookup_ops.", "lookup."),
    ("python.ops.rnn_cell.", "nn.rnn_cell."),
    ("python.ops.rnn_cell_impl.", "nn.rnn_cell."),
    ("python.ops.rnn.", "nn."),
    ("python.ops.nn_ops.", "nn."),
    ("python.ops.array_ops.", ""),
    ("python.ops.math_ops.", ""),
    ("python.ops.variable_scope.", ""),
    ("python.feature_column.feature_column.", "feature_column."),
    ("python.feature_column.feature_column_v2.", "feature_column."),
    ("contrib.cudnn_rnn.", "cudnn_rnn."),
    ("contrib.data.", "data.experimental."),
    ("contrib.distribute.", "distribute."),
    ("contrib.eager.", ""),
    ("contrib.estimator.", "estimator."),
    ("contrib.framework.", ""),
    ("contrib.keras.", "keras."),
    ("contrib.layers.", "layers."),
    ("contrib.", ""),
    ("estimator.tpu.", "tpu."),
    ("estimator.experimental.", "estimator."),
    ("estimator.export.", "estimator."),
    ("estimator.", ""),
    ("tpu.experimental.", "tpu."),
    ("tpu.", ""),
    ("keras.layers.experimental.", "keras.layers."),
    ("keras.layers.", "layers."),
    ("keras.losses.", "losses."),
    ("keras.metrics.", "metrics."),
    ("metrics.streaming_", "metrics."),
    ("keras.optimizers.legacy.", "optimizers."),
    ("keras.optimizers.experimental.", "optimizers."),
    ("keras.optimizers.", "optimizers."),
    ("optimizers.legacy.", "optimizers."),
    ("optimizers.experimental.", "optimizers."),
    ("keras.initializers.", "initializers."),
    ("keras.activations.", "nn."),
    ("keras.backend.", ""),
    ("keras.utils.", ""),
    ("activations.", "nn."),
    ("rnn.", "nn.rnn_cell."),
    ("random.experimental.", "random."),
    ("random.stateless_", "stateless_"),
    ("random.", "random_"),
    ("sparse.", "sparse_"),
    ("strings.", "string_"),
    ("io.gfile.", "gfile."),
    ("python_io.", "io."),
    ("optimizer_v2.", "optimizers."),
    ("lookup.experimental.", "lookup."),
    ("config.experimental.", "config."),
    ("debugging.", ""),
    ("dtypes.", ""),
    ("image.", "io."),
    ("io.", ""),
    ("linalg.", ""),
    ("manip.", ""),
    ("math.special.", ""),
    ("math.", ""),
    ("nn.experimental.", "nn."),
    ("nn.", ""),
    ("saved_model.", ""),
    ("sets.", ""),
    ("signal.", ""),
    ("spectral.", ""),
    ("stateless.", ""),
    ("text.", ""),
    ("training.", "train."),
    ("train.", ""),
    ("libsvm.", ""),
    ("initializers.", ""),
    ("quantization.", ""),
    ("random_", ""),
    ("sparse_", ""),
    ("string_", ""),
)


def advice(name: str) -> str | None:
    """Return what to write for a name, or None if the table does not have it.

    Args:
      name: The name as a program writes it, without `tf.`.

    >>> advice("compat.v1.math.reduce_prod")[:34]
    'write jnp.prod(x, axis, keepdims=…'
    >>> advice("image.sobel_edges")[:30]
    'read and change images in ex.i'
    """
    return exact_advice(name) or _advice_of_parent(name)


def exact_advice(name: str) -> str | None:
    """Return the advice of the row of this very name, in one of its modules."""
    rows = _rows()
    return next((rows[other] for other in _spellings(name) if other in rows), None)


def _advice_of_parent(name: str) -> str | None:
    """Return the advice of the module or class of a name, or of those around it."""
    rows = _rows()
    spellings = [other.split(".") for other in _spellings(name)]
    # The innermost module of each spelling first: `contrib.metrics.x` is a metric
    # rather than some name of `contrib`.
    for dropped in range(1, max(len(parts) for parts in spellings)):
        for parts in spellings:
            module = ".".join(parts[:-dropped])
            if f"{module}.*" in rows or module in rows:
                return rows.get(f"{module}.*") or rows[module]
    return None


def is_module(name: str) -> bool:
    """Return whether a name is a module of TensorFlow that the table knows.

    >>> is_module("contrib.rnn"), is_module("nn.relu")
    (True, False)
    """
    rows = [*_rows(), *(old for old, _ in _SAME)]
    inside = tuple(f"{other}." for other in _spellings(name))
    return any(row.startswith(inside) for row in rows)


def _spellings(name: str) -> Iterator[str]:
    """Yield the name and the other modules that it is known in, nearest first."""
    yield name
    for old, new in _SAME:
        if name.startswith(old) and len(name) > len(old):
            yield from _spellings(new + name.removeprefix(old))
            return


@cache
def _rows() -> dict[str, str]:
    """Return the advice by name."""
    found: dict[str, str] = {}
    for text, module in (
        (arrays.SAME_IN_NUMPY, "jnp"),
        (arrays.SAME_IN_JAX_NN, "jax.nn"),
        (arrays.SAME_IN_SPECIAL, "jax.scipy.special"),
        (arrays.SAME_IN_LINALG, "jnp.linalg"),
        (arrays.DTYPES, "jnp"),
    ):
        for name in text.split():
            found[name] = _sentence(f"= {_same_name(module, name)}")
    for text in (arrays.ADVICE, models.ADVICE, programs.ADVICE):
        for row in re.split(r"\n(?=\S)", text.strip()):
            names, written = re.split(r":\s+", row, maxsplit=1)
            sentence = _sentence(" ".join(written.split()))
            found |= dict.fromkeys(names.split(), sentence)
    modules = {name.removesuffix(".*"): text for name, text in found.items()}
    return modules | found


def _same_name(module: str, name: str) -> str:
    if "fft" in name:
        return f"jnp.fft.{name}"
    return f"{module}.{'bool_' if name == 'bool' else name}"


def _sentence(written: str) -> str:
    """Return a row as part of a sentence."""
    return f"write {written[2:]}" if written.startswith("= ") else written


def meanings(text: str) -> list[str]:
    """Return what the short names in an advice stand for.

    >>> meanings("write jnp.mean(nn.Dense(8)(x))")
    ['jnp is jax.numpy; on rows in Dataset.map, write np', 'nn is flax.linen']
    """
    found = []
    if "jnp." in text:
        found.append("jnp is jax.numpy; on rows in Dataset.map, write np")
    if re.search(r"(?<![\w.])nn\.", text):
        found.append("nn is flax.linen")
    return found
