"""What a number depends on besides the code: the machine, its load, the commit."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"


def describe() -> dict[str, Any]:
    """The machine, as far as a reader needs it to judge a number."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(_meminfo("MemTotal") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit(REPOSITORY),
    }


def available_bytes() -> int:
    """Memory that can be taken without swapping."""
    return _meminfo("MemAvailable")


def load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def write_result(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Print a result as JSON and keep it under results/, with date and machine."""
    now = datetime.datetime.now(datetime.UTC)
    full = {
        "benchmark": name,
        "date": now.isoformat(timespec="seconds"),
        "machine": describe(),
        **result,
    }
    text = json.dumps(full, indent=2)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{now:%Y-%m-%d-%H%M}-{name}.json").write_text(text + "\n")
    return full


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    return next(names, platform.machine())


def _meminfo(field: str) -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    values = (int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return 1024 * next(values, 0)


def commit(tree: Path) -> str:
    """The commit of a checkout, marked if files in it have changed since."""
    done = subprocess.run(
        ["git", "-C", str(tree), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
