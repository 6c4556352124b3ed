"""Answers of `supports`: yes, or no with reasons.

Owns: `Verdict`. It stands in `turret.plugins` for selection and is repeated here as the name plugin authors import.
"""

from turret.plugins.verdict import Verdict

__all__ = ["Verdict"]
