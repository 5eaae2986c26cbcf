"""A `model_fn` as one Flax module, so that layers are written inline as in TF 1."""

from collections.abc import Callable
from typing import Any

from flax import linen as nn

from estimax.core.spec import EstimatorSpec


class ModelModule(nn.Module):
    """Calls a function in a compact scope: layers made inside become variables."""

    function: Callable[[Any, Any], EstimatorSpec]

    @nn.compact
    def __call__(self, features: Any, labels: Any) -> EstimatorSpec:
        """Call the function on features and labels."""
        return self.function(features, labels)
