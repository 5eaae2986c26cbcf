"""`estimax schema`: print the JSON Schema of run files."""

from __future__ import annotations

import json
from pathlib import Path

from estimax.config.json_schema import json_schema


def schema(output: Path | None) -> None:
    """Write the schema to a file, or to standard output if `output` is None."""
    text = json.dumps(json_schema(), indent=2) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)
