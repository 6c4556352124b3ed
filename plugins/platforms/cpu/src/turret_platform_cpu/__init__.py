"""The CPU platform of turret.

Owns nothing itself; the entry points name `platform`, `ops` and `attention`. Importing this package loads no torch.
"""

__all__: list[str] = []
