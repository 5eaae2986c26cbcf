"""Run the tries of one attack; the supervisor starts this as a process.

Writes one JSON line for every event to a pipe: {"ready": true}, {"start": 7},
{"damage": "…"}, {"end": 7, "outcome": "refused"}. A crash therefore names the try.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import resource
import traceback
from pathlib import Path
from typing import Any

from chaos.attack import GIGABYTE, Attack, AttackSkippedError, Outcome, shortened
from chaos.registry import make_attack

# Address space above that mapped after the preparation. The system refuses an absurd
# allocation at once then.
ADDRESS_SPACE = 4 * GIGABYTE


def main(name: str, seed: int, first: int, end: int, folder: Path, pipe: int) -> None:
    """Prepare the attack and try numbers `first` to `end` - 1."""
    faulthandler.enable()

    with open(pipe, "w", buffering=1) as events:

        def tell(**event: Any) -> None:
            events.write(json.dumps(event) + "\n")

        attack = make_attack(name)
        try:
            attack.prepare(folder)
        except AttackSkippedError as reason:
            tell(skipped=str(reason))
            return
        if attack.memory is not None:
            _limit_address_space()
        tell(ready=True)
        for number in range(first, end):
            tell(start=number)
            outcome, message = _try(
                attack,
                random.Random(f"{seed}/{name}/{number}"),
                lambda damage: tell(damage=shortened(damage)),
            )
            tell(end=number, outcome=outcome.value, message=message)
            gc.collect()


def _try(attack: Attack, draw: random.Random, note: Any) -> tuple[Outcome, str]:
    before = _resident("VmRSS")
    _forget_peak()
    try:
        outcome = attack.attempt(draw, note)
    # Everything is caught, to report exceptions that should not have been raised.
    except BaseException as error:
        told = "".join(traceback.format_exception(error)[-12:])
        return Outcome.FAILED, f"{type(error).__name__}: {shortened(error)}\n{told}"
    grown = _resident("VmHWM") - before
    if attack.memory is not None and grown > attack.memory:
        return Outcome.FAILED, f"the try took {grown >> 20} MB of memory"
    return outcome, ""


def _limit_address_space() -> None:
    most = _resident("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def _resident(field: str) -> int:
    """Return a value of /proc/self/status in bytes; 0 if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    """Reset the peak of the resident memory, VmHWM, to the present size."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


if __name__ == "__main__":
    arguments = json.loads(os.environ["CHAOS_CHILD"])
    main(**{**arguments, "folder": Path(arguments["folder"])})
