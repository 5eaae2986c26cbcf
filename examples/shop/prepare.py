"""Write the synthetic log of a web shop that the run files in `configs/` read.

    python examples/shop/prepare.py            # writes data/shop, a second

Each row is an item shown to a user. The same rows are written as CSV, compressed CSV,
Parquet, JSON lines and TFRecord. Clicks depend on the user's interests, so every model
in `configs/` has something to learn.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import estimax as ex

CATEGORIES = ["books", "garden", "music", "sports", "toys"]
COUNTRIES = ["DE", "FR", "IT", "NO"]
TAGS = ["cheap", "eco", "gift", "new", "sale"]
ITEMS = 60


def rows(count: int, seed: int) -> list[dict[str, object]]:
    """Return rows of the log."""
    rng = np.random.default_rng(seed)
    liked = np.random.default_rng(0).normal(size=(len(CATEGORIES), len(CATEGORIES)))
    made = []
    for number in range(count):
        favourite = int(rng.integers(len(CATEGORIES)))
        item = int(rng.integers(ITEMS))
        category = item % len(CATEGORIES)
        near = [i for i in range(ITEMS) if i % len(CATEGORIES) == favourite]
        history = [int(i) for i in rng.choice(near, int(rng.integers(1, 5)))]
        tags = [str(tag) for tag in rng.choice(TAGS, int(rng.integers(0, 3)), False)]
        price = float(np.round(rng.lognormal(3.0, 0.5), 2))
        taste = 1.5 * liked[favourite, category] + ("sale" in tags) - price / 40
        click = int(rng.random() < 1 / (1 + np.exp(-taste)))
        bought = int(click and rng.random() < 0.4)
        day = f"2024-{1 + number * 12 // count:02d}-{1 + number % 28:02d}"
        made.append(
            {
                "user": f"u{int(rng.integers(200))}",
                "item": item,
                "category": CATEGORIES[category],
                "country": str(rng.choice(COUNTRIES)),
                "tags": tags,
                "tag_weights": [float(np.round(w, 2)) for w in rng.random(len(tags))],
                "history": history,
                "age": float(rng.integers(18, 80)) if rng.random() > 0.05 else None,
                "price": price,
                "position": [float(np.round(x, 3)) for x in rng.normal(size=3)],
                "day": day,
                "weight": float(np.round(0.5 + rng.random(), 2)),
                "click": click,
                "buy": bought,
                "seconds": float(np.round(max(0.5, 20 + 10 * taste + rng.normal()), 2)),
                "rating": int(np.clip(np.round(2 + taste), 0, 4)),
            }
        )
    return made


def write(folder: Path, name: str, table: list[dict[str, object]]) -> None:
    """Write rows in all formats."""
    path = folder / name
    with open(path.with_suffix(".jsonl"), "w") as file:
        for row in table:
            file.write(json.dumps(row) + "\n")
    pq.write_table(pa.Table.from_pylist(table), path.with_suffix(".parquet"))
    lines = [",".join(table[0])]
    lines += [",".join(_text(value) for value in row.values()) for row in table]
    text = "\n".join(lines) + "\n"
    path.with_suffix(".csv").write_text(text)
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    with ex.input.TFRecordWriter(path.with_suffix(".tfrecord")) as writer:
        for row in table:
            present = {key: value for key, value in row.items() if value is not None}
            writer.write(ex.input.Example.of(present).serialize())


def _text(value: object) -> str:
    if value is None:
        return ""
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def main() -> None:
    """Write data/shop, or another folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("data/shop"))
    parser.add_argument("--rows", type=int, default=2000)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder, "train", rows(given.rows, seed=1))
    write(given.folder, "test", rows(given.rows // 4, seed=2))
    print(f"wrote {given.rows} and {given.rows // 4} rows to {given.folder}")


if __name__ == "__main__":
    main()
