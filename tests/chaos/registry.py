"""The attacks by name. Their modules are imported when they are needed."""

from __future__ import annotations

import importlib
import threading

from chaos.attack import Attack

ATTACKS = {
    "checkpoints": "chaos.stores:Checkpoints",
    "forged-checkpoints": "chaos.stores:ForgedCheckpoints",
    "resume": "chaos.stores:Resume",
    "bundles": "chaos.bundles:Bundles",
    "forged-bundles": "chaos.bundles:ForgedBundles",
    "scorings": "chaos.scorings:Scorings",
    "caches": "chaos.data_files:Caches",
    "forged-caches": "chaos.data_files:ForgedCaches",
    "records": "chaos.data_files:Records",
    "csv": "chaos.data_files:CsvFiles",
    "parquet": "chaos.data_files:ParquetFiles",
    "run-files": "chaos.run_files:RunFiles",
    "saved-config": "chaos.run_files:SavedConfig",
    "kill-training": "chaos.kills:KillTraining",
    "kill-export": "chaos.kills:KillExport",
    "kill-cache": "chaos.kills:KillCache",
    "full-training": "chaos.full_disks:FullTraining",
    "full-export": "chaos.full_disks:FullExport",
    "full-cache": "chaos.full_disks:FullCache",
    "two-trainers": "chaos.rivals:TwoTrainers",
    "stale-lock": "chaos.rivals:StaleLock",
}
# Attacks on readers with a known defect, which the harness must report.
BROKEN = {
    "broken-values": "chaos.broken:WrongValues",
    "broken-exception": "chaos.broken:ForeignException",
    "broken-signal": "chaos.broken:DiesBySignal",
    "broken-hang": "chaos.broken:Hangs",
    "broken-memory": "chaos.broken:TakesMemory",
    "broken-words": "chaos.broken:NamesNoFile",
    "sound": "chaos.broken:Sound",
}


# Threads that import jax at the same time would see modules that are not complete.
_importing = threading.Lock()


def make_attack(name: str) -> Attack:
    """Return a new attack by its name."""
    module, _, kind = {**ATTACKS, **BROKEN}[name].partition(":")
    with _importing:
        attack = getattr(importlib.import_module(module), kind)()
    assert isinstance(attack, Attack)
    return attack
