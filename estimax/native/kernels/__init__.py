"""Compiled loops. Imported only through `native.loading`, which announces compiling."""
