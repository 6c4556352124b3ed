"""Make the modules beside the tests importable (importlib import mode has no rootdir on the path)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
