"""A layer's variables, each under its column's name: `<column>/embedding_weights`."""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn

from estimax import variables
from estimax.feature_columns.column import variable_scope

Initializer = Callable[..., jax.Array]  # (key, shape, dtype) -> array


def table_rows(
    layer: nn.Module,
    column: str,
    name: str,
    shape: tuple[int, int],
    initializer: Initializer,
    ids: jax.Array,
    *,
    trainable: bool,
) -> jax.Array:
    """Look up ids [B, L] in a column's table; returns rows [B, L, D]."""

    def build(module: nn.Module) -> jax.Array:
        def start(key: jax.Array, size: tuple[int, int]) -> jax.Array:
            return initializer(key, size, jax.numpy.float32)

        return variables.lookup(module, name, shape, start, ids, trainable=trainable)

    found: jax.Array = _in_scope(layer, column, build)
    return found


def weights(
    layer: nn.Module, column: str, shape: tuple[int, int], *, trainable: bool
) -> jax.Array:
    """A column's ordinary weights, zero at first."""
    found: jax.Array = _in_scope(
        layer, column, lambda m: m.param("weights", nn.initializers.zeros, shape)
    )
    return found if trainable else jax.lax.stop_gradient(found)


def _in_scope(layer: nn.Module, column: str, build: Callable[[nn.Module], Any]) -> Any:
    # Not a submodule of that name: Flax refuses names that its modules have as
    # attributes, and features are called "name" or "path" often enough. Reused, since
    # shared tables and an embedding in a linear model come here twice.
    assert layer.scope is not None, "columns compute inside a bound layer only"
    scope: Any = layer.scope.push(variable_scope(column), reuse=True)
    return _Variables(build, parent=scope)()


class _Variables(nn.Module):
    """Holds the variables that a function declares."""

    build: Callable[[nn.Module], Any]

    @nn.compact
    def __call__(self) -> Any:
        return self.build(self)
