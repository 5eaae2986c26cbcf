"""Score a file once with `ex.scoring.score_files`, and print the times as JSON.

scoring_estimax.py BUNDLE INPUT OUTPUT PROCESSES [KILL_AFTER]

With KILL_AFTER, the process is killed when so many shards are complete.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys

from estimax.export import scoring


def main() -> None:
    bundle, given, output, processes = sys.argv[1:5]
    kill_after = int(sys.argv[5]) if len(sys.argv) > 5 else -1

    def on_progress(progress: scoring.ScoringProgress) -> None:
        if progress.shards == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    result = scoring.score_files(
        bundle,
        given,
        output,
        processes=int(processes),
        keep=["id"],
        on_progress=on_progress,
    )
    used = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    told = {
        "rows": result.rows,
        "new_rows": result.new_rows,
        "shards": len(result.files),
        "scoring_seconds": result.seconds,
        "cpu_seconds": sum(one.ru_utime + one.ru_stime for one in used),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
