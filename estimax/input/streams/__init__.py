"""Streams of elements: structures of columns, chunks, positions, background threads."""
