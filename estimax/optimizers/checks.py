"""Range checks of the optimizers' arguments. All raise `ValueError`."""

from __future__ import annotations


def check_positive(where: str = "", **values: float) -> None:
    """Raise ValueError for the first value that is 0, negative or NaN."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{where}{name} must be positive, got {value}.")


def check_at_least_zero(where: str = "", **values: float) -> None:
    """Raise ValueError for the first negative value."""
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{where}{name} must be 0 or more, got {value}.")
