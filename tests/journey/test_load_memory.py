"""Loading a GGUF model takes no more memory than the model as it is held, packed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.model

PROBE = """
import json, re
def status(key):
    return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) * 1024
import torch, turret.worker.local, turret.compose.offline
before = status("VmRSS")
from turret import LLM
llm = LLM("demo", use_tqdm_on_load=False, max_model_len=64, kv_cache_memory_bytes=16 << 20, max_num_batched_tokens=64)
print(json.dumps({"before": before, "held": status("VmRSS"), "peak": status("VmHWM")}))
llm.shutdown()
"""


def test_peak_while_loading_is_the_model_packed() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120, check=True)
    bytes_ = json.loads(done.stdout.splitlines()[-1])
    held = bytes_["held"] - bytes_["before"]
    assert bytes_["peak"] - bytes_["before"] <= 1.15 * held
    assert held < 260 << 20, f"{held >> 20} MiB held for 97 MiB of packed weights, tokenizer and scratch"
