"""Names for groups of layers, inline: what `variable_scope` was.

logits = scoped("tower", lambda x: nn.Dense(1, name="out")(x))(net)   # tower/out/…
"""

from collections.abc import Callable
from typing import Any

from flax import linen as nn


class _Scope(nn.Module):
    body: Callable[..., Any]

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(*args, **kwargs)


def scoped(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that layers it makes are named under `name`.

    To be used inside a `model_fn` or another scope.
    """
    scope: Callable[..., Any] = _Scope(body, name=name)
    return scope
