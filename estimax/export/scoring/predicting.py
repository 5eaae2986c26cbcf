"""Predict batches of a table with a bundle; errors name the file and the row.

answers = predict_batch(bundle, signature, batch)       # output name -> array
"""

from __future__ import annotations

from typing import Any

from estimax import export
from estimax.core.errors import EstimaxError
from estimax.export.scoring.tables import TableBatch, first_refused


def predict_batch(
    bundle: export.Bundle, called: export.Signature, batch: TableBatch
) -> dict[str, Any]:
    """Return the answers of a signature by output name.

    Raises:
      InputError: The bundle refuses a row. The message names the file and the row.
    """
    features = {spec.name: batch.columns[spec.name] for spec in called.inputs}
    try:
        return bundle.predict(features, called.name)
    except EstimaxError as error:

        def read(some: dict[str, Any]) -> object:
            return bundle.transform(bundle.check(some))

        raise first_refused(batch, features, read, error) from error
