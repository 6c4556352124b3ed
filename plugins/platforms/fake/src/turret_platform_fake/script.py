"""What a pretend device says: scenes out of a file, chosen by what stands in the prompt.

Owns: the file's shape and which scene answers a prompt. Knows no tokenizer of its own and no step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.errors import ConfigError, EngineError

__all__ = ["Scene", "Script"]


@dataclass(frozen=True, slots=True)
class Scene:
    """An answer to prompts that hold `when`: pieces that are tokenized one by one, text and token ids."""

    when: str
    say: tuple[str | int, ...]

    def ends(self, prompt: str) -> tuple[int, int]:
        """Where `when` ends last in a prompt that holds it, and its length; no text at all ends before everything."""
        size = len(self.when)
        return (prompt.rfind(self.when) + size, size) if size else (0, 0)

    def tokens(self, encode: Callable[[str], list[int]]) -> list[int]:
        """Its token ids."""
        return [token for piece in self.say for token in ([piece] if isinstance(piece, int) else encode(piece))]


class Script:
    """Scenes. The one whose `when` ends last in a prompt answers it, the longest of several that end there: what was
    said last counts, so a scene can follow the result of a tool that the scene before it called."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self._scenes = tuple(scenes)

    @classmethod
    def read(cls, path: Path) -> Script:
        """From a JSON list of `{"when": TEXT, "say": TEXT or [TEXT or ID, ...]}`. Raises ConfigError."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"platform:fake.script: {path} cannot be read as JSON: {error}") from error
        if not isinstance(found, list):
            raise ConfigError(f"platform:fake.script: {path} must hold a list of scenes")
        return cls([_scene(path, place, one) for place, one in enumerate(found)])

    def answer(self, prompt: str) -> Scene:
        """The scene for a prompt. Raises EngineError where there is none."""
        found = [scene for scene in self._scenes if scene.when in prompt]
        if not found:
            raise EngineError(f"the script has no scene for a prompt that ends in {prompt[-80:]!r}")
        return max(found, key=lambda scene: scene.ends(prompt))


def _scene(path: Path, place: int, found: Any) -> Scene:
    where = f"platform:fake.script: scene {place} of {path}"
    if not isinstance(found, dict) or not set(found) <= {"when", "say"}:
        raise ConfigError(f"{where} must be an object with when and say")
    when, say = found.get("when", ""), found.get("say")
    pieces = tuple(say) if isinstance(say, list) else (say,)
    if not isinstance(when, str) or not all(isinstance(piece, str | int) for piece in pieces):
        raise ConfigError(f"{where}: when must be text, say must be text or a list of text and token ids")
    return Scene(when, pieces)
