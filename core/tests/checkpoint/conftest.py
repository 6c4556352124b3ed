"""Files to test with: small GGUF models written by the `gguf` package, the format's own writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

WriteGguf = Callable[..., Path]


def add_metadata(writer: gguf.GGUFWriter, metadata: Mapping[str, Any]) -> None:
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGguf:
    """Writes a GGUF file: architecture, metadata by full key, float32 tensors by name."""

    def write(arch: str, metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray], name: str = "m.gguf") -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, arch)
        add_metadata(writer, metadata)
        for tensor, data in tensors.items():
            writer.add_tensor(tensor, data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write
