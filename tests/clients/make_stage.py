"""Makes a folder with what the scripted device says to the clients, and a model without weights to say it.

Thoughts, calls and answers are written as Qwen's models write them. A scene answers the prompt in which its marker
stands last; results of tools bring the marker of the next scene along. Runs where turret is: `python make_stage.py
FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from turret_platform_fake.stage import write_stage

SPECIAL_TOKENS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


def _call(name: str, **arguments: Any) -> str:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def _thought(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


WEATHER = _call("get_weather", city="Łódź", days=0).replace("{", "{{").replace("}", "}}").replace("0", "{}")
PATCH = '*** Begin Patch\n*** Add File: made.txt\n+made by "CODEX"\n*** End Patch'
SHELL = "printf 'made by %s\\n' {who} > made.txt && echo {who}-DONE"

SCENES: list[dict[str, str]] = [
    {"say": "I am idle."},
    {"when": "ASK-THOUGHT", "say": _thought("Two and two.") + "It is 4."},
    {"when": "ASK-WEATHER", "say": _thought("I look it up.") + "Let me see.\n" + WEATHER.format(2)},
    {"when": "ASK-BOTH", "say": WEATHER.format(1) + "\n" + _call("get_weather", city="Oslo", days=3)},
    {"when": "ASK-TIME", "say": _call("now")},
    {"when": "ASK-LONG", "say": "word " * 400},
    {"when": "ASK-PERSON", "say": _thought("Somebody.") + '{"name": "Ada \\"Łódź\\" L.", "age": 36}'},
    {"when": "rain in Oslo", "say": "Take two umbrellas."},
    {"when": "rain in Łódź for 2", "say": _thought("It rains.") + "Take an umbrella."},
    {"when": "12:30", "say": "It is half past twelve."},
    # Command lines: each calls a tool of its own, and ends when it has seen the result.
    {"when": "PI-TASK", "say": _thought("I write it.") + _call("write", path="made.txt", content="made by PI\n")},
    {"when": "Successfully wrote", "say": "The file is written."},
    {"when": "CODEX-TASK", "say": _thought("I write it.") + _call("exec_command", cmd=SHELL.format(who="CODEX"))},
    {"when": "CODEX-DONE", "say": "The file is written."},
    {"when": "PATCH-TASK", "say": _thought("I write it.") + _call("apply_patch", input=PATCH)},
    {"when": "Success. Updated", "say": "The file is written."},
    {"when": "OPENCODE-TASK", "say": _thought("I write it.") + _call(
        "bash", command=SHELL.format(who="OPENCODE"), description="Write the file")},
    {"when": "OPENCODE-DONE", "say": "The file is written."},
    {"when": "CLAUDE-TASK", "say": _thought("I write it.") + _call(
        "Bash", command=SHELL.format(who="CLAUDE"), description="Write the file")},
    {"when": "CLAUDE-DONE", "say": "The file is written."},
]  # fmt: skip

if __name__ == "__main__":
    write_stage(Path(sys.argv[1]), SPECIAL_TOKENS)
    (Path(sys.argv[1]) / "script.json").write_text(json.dumps(SCENES))
