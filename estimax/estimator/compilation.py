"""Compiled programs kept on disk, so that the second start of a run is quick."""

from __future__ import annotations

import jax


def keep_compiled_programs(folder: str | None) -> None:
    """Have jax keep every program it compiles in a folder, from now on.

    This setting belongs to the process: the last one named is used by all of it. Small
    programs are kept as well, which jax by default does not.
    """
    if folder is None or jax.config.values["jax_compilation_cache_dir"] == folder:
        return
    settings: dict[str, str | float] = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
