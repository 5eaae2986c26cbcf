"""All modules of host kernels, compiled ahead: what `estimax warm` and images do.

compile_kernels()       # ["adagrad", "adam", …]
"""

from __future__ import annotations

from estimax.native import (
    csv_records,
    distinct,
    encoding,
    examples,
    hashing,
    loading,
    records,
    sequences,
    string_arrays,
    table_rows,
)

_PROOFS: dict[str, loading.Proof] = {
    "adagrad": table_rows._adagrad_agrees,
    "adam": table_rows._adam_agrees,
    "csv_records": csv_records._agrees,
    "distinct": distinct._agrees,
    "encoding": encoding._agrees,
    "examples": examples._agrees,
    "gathering": string_arrays._agrees,
    "hashing": hashing.kernels_agree,
    "lookups": table_rows._lookups_agree,
    "records": records._agrees,
    "sequences": sequences._agrees,
}


def compile_kernels() -> list[str]:
    """Compile every module of kernels that this machine has not compiled yet.

    Returns:
      The modules that can be used; none of them if ESTIMAX_NATIVE is "off".
    """
    modules = _PROOFS.items()
    return [name for name, proof in modules if loading.kernels(name, proof, waits=True)]
