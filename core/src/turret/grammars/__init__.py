"""Grammars for answers: compiled in a process of their own, within bounds of time and memory, and kept.

Owns: the compiling process and the cache of what it made. Knows no backend, no HTTP and no engine.
"""

from turret.grammars.limits import CompileLimits
from turret.grammars.service import CompiledGrammar, GrammarLaunch, GrammarService

__all__ = ["CompileLimits", "CompiledGrammar", "GrammarLaunch", "GrammarService"]
