"""Make `simulated_worker` and `driving` importable beside the tests: importlib mode puts no folder on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
