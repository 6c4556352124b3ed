"""Memory policies: nodes as the system lists them, and the policy as it tells it back."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turret.contracts import WorkerEnv
from turret.errors import NotSupportedError, PluginError
from turret_platform_cpu import platform as cpu_platform
from turret_platform_cpu.numa import interleave_memory, memory_nodes, memory_policy
from turret_platform_cpu.platform import CPUPlatform

ENV = WorkerEnv(device_index=0, rank=0, world_size=1, threads=1)


@pytest.fixture
def policies() -> Iterator[None]:
    """Whether the system lets a process have a policy; the usual one afterwards."""
    try:
        interleave_memory([])
    except PluginError as refusal:
        pytest.skip(str(refusal))
    yield
    interleave_memory([])


def machine(root: Path, has_memory: str, allowed: str | None = None) -> Path:
    """A pretended machine's files."""
    nodes = root / "sys/devices/system/node"
    nodes.mkdir(parents=True)
    (nodes / "has_memory").write_text(has_memory + "\n")
    (nodes / "online").write_text("0-7\n")
    if allowed is not None:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/status").write_text(f"Name:\tx\nMems_allowed:\tff\nMems_allowed_list:\t{allowed}\n")
    return root


@pytest.mark.parametrize(
    ("has_memory", "allowed", "nodes"),
    [("0", None, [0]), ("0-1", None, [0, 1]), ("0-2,5,8-9", "1-8", [1, 2, 5, 8]), ("0-1", "1", [1]),
     ("", None, list(range(8)))],
)  # fmt: skip
def test_nodes_with_memory_that_the_process_may_use(
    has_memory: str, allowed: str | None, nodes: list[int], tmp_path: Path
) -> None:
    assert memory_nodes(machine(tmp_path, has_memory, allowed)) == nodes


def test_without_a_topology_there_are_no_nodes(tmp_path: Path) -> None:
    assert memory_nodes(tmp_path) == []


def test_the_policy_holds_for_threads_started_under_it(policies: None) -> None:
    nodes = memory_nodes() or [0]
    assert memory_policy() == []
    interleave_memory(nodes)
    seen: list[list[int]] = []
    thread = threading.Thread(target=lambda: seen.append(memory_policy()))
    thread.start()
    thread.join()
    assert memory_policy() == nodes and seen == [nodes]
    interleave_memory([])
    assert memory_policy() == []


def test_a_node_that_is_not_there_is_refused(policies: None) -> None:
    with pytest.raises(PluginError, match="refuses"):
        interleave_memory([1000])


def test_several_nodes_are_interleaved_before_threads_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's nodes and the call are pretended; order counts, since threads inherit the policy."""
    events: list[object] = []
    monkeypatch.setattr(cpu_platform, "memory_nodes", lambda: [0, 1])
    monkeypatch.setattr(cpu_platform, "interleave_memory", events.append)
    platform = CPUPlatform({"numa": "interleave"})
    monkeypatch.setattr(platform, "_library", lambda: events.append("threads"))
    platform.start_worker(ENV)
    assert events == [[0, 1], "threads"]


def test_one_node_has_nothing_to_interleave_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu_platform, "memory_nodes", lambda: [0])
    monkeypatch.setattr(cpu_platform, "interleave_memory", lambda nodes: pytest.fail("nothing to interleave"))
    with caplog.at_level(logging.INFO):
        CPUPlatform({"numa": "interleave"}).start_worker(ENV)
    assert "one node" in caplog.text


def test_one_copy_per_node_is_refused_with_the_reason() -> None:
    with pytest.raises(NotSupportedError, match="replicate"):
        CPUPlatform({"numa": "replicate"})
