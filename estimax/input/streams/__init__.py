"""Streams of rows: nested structures of columns, chunks of them, and positions."""
