"""Bytes: files written whole or not at all."""

from estimax.wire import atomic

__all__ = ["atomic"]
