"""The command line: python -m chaos [--seed N] [--rounds N] [ATTACK …]."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from chaos.attack import Outcome
from chaos.registry import ATTACKS, BROKEN, make_attack
from chaos.supervisor import Report, run_attack


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks and print a table; return 1 if a try failed."""
    given = _parse(arguments)
    names = given.attacks or list(ATTACKS)
    began = time.monotonic()
    reports: dict[str, Report] = {}
    print(f"seed {given.seed}", flush=True)
    for number in range(given.rounds):
        minutes = (time.monotonic() - began) / 60
        if given.minutes is not None and number and minutes >= given.minutes:
            break
        for report in _round(names, given, number):
            reports[report.name] = _merged(reports.get(report.name), report)
    print(_table(reports))
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s")
    return int(any(report.failures for report in reports.values()))


def _round(
    names: list[str], given: argparse.Namespace, round_number: int
) -> list[Report]:
    """Run every attack once, with numbers of tries that no other round has."""

    def run(name: str) -> Report:
        tries = given.tries or make_attack(name).tries
        numbers = range(round_number * tries, (round_number + 1) * tries)
        if given.number is not None:
            numbers = range(given.number, given.number + 1)
        report = run_attack(name, given.seed, numbers)
        _print_failures(report, given.seed)
        return report

    with ThreadPoolExecutor(given.jobs) as pool:
        return list(pool.map(run, names))


def _print_failures(report: Report, seed: int) -> None:
    lines = [f"{report.name}: skipped: {report.skipped}"] if report.skipped else []
    for failure in report.failures:
        lines.append(
            f"\nFAILED {report.name} try {failure.number}: {failure.damage}\n"
            f"{failure.message}\n"
            f"Repeat: scripts/chaos {report.name} --seed {seed} "
            f"--number {failure.number}\n"
        )
    counted = sum(report.counts.values())
    lines.append(f"{report.name}: {counted} tries, {len(report.failures)} failed")
    print("\n".join(lines), flush=True)


def _merged(before: Report | None, report: Report) -> Report:
    if before is None:
        return report
    report.counts.update(before.counts)
    report.failures[:0] = before.failures
    return report


def _table(reports: dict[str, Report]) -> str:
    heads = ["attack", "tries", *(outcome.value for outcome in Outcome)]
    rows = [heads]
    for name, report in reports.items():
        if report.skipped:
            rows.append([name, "skipped", *("" for _ in Outcome)])
            continue
        counts = [report.counts[outcome] for outcome in Outcome]
        rows.append([name, str(sum(counts)), *map(str, counts)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = [
        row[0].ljust(widths[0])
        + "".join(
            f"  {cell.rjust(w)}" for cell, w in zip(row[1:], widths[1:], strict=True)
        )
        for row in rows
    ]
    return "\n".join(["", lines[0], "-" * len(lines[0]), *lines[1:]])


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {name}" for name in ATTACKS)
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description="Attack estimax with damaged files, kills, full disks and rival "
        "processes, and count the outcomes. The exit status is 1 if a try failed.",
        epilog=f"attacks (default: all):\n{listed}\n\n"
        "outcomes:\n"
        "  refused    an error of estimax that names the file\n"
        "  harmless   the result of the undamaged file\n"
        "  fell back  the result of the previous checkpoint\n"
        "  changed    another result; the format has no checksum, or it was forged\n"
        "  FAILED     a defect: a wrong result, a crash, a hang or another error",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "attacks",
        nargs="*",
        metavar="ATTACK",
        help="attack to run, one of those below (default: all)",
    )
    parser.add_argument("--seed", type=int, help="seed of all tries (default: random)")
    parser.add_argument(
        "--rounds", type=int, help="number of rounds over all attacks (default: 1)"
    )
    parser.add_argument(
        "--minutes", type=float, help="start no new round after this many minutes"
    )
    parser.add_argument("--tries", type=int, help="tries of each attack in a round")
    parser.add_argument("--number", type=int, help="run only the try with this number")
    parser.add_argument(
        "--jobs", type=int, default=2, help="attacks to run at once (default: 2)"
    )
    given = parser.parse_args(arguments)
    for name in given.attacks:
        if name not in ATTACKS and name not in BROKEN:
            parser.error(f"no attack {name!r}; choose from {', '.join(ATTACKS)}")
    if given.number is not None and len(given.attacks) != 1:
        parser.error("--number needs the name of one attack")
    if given.seed is None:
        given.seed = secrets.randbelow(1_000_000)
    if given.rounds is None:
        given.rounds = 1 if given.minutes is None else sys.maxsize
    if given.number is not None:
        given.rounds = 1
    return given


if __name__ == "__main__":
    sys.exit(main())
