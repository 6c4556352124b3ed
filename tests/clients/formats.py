"""What the tests of formats share: turret's reading of answers, and conversations made at random."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["TOOLS", "random_call", "random_text", "turret_reads"]

HERE = Path(__file__).parent
WORDS = (
    "Oslo", "Łódź", "東京", "a < b", 'say "x"', "back\\slash", "line\nend", "{brace}", "[x]", "🎯", "", "<tool", "null",
    "</p>",
)  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "where"},
        "days": {"type": "integer", "description": "how long"},
        "metric": {"type": "boolean", "description": "units"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "labels"},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}, "description": "exactly where"},
    },
    "required": ["city"],
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}},
    {
        "type": "function",
        "function": {"name": "now", "description": "Now.", "parameters": {"type": "object", "properties": {}}},
    },
]


def random_text(source: random.Random, most: int = 5) -> str:
    """Words, some of them awkward; never empty, never white space at its ends."""
    return " ".join(filter(None, (source.choice(WORDS) for _ in range(source.randint(1, most))))) or "so"


def random_call(source: random.Random) -> tuple[str, dict[str, Any]]:
    """A tool and arguments of its schema."""
    if source.random() < 0.25:
        return "now", {}
    made = {
        "city": source.choice(WORDS), "days": source.randint(-5, 10**6), "metric": source.random() < 0.5,
        "tags": [source.choice(WORDS) for _ in range(source.randint(0, 3))],
        "place": {"lat": round(source.uniform(-90, 90), 3)},
    }  # fmt: skip
    kept = source.sample(sorted(made), source.randint(1, len(made)))
    return "get_weather", {name: made[name] for name in made if name in kept}


def turret_reads(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What turret's parsers make of answers (see read_answers.py)."""
    python = Path(os.environ["TURRET_BIN"]) / "python"
    done = subprocess.run(
        [python, HERE / "read_answers.py"], input=json.dumps({"answers": answers}), capture_output=True, text=True,
        timeout=300, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
