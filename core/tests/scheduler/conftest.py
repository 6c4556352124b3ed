"""Make `simulated_worker` importable beside the tests (importlib import mode has no rootdir on the path)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
