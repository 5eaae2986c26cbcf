"""Attacks on the folder of a scoring that was killed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from chaos import mutations
from chaos.attack import FileAttack
from estimax.export.scoring import planning
from estimax.export.scoring.plan import (
    DONE,
    PLAN,
    CompleteShard,
    OutputFolder,
    ScoringJob,
    ShardPlan,
)
from estimax.export.scoring.tables import InputColumns, read_part

ROWS, SHARD_ROWS = 100, 20
JOB = ScoringJob("bundle", "abc", "predict", ("id",), "csv", SHARD_ROWS)


class Scorings(FileAttack):
    """Damages the plan, the journal or a shard, and continues the scoring.

    It is refused, or the shards are those of a scoring that was not damaged.
    """

    tries = 400

    def make(self, folder: Path) -> None:
        given = folder / "in.csv"
        given.write_text("id\n" + "".join(f"row {n}\n" for n in range(ROWS)))
        files, shards = planning.make_shards(
            [str(given)], None, SHARD_ROWS, processes=1
        )
        output = OutputFolder(folder / "scores")
        with output.hold():
            plan = ShardPlan(JOB, files, shards)
            output.start(plan)
            for shard in (0, 1, 3):
                _write(output, plan, shard, given)

    def damage(self, folder: Path, draw: random.Random) -> str:
        paths = mutations.files_of(folder / "scores")
        path, other = draw.choice(paths), draw.choice(paths)
        chance = draw.random()
        if chance < 0.2:
            return mutations.break_file(path, draw)
        if chance < 0.3:
            path = folder / "scores" / PLAN
            content, what = mutations.mutated_json(json.loads(path.read_text()), draw)
            path.write_text(mutations.json_text(content))
            return f"{path.name}: {what}"
        # The size of a shard is compared, and its content is not.
        if path.name not in (PLAN, DONE):
            path.write_bytes(path.read_bytes()[: draw.randrange(50)])
            return f"{path.name}: cut off"
        return mutations.mutate_file(path, draw, other)

    def read(self, folder: Path) -> Any:
        output = OutputFolder(folder / "scores")
        with output.hold():
            plan = output.plan()
            assert plan is not None, "held() refuses shards without a plan"
            done = output.complete_shards(plan)
            for shard in range(len(plan.shards)):
                if shard not in done:
                    _write(output, plan, shard, folder / "in.csv")
            output.finish(plan, output.complete_shards(plan))
            return {
                path.name: path.read_text()
                for path in sorted(output.path.glob("part-*"))
            }


def _write(output: OutputFolder, plan: ShardPlan, shard: int, given: Path) -> None:
    """Write a shard: the rows of the input, as they are."""
    rows: list[bytes] = []
    for one in plan.shards[shard]:
        for batch in read_part(str(given), one.part, InputColumns({}, ["id"])):
            rows += batch.columns["id"].tolist()
    path = output.path / plan.file_name(shard)
    _remove(path)
    path.write_bytes(b"\n".join(rows))
    output.record(CompleteShard(shard, len(rows), path.stat().st_size))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
