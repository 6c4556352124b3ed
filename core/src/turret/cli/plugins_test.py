"""`turret plugins test DIST`: run the conformance kit on an installed distribution.

Owns the call of pytest with the kit's suite. Knows nothing of the cases.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from turret.cli.plugins_views import print_json
from turret.errors import NotSupportedError, PluginError
from turret.plugins import Registry
from turret.plugins.metadata import scan_distributions

__all__ = ["run_conformance"]


def run_conformance(args: argparse.Namespace) -> int:
    """Exit status 0 when every case passed. The results are in the output file as well."""
    if importlib.util.find_spec("pytest") is None:
        raise NotSupportedError("the conformance kit runs on pytest; install it with `pip install pytest`")
    if not Registry.build(scan_distributions([args.distribution])).candidates:
        raise PluginError(f"no installed distribution {args.distribution!r} offers a plugin; see `turret plugins list`")
    output = Path(args.output).resolve()
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--pyargs", "turret.testing.suite", "-p", "turret.testing.pytest_plugin"]
    command += ["-q", "--tb=short", "-p", "no:cacheprovider", "--import-mode=importlib"]
    # Neither other pytest plugins nor a configuration file of the directory it happens to run in have a say.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command += ["--rootdir", str(output.parent), "-c", "/dev/null"]
    command += ["--turret-distribution", args.distribution, "--conformance-json", str(output)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE if args.json else None)
    if args.json and output.exists():
        print_json(json.loads(output.read_text(encoding="utf-8")))
    elif output.exists():
        print(f"results: {output}")
    return done.returncode
