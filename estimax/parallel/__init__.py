"""Training on several devices and in several processes.

Read `placement.py` for where arrays are, `mesh.py` for the devices, `cluster.py` for
the processes of a job, `meeting.py` and `starting.py` for how they find each other,
`processes.py` for what they exchange, and `watching.py` and `aborts.py` for what
happens when one of them is lost.
"""

from estimax.parallel.mesh import (
    AXIS,
    make_mesh,
    one_at_a_time,
    process_block,
    split_sharding,
    whole_sharding,
    with_sharding,
)
from estimax.parallel.placement import Placement, RowCounts, put_on
from estimax.parallel.sharded_tables import gather_rows, read_rows, update_rows

__all__ = [
    "AXIS",
    "Placement",
    "RowCounts",
    "gather_rows",
    "make_mesh",
    "one_at_a_time",
    "process_block",
    "put_on",
    "read_rows",
    "split_sharding",
    "update_rows",
    "whole_sharding",
    "with_sharding",
]
