"""Files that `torch.save` wrote: which of a directory's hold weights.

Owns: their names and their index. Knows nothing of what is in them, and nothing of torch: `turret.worker` reads them.
"""

from __future__ import annotations

from pathlib import Path

from turret.checkpoint.safetensors_files import read_index
from turret.errors import LoadError

__all__ = ["TORCH_PATTERNS", "torch_files"]

TORCH_INDEX = "pytorch_model.bin.index.json"
TORCH_PATTERNS = ("pytorch_model*.bin", TORCH_INDEX, "*.pt")
"""What is asked of a hub; its json files come anyway."""
_OF_TRAINING = frozenset({"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt",
                          "scheduler.bin", "rng_state.pt"})  # fmt: skip


def torch_files(directory: Path) -> list[Path]:
    """The files of the checkpoint in `directory`, those that an index names where there is one; empty when it has none.

    Raises LoadError for an index that names a file which is not there.
    """
    index = read_index(directory, TORCH_INDEX)
    if index is None:
        for pattern in ("pytorch_model*.bin", "*.bin", "*.pt"):
            if found := sorted(p for p in directory.glob(pattern) if p.name not in _OF_TRAINING):
                return found
        return []
    for tensor, name in index.items():
        if not (directory / name).is_file():
            raise LoadError(
                f"{directory / name}: the file is missing, but {TORCH_INDEX} places tensor {tensor!r} in it"
            )
    return sorted({directory / name for name in index.values()})
