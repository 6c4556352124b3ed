"""Which device a replica runs on.

Owns: the reading of `--device` and the rule from a replica's rank to a device. Knows nothing of what devices can do:
the list is the platform's own, as its probe found it.

The rule: `--device NAME` puts rank 0 on the first device of the list, rank 1 on the second, and so on;
`--device NAME:I,J,K` names the device of each rank. A device holds one replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turret.contracts import DeviceInfo, Platform
from turret.errors import ConfigError
from turret.plugins import PluginHost

__all__ = ["Replica", "choose_device"]


@dataclass(frozen=True, slots=True)
class Replica:
    """One of `size` engines with the same model."""

    rank: int = 0
    size: int = 1


_ALONE = Replica()


def choose_device(device: str, host: PluginHost, replica: Replica = _ALONE) -> tuple[Platform, DeviceInfo]:
    """The platform that `--device` means (`auto`, `cpu`, `cuda:1`, `cuda:0,2`), probed, and this replica's device.

    Raises `ConfigError` when there are fewer devices than replicas, or not those that were named.
    """
    name, _, numbers = device.partition(":")
    candidate = host.select("platform", explicit=None if name == "auto" else name).require()
    platform: Platform = host.load(candidate)
    devices = host.devices(candidate)
    host.found_hardware({platform.name} | {f"{platform.name}::{f}" for d in devices for f in d.features})
    if numbers:
        return platform, _named(device, platform.name, devices, replica)
    if replica.size > len(devices):
        raise ConfigError(
            f"--data-parallel-size {replica.size} needs as many devices, one for each replica, and platform "
            f"{platform.name} has {_listed(platform.name, devices)}; lower it to {len(devices)}, or start more servers "
            "behind a load balancer",
            "data-parallel-size",
        )
    return platform, devices[replica.rank]


def _named(device: str, name: str, devices: Sequence[DeviceInfo], replica: Replica) -> DeviceInfo:
    _, _, text = device.partition(":")
    numbers = text.split(",")
    if not all(n.isdigit() for n in numbers):
        raise ConfigError(
            f"--device {device} must read NAME, NAME:INDEX (such as cuda:1) or NAME:INDEX,INDEX,...", "device"
        )
    by_index = {str(d.index): d for d in devices}
    if missing := [n for n in numbers if n not in by_index]:
        raise ConfigError(
            f"--device {name}:{missing[0]} is not there; found {', '.join(f'{name}:{i}' for i in by_index) or 'none'}",
            "device",
        )
    if len(numbers) != replica.size or len(set(numbers)) != len(numbers):
        raise ConfigError(
            f"--device {device} names {len(set(numbers))} different devices for --data-parallel-size {replica.size}; "
            "name one for each replica",
            "device",
        )
    return by_index[numbers[replica.rank]]


def _listed(name: str, devices: Sequence[DeviceInfo]) -> str:
    """Count and names, as a sentence has them."""
    names = ", ".join(f"{name}:{d.index} ({d.name})" for d in devices)
    return f"{len(devices)}: {names}" if devices else "none"
