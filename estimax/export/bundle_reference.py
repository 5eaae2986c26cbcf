"""A bundle that other processes load from disk: what Spark and Ray send to workers.

    reference, signature = BundleReference.of("export", keep=["id"])
    reference.score_arrow(table)    # in a worker: "id" and the predictions, by name

A reference is a path and a few names, so it is small to send. A worker loads the bundle
when it scores its first batch, and keeps it for the next. It imports no training code.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimax.core.errors import BundleError, did_you_mean
from estimax.core.raw_values import frame_columns
from estimax.export import manifest
from estimax.export.arrow_tables import (
    arrow_answers,
    squeeze_column,
    without_class_lists,
)
from estimax.export.bundle import (
    Bundle,
    default_signature,
    load,
    read_signatures,
    signature_named,
)
from estimax.export.manifest import BundleFiles
from estimax.export.signature import Signature
from estimax.storage.compilation_cache import AUTO, keep_compiled_programs

ALL = "*"  # keeps every column


@dataclass(frozen=True)
class BundleReference:
    """Which bundle to load, which signature to call, and which columns to keep.

    Args:
      path: The folder of the version, as the workers see it.
      checksum: The checksum of its manifest, which covers all of its files.
      signature: The name of the signature.
      keep: The columns to return beside the predictions.
    """

    path: str
    checksum: str
    signature: str
    keep: tuple[str, ...]

    @staticmethod
    def of(
        bundle: Bundle | str | os.PathLike[str],
        *,
        signature: str | None = None,
        keep: Sequence[str] = (),
        worker_path: str | None = None,
    ) -> tuple[BundleReference, Signature]:
        """Return a reference and its signature, without loading the weights.

        Raises:
          MissingFileError: There is no such folder.
          BundleError: The bundle is damaged, has no such signature, or an output has
            the name of a column to keep.
        """
        given = bundle.path if isinstance(bundle, Bundle) else Path(bundle)
        folder = manifest.resolve(given)
        files = BundleFiles.open(folder)
        try:
            signatures = read_signatures(files)
        except (ValueError, KeyError, TypeError) as error:
            raise BundleError(
                f"{folder}: expected the signatures of a bundle: {error}."
            ) from error
        called = signature_named(signature or default_signature(signatures), signatures)
        names = (keep,) if isinstance(keep, str) else tuple(dict.fromkeys(keep))
        _check_keep(names, called)
        path = os.path.abspath(folder) if worker_path is None else worker_path
        checksum = files.manifest["checksum"]
        return BundleReference(path, checksum, called.name, names), called

    def load(self) -> tuple[Bundle, Signature]:
        """Return the bundle, loaded once per process, and its signature."""
        bundle = _load_once(self.path, self.checksum)
        return bundle, bundle.signature(self.signature)

    def score_columns(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return kept columns as they are, and predictions as NumPy arrays."""
        answers = without_class_lists(self._predict(columns))
        arrays = {name: squeeze_column(array) for name, array in answers.items()}
        return self._keep_columns(columns) | arrays

    def score_arrow(self, table: Any) -> dict[str, Any]:
        """Return kept columns and predictions of a pyarrow Table or RecordBatch."""
        columns = frame_columns(table) or {}
        answers = arrow_answers(self.load()[1], self._predict(columns))
        return self._keep_columns(columns) | answers

    def score_frame(self, frame: Any) -> Any:
        """Return kept columns and predictions of a data frame of pandas as another."""
        import pandas as pd

        scored = self.score_columns(frame_columns(frame) or {})
        # A column of pandas has one dimension, and lists in it.
        columns = {
            name: value.tolist() if getattr(value, "ndim", 1) > 1 else value
            for name, value in scored.items()
        }
        return pd.DataFrame(columns, index=frame.index)

    def _predict(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        bundle, called = self.load()
        return bundle.predict(dict(columns), called.name, ignore_extra=True)

    def _keep_columns(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns to keep; raise BundleError if one is missing."""
        if self.keep == (ALL,):
            _check_keep(columns, self.load()[1])
            return dict(columns)
        for name in self.keep:
            if name not in columns:
                near = did_you_mean(name, columns, listed_as="found")
                raise BundleError(f"keep: no column {name!r}{near}")
        return {name: columns[name] for name in self.keep}


def _check_keep(names: Sequence[str] | Mapping[str, Any], called: Signature) -> None:
    outputs = {spec.name for spec in called.outputs}
    for name in names:
        if name in outputs:
            raise BundleError(
                f"keep: the model has an output {name!r}, so a column of that name "
                "cannot be returned beside it. Rename or drop the column."
            )


@functools.lru_cache(maxsize=2)
def _load_once(path: str, checksum: str) -> Bundle:
    """Return the bundle at a path, once per process, if it is the expected one."""
    _use_assigned_threads()
    keep_compiled_programs(AUTO)
    bundle = load(path)
    if bundle.manifest["checksum"] != checksum:
        raise BundleError(
            f"{path}: expected the bundle that the driver has, found another one. Copy "
            "the same version to all workers, or name the folder of the version."
        )
    return bundle


def _use_assigned_threads() -> None:
    """Have XLA use as many threads as Spark or Ray has assigned to this process.

    Both run a process for each processor, and set OMP_NUM_THREADS in it. XLA would use
    all processors in each of them; it reads NPROC when jax starts.
    """
    if "OMP_NUM_THREADS" in os.environ:
        os.environ.setdefault("NPROC", os.environ["OMP_NUM_THREADS"])
