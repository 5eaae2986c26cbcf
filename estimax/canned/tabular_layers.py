"""The layers of tabular networks: one for each input, and shared by members."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn


class SmallLayers(nn.Module):
    """A dense layer of its own for each of F inputs: [B, F, N] to [B, F * units]."""

    units: int

    @nn.compact
    def __call__(self, codes: jax.Array) -> jax.Array:
        """Map the code of each input."""
        _, inputs, size = codes.shape
        start = nn.initializers.variance_scaling(
            1.0, "fan_in", "uniform", batch_axis=(0,)
        )
        kernel = self.param("kernel", start, (inputs, size, self.units))
        bias = self.param("bias", nn.initializers.zeros, (inputs, self.units))
        net = jnp.einsum("bfn,fnd->bfd", codes, kernel) + bias
        return nn.relu(net).reshape(codes.shape[0], inputs * self.units)


class LinearPath(nn.Module):
    """The logits of a linear model, which starts at 0: [B, N] to [B, units]."""

    units: int

    @nn.compact
    def __call__(self, net: jax.Array) -> jax.Array:
        """Compute the logits."""
        zeros = nn.initializers.zeros
        kernel = self.param("kernel", zeros, (net.shape[-1], self.units))
        bias = self.param("bias", zeros, (self.units,))
        logits: jax.Array = net @ kernel + bias
        return logits


class MemberScale(nn.Module):
    """Scale the input for each member, [B, D] to [B, M, D]; by 1 or -1 at first."""

    members: int

    @nn.compact
    def __call__(self, net: jax.Array) -> jax.Array:
        """Scale the input of each member."""
        shape = (self.members, net.shape[-1])
        scale = self.param("scale", jax.random.rademacher, shape, jnp.float32)
        return net[:, None] * scale


class MemberDense(nn.Module):
    """A dense layer whose weights all members share, each with a bias of its own."""

    units: int

    @nn.compact
    def __call__(self, net: jax.Array) -> jax.Array:
        """Map [B, M, D] to [B, M, units]."""
        _, members, size = net.shape
        kernel = self.param("kernel", nn.initializers.he_uniform(), (size, self.units))
        bias = self.param("bias", _small_uniform(size), (members, self.units))
        mapped: jax.Array = net @ kernel + bias
        return mapped


class MemberLogits(nn.Module):
    """The logits of each member, by weights of its own: [B, M, D] to [B, M, units]."""

    units: int

    @nn.compact
    def __call__(self, net: jax.Array) -> jax.Array:
        """Compute the logits of all members."""
        _, members, size = net.shape
        shape = (members, size, self.units)
        # Small, so that training begins with the linear part.
        kernel = self.param("kernel", _small_uniform(100 * size), shape)
        bias = self.param("bias", nn.initializers.zeros, (members, self.units))
        return jnp.einsum("bmd,mdk->bmk", net, kernel) + bias


def _small_uniform(size: int) -> Any:
    bound = 1 / math.sqrt(size)

    def start(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return start
