"""Reading text as it arrives, for parsers of streams.

Owns: `Source` and `Marks`. Knows no format and imports nothing of turret; parser plugins are written with it.
"""

from turret.parsing.source import Marks, Reading, Source, Write

__all__ = ["Marks", "Reading", "Source", "Write"]
