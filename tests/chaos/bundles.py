"""Attacks on exported bundles: damaged files, and forged files with valid hashes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import servables

from chaos import mutations
from chaos.attack import FileAttack, Outcome
from chaos.tiny import bits
from estimax import export
from estimax.export.manifest import MANIFEST, _checksum, write_manifest

VERSION = 1_700_000_000
# Files read by jax's own parser, which is not made for forged input.
PROGRAMS = (".jaxexport", ".stablehlo")


class Bundles(FileAttack):
    """Damages a file of a bundle: it is refused, or its predictions have equal bits."""

    tries = 200

    def make(self, folder: Path) -> None:
        note = folder / "note.txt"
        note.write_text("for people")
        made = export.write_bundle(
            servables.wide_servable(), folder, assets_extra={"a/note.txt": note}
        )
        note.unlink()
        bundle = made.rename(folder / str(VERSION))
        # Times are fixed, so that a try damages the same bytes in every run.
        _rewrite(bundle, version=VERSION, created="2023-11-14T22:13:20+00:00")

    def damage(self, folder: Path, draw: random.Random) -> str:
        paths = mutations.files_of(folder)
        path, other = draw.choice(paths), draw.choice(paths)
        chance = draw.random()
        if chance < 0.1:
            return mutations.break_file(path, draw)
        if chance < 0.15 and path != other:
            return mutations.swap(path, other)
        if chance < 0.4:
            path = folder / str(VERSION) / MANIFEST
        if chance < 0.25:
            content, what = mutations.mutated_json(json.loads(path.read_text()), draw)
            path.write_text(mutations.json_text(content))
            return f"{path.name}: {what}"
        return mutations.mutate_file(path, draw, other)

    def read(self, folder: Path) -> Any:
        bundle = export.load(folder, self_test=True)
        request = servables.wide_request(5)
        return {
            name: _comparable(bundle.predict(request, name))
            for name in bundle.signatures
        }


class ForgedBundles(Bundles):
    """Forges content and the manifest: any result is allowed, but no crash."""

    tries = 40

    def damage(self, folder: Path, draw: random.Random) -> str:
        bundle = folder / str(VERSION)
        paths = [p for p in mutations.files_of(bundle) if p.suffix not in PROGRAMS]
        path = draw.choice(paths)
        if path.suffix != ".json":
            done = [mutations.mutate_file(path, draw)]
            _rewrite(bundle)
            return ", ".join(done)
        content = json.loads(path.read_text())
        content.pop("checksum", None)
        done = []
        for _ in range(draw.choice([1, 1, 2, 4])):
            if mutations.is_deep(content):
                break
            content, what = mutations.mutated_json(content, draw)
            done.append(f"{path.name}: {what}")
        path.write_text(mutations.json_text(content))
        if path.name != MANIFEST:
            _rewrite(bundle)
        elif isinstance(content, dict) and not mutations.is_deep(content):
            _seal(path, content)
        return ", ".join(done)

    def check_error(self, error: Exception) -> None:
        """Check an error; one of a request may name a feature instead of the file."""

    def judge(self, found: Any) -> Outcome:
        return Outcome.HARMLESS if found == self.expected else Outcome.CHANGED


def _comparable(answers: dict[str, Any]) -> Any:
    numbers = {n: a for n, a in answers.items() if a.dtype != object}
    words = {n: a.tolist() for n, a in answers.items() if a.dtype == object}
    return bits(numbers), words


def _rewrite(bundle: Path, **changes: Any) -> None:
    """Update the hashes in the manifest to those of the files."""
    path = bundle / MANIFEST
    about = json.loads(path.read_text())
    path.unlink()
    rest = {k: v for k, v in about.items() if k not in ("files", "checksum")}
    write_manifest(bundle, {**rest, **changes})


def _seal(path: Path, content: dict[str, Any]) -> None:
    """Write a forged manifest with a valid checksum."""
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=2)
    path.write_text(text)
