"""A fresh virtual environment in which plugins are installed with pip, beside the core and its first-party plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WITNESS = '''
"""Writes the id of each process that imports a module named in $WITNESS_MODULES to $WITNESS_FILE."""
import os
import sys


class Witness:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ.get("WITNESS_MODULES", "").split(","):
            with open(os.environ["WITNESS_FILE"], "a") as file:
                file.write(f"{name} {os.getpid()}\\n")
        return None


sys.meta_path.insert(0, Witness())
'''


@dataclass(frozen=True)
class Venv:
    """`root` is the environment; the libraries that the core needs are those of the running interpreter."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> Venv:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
        made = cls(root)
        (made.site_packages / "witness.py").write_text(WITNESS)
        libraries = sysconfig.get_paths()["purelib"]
        # addsitedir rather than a plain path: the core may be installed editable, through .pth files of its own.
        lines = f"import site; site.addsitedir({libraries!r})\nimport witness\n"
        (made.site_packages / "libraries.pth").write_text(lines)
        return made

    @property
    def site_packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.root / "lib" / version / "site-packages"

    @property
    def python(self) -> str:
        return str(self.root / "bin" / "python")

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the caller's Python settings, little threads: several tests may share a small machine."""
        own = ("PYTHON", "TURRET", "WITNESS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        return {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def install(self, root: Path) -> None:
        """pip install, from source, without network and without the dependencies that are here already."""
        command = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-index"]
        command += ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", str(root)]
        subprocess.run(command, check=True)

    def run(self, *argv: str, timeout: float = 300, **extra: str) -> subprocess.CompletedProcess[str]:
        command = [self.python, *argv]
        environment = {**self.environment, **extra}
        return subprocess.run(command, env=environment, cwd=self.root, capture_output=True, text=True, timeout=timeout)

    def turret(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "turret.cli.main", *argv)

    def json(self, *argv: str) -> Any:
        """A `turret` command's JSON answer; the command must succeed."""
        done = self.turret(*argv, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)
