"""The ids of a categorical column, as the device gets them."""

from estimax import staging, transforms
from estimax.core.sparse import Ids
from estimax.feature_columns.column import CategoricalColumn, Features, rounds_time
from estimax.feature_columns.numeric import BucketizedColumn
from estimax.feature_columns.sequence import SequenceCategoricalColumn
from estimax.transforms.transform import OutOfRange


def ids_of(
    column: CategoricalColumn, features: Features, out_of_range: OutOfRange
) -> Ids:
    """Ask the host for a column's ids [B, L] (a bucketized one may do without)."""
    if isinstance(column, BucketizedColumn):
        return column.ids(features)
    transform = transforms.pad_ids(column.host_half, out_of_range)
    ids: Ids = staging.stage(transform, features)
    return ids


def step_ids_of(
    column: SequenceCategoricalColumn, features: Features, out_of_range: OutOfRange
) -> Ids:
    """Ask the host for the ids of every step, [B, T, L]."""
    source = column.host_half
    shared = transforms.pad_ids(source, out_of_range).out_of_range
    transform = transforms.SequenceIds(source, shared, rounded=rounds_time())
    ids: Ids = staging.stage(transform, features)
    return ids
