"""GGUF weights for turret.

Owns nothing itself; `method` is what the entry point names. Importing this package loads no torch.
"""

__all__: list[str] = []
