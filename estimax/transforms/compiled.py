"""The way to this room's compiled kernels."""

from types import ModuleType

from estimax.core import compiled


def kernels() -> ModuleType:
    """The kernel module, imported when first needed."""
    return compiled.load("estimax.transforms.kernels")
