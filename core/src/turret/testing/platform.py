"""Cases of platforms: honest answers about devices, and the same results on their ops.

Owns these checks. Knows no device.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch

from turret.contracts import ConfigPatch, ConfigView, DeviceInfo, MemoryInfo, OpProvider
from turret.plugins.kinds import KINDS
from turret.testing import canonical, ops
from turret.testing.cases import Case, NotApplicable, Subject
from turret.testing.tiny import Setting, tiny_decoder

__all__ = ["build"]

PROBE = """
import sys
from turret.plugins import PluginHost, Policy
from turret.plugins.metadata import scan_distributions
host = PluginHost.discover(Policy(enable=({dist!r},)), scan=scan_distributions([{dist!r}]))
devices = host.load(host.registry.find("platform", {name!r})[0]).probe()
print(len(devices), "torch" in sys.modules)
"""
WORK = """
from turret.contracts import WorkerEnv
from turret.plugins import PluginHost, Policy
from turret.plugins.metadata import scan_distributions
host = PluginHost.discover(Policy(enable=({dist!r},)), scan=scan_distributions([{dist!r}]))
platform = host.load(host.registry.find("platform", {name!r})[0])
index = platform.probe()[0].index
platform.start_worker(WorkerEnv(index, 0, 1, 1))
platform.seed(7)
import torch
tensor = torch.ones(4, device=platform.torch_device(index))
platform.synchronize(index)
print("worked", float(tensor.sum()))
"""


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("contract", "probe_needs_no_torch", _probe, subject)
    yield subject.case("contract", "devices_and_memory", _devices, subject)
    yield subject.case("contract", "preferences", _preferences, subject)
    yield subject.case("contract", "patch_leaves_the_users_options", _patch, subject)
    yield subject.case("lifecycle", "worker_starts", _worker, subject)
    yield subject.case("numeric", "ops", _ops, subject)
    yield subject.case("numeric", "linears", _linears, subject)
    yield subject.case("numeric", "quantized_linears", _quantized, subject)
    yield subject.case("end_to_end", "tiny_model_same_logits", _tiny, subject)


def _child(subject: Subject, code: str) -> str:
    filled = code.format(dist=subject.candidate.distribution, name=subject.candidate.name)
    done = subprocess.run([sys.executable, "-c", filled], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _present(subject: Subject) -> tuple[Any, list[DeviceInfo]]:
    platform = subject.load()
    devices = list(platform.probe())
    if not devices:
        raise NotApplicable("its hardware is not here")
    return platform, devices


def _probe(subject: Subject) -> None:
    count, torch_loaded = _child(subject, PROBE).split()
    assert torch_loaded == "False", "probe() loads torch: it runs before anything heavy may be loaded"
    assert int(count) >= 0


def _devices(subject: Subject) -> None:
    """Indices tell devices apart, and memory adds up."""
    platform, devices = _present(subject)
    assert all(isinstance(device, DeviceInfo) for device in devices)
    assert len({device.index for device in devices}) == len(devices), "two devices have one index"
    for device in devices:
        torch.device(platform.torch_device(device.index))
        memory = platform.memory(device.index)
        assert isinstance(memory, MemoryInfo)
        assert 0 <= memory.free <= memory.total and memory.used_here >= 0, f"device {device.index}: {memory}"
        assert device.total_memory > 0


def _preferences(subject: Subject) -> None:
    platform = subject.load()
    for kind in KINDS:
        names = platform.preferences(kind)
        assert isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names), f"{kind}: {names!r}"


def _patch(subject: Subject) -> None:
    """What the user set is in the view's options, and no patch may touch it."""
    platform = subject.load()
    wished = platform.patch_config(ConfigView({}, {}))
    assert isinstance(wished, ConfigPatch)
    again = platform.patch_config(ConfigView(dict(wished.values), {}))
    touched = sorted(set(again.values) & set(wished.values))
    assert not touched, f"it changes options that the user set: {', '.join(touched)}"
    unexplained = sorted(set(wished.values) - set(wished.reasons))
    assert not unexplained, f"it gives no reason for {', '.join(unexplained)}"


def _worker(subject: Subject) -> None:
    _present(subject)
    assert _child(subject, WORK) == "worked 4.0"


def _provider(subject: Subject) -> OpProvider:
    platform, devices = _present(subject)
    if platform.torch_device(devices[0].index).partition(":")[0] != "cpu":
        raise NotApplicable("its ops run on a device that the references here do not")
    provider: OpProvider | None = platform.ops()
    if provider is None:
        raise NotApplicable("it brings no ops of its own")
    return provider


def _ops(subject: Subject) -> None:
    provider = _provider(subject)
    ops.check_ops(lambda: provider)


def _linears(subject: Subject) -> None:
    provider = _provider(subject)
    ops.check_linears(lambda: provider)


def _quantized(subject: Subject) -> None:
    provider = _provider(subject)
    canonical.check_quantized(lambda: provider)


def _tiny(subject: Subject) -> None:
    """A tiny model on the platform's device and ops gives the references' logits."""
    platform, devices = _present(subject)
    device, provider = platform.torch_device(devices[0].index), platform.ops()
    prompts = [[5, 17, 80, 2, 9, 41, 7], [3]]
    setting = Setting(device=device, providers=() if provider is None else (provider,))
    expected, got = tiny_decoder(Setting()).logits(prompts, chunk=4), tiny_decoder(setting).logits(prompts, chunk=4)
    worst = max(float((a - b).abs().max()) for a, b in zip(got, expected, strict=True))
    assert worst <= 1e-4, f"logits are off by {worst:.3g}"
