"""Batches on their way to the device: prepared, packed, stacked and prefetched."""

from estimax.feeding.batches import BatchStack, PlacedBatch
from estimax.feeding.feed import Feed
from estimax.feeding.large_pages import ask_for_large_pages
from estimax.feeding.packing import Packed, pack, pack_stack, unpack
from estimax.feeding.placing import BatchPlacing

__all__ = [
    "BatchPlacing",
    "BatchStack",
    "Feed",
    "Packed",
    "PlacedBatch",
    "ask_for_large_pages",
    "pack",
    "pack_stack",
    "unpack",
]
