"""Backends that do what a spec's text says: sleep, eat memory, crash, refuse. Loaded by the compiling process."""

from __future__ import annotations

import os
import time

import numpy as np

from turret.contracts import GrammarSpec, Verdict, Vocabulary
from turret.errors import RequestError


class Faulty:
    api = "1.0"

    def __init__(self, name: str) -> None:
        self.name = name

    def supports(self, query: GrammarSpec) -> Verdict:
        return Verdict.no("only the other can") if query.text == f"not {self.name}" else Verdict.yes("it can")

    def open(self, vocabulary: Vocabulary) -> Faulty:
        if self.name == "unloadable":
            raise RuntimeError("a library is missing")
        return self

    def compile(self, spec: GrammarSpec) -> bytes:
        if spec.text == "sleep":
            time.sleep(60)
        elif spec.text == "eat":
            return bytearray(1 << 34)
        elif spec.text == "crash":
            os.abort()
        elif spec.text == "refuse":
            raise RequestError("it is refused")
        elif spec.text == "large":
            return bytes(1 << 21)
        return f"{self.name}: {spec.text}".encode()

    def restore(self, compiled: bytes) -> Walk:
        return Walk(compiled.decode(errors="replace"))


class Walk:
    """Any token may come, unless the text says otherwise."""

    def __init__(self, text: str) -> None:
        self.text = text

    def matcher(self, stop_ids) -> Walk:
        return self

    def fill(self, mask: np.ndarray) -> None:
        if "slow step" in self.text:
            began = time.process_time()
            while time.process_time() - began < 0.1:
                pass
        mask[:] = 0 if "nothing" in self.text else 1

    def accept(self, token: int) -> bool:
        return True

    def rollback(self, count: int) -> None:
        raise NotImplementedError

    def is_finished(self) -> bool:
        return True

    def is_terminated(self) -> bool:
        return False


def backends(argument: str) -> dict[str, Faulty]:
    return {name: Faulty(name) for name in argument.split(",")}
