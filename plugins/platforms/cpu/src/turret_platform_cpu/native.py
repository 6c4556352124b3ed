"""The native library: loading it, calling it, and the memory of packed weights.

Owns: the C ABI as Python sees it. Knows no op contract and no torch; pointers are plain ints.

Arguments of an op are a C struct (native/kernels.h), packed here with `struct`: one call costs about a microsecond,
where filling a ctypes structure costs several.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from turret.errors import PluginError

__all__ = [
    "ABI_VERSION",
    "LEVEL_VARIABLE",
    "LIBRARY_VARIABLE",
    "BadArgumentError",
    "Native",
    "Op",
    "PackedWeight",
    "library_path",
    "load",
    "refuse",
]

ABI_VERSION = 12
LEVEL_VARIABLE = "TURRET_CPU_LEVEL"
"""Environment variable that names the ISA level to run instead of the best one (see `Native.levels`)."""

LIBRARY_VARIABLE = "TURRET_CPU_LIBRARY"
"""Environment variable that names another build of the library, such as one with sanitizers."""

OPS = {
    "tc_linear": "PPqPqqPiiiiiiiP",
    "tc_rows": "PPPqqi",
    "tc_embedding": "PPPqqqfii",
    "tc_norm": "PPPPqqqqqqqqffiiii",
    "tc_layer_norm": "PPPPqqqqqqqfiiii",
    "tc_rotary": "PPqqqqPPqqqqii",
    "tc_gated": "PPqqqqii",
    "tc_pointwise": "PPqqqqfiii",
    "tc_softcap": "Pqfi",
    "tc_argmax": "PPPqqq",
    "tc_sample": "PqqqPq",
    "tc_route": "PPPPqqqfii",
    "tc_add_gated": "PPPqqqqqii",
    "tc_experts": "PPPPPqqqqqiiiiPP",
    "tc_attention": "PPPPPqqqqPPPPqqqqqqqqqffPPiiiiPq",
}
"""Each op's struct in the notation of the `struct` module, native alignment."""

_SHAPE = struct.Struct("@qq")
_CODES = struct.Struct("@PPPPPqqqqqqiii0q")
REASONS = {
    -1: "an argument is out of range",
    -2: "no memory for scratch",
    -3: "a number is not finite, or its columns' order is none",
}

Op = Callable[..., None]


class BadArgumentError(ValueError):
    """The library refused an argument, such as a token id beyond the vocabulary."""


class PackedWeight:
    """Memory of one packed weight; freed when the last reference goes."""

    __slots__ = ("__weakref__", "_free", "bytes", "handle", "in_features", "out_features")

    def __init__(self, handle: int, size: int, shape: tuple[int, int], free: Callable[[int], None]) -> None:
        self.handle = handle
        self.bytes = size
        self.out_features, self.in_features = shape
        self._free = free

    def __del__(self) -> None:
        self._free(self.handle)


@dataclass(frozen=True, slots=True)
class Native:
    """The loaded library. Its thread pool and its ISA level belong to the process."""

    library: ctypes.CDLL

    def level(self) -> str:
        """The ISA level in use."""
        name: bytes = self.library.tc_level()
        return name.decode()

    def levels(self) -> list[str]:
        """ISA levels that this machine can run, best first."""
        buffer = ctypes.create_string_buffer(256)
        self.library.tc_levels(buffer, len(buffer))
        return buffer.value.decode().split()

    def use_level(self, name: str) -> None:
        """Run another level; raises PluginError if it does not run here."""
        if self.library.tc_use_level(name.encode()) != 0:
            raise PluginError(
                f"{LEVEL_VARIABLE}={name!r} does not run on this CPU; levels here: {', '.join(self.levels())}"
            )

    def start(self, threads: int, cpus: Sequence[int]) -> None:
        """Start the thread pool (or restart it with other numbers)."""
        array = (ctypes.c_int * len(cpus))(*cpus)
        if self.library.tc_start(threads, array, len(cpus)) != 0:
            raise PluginError(f"cannot start {threads} compute threads")

    def threads(self) -> int:
        """Threads of the pool."""
        return int(self.library.tc_threads())

    def op(self, name: str) -> Op:
        """The function of an op: takes the fields of its struct, raises BadArgumentError or MemoryError."""
        function = getattr(self.library, name)
        pack = struct.Struct(f"@{OPS[name]}0q").pack  # padded at the end as C pads it

        def call(*fields: float) -> None:
            code = function(pack(*fields))
            if code:
                refuse(name, code)

        return call

    def pack_blocks(self, block_type: int, rows: int, row_bytes: int, shape: tuple[int, int]) -> PackedWeight:
        """Pack rows of ggml blocks at address `rows`."""
        return self._own(self.library.tc_pack_blocks(block_type, rows, row_bytes, *shape), shape)

    def pack_plain(self, element: int, rows: int, stride: int, shape: tuple[int, int]) -> PackedWeight:
        """Pack float32 (0), bfloat16 (1) or float16 (2) rows at address `rows`, `stride` elements apart."""
        return self._own(self.library.tc_pack_plain(element, rows, stride, *shape), shape)

    def pack_codes(self, fields: Sequence[int], shape: tuple[int, int]) -> PackedWeight:
        """Pack codes and their scales, by the fields of `CodesArgs` (native/packed.h). Raises BadArgumentError for what
        no format is, or numbers that are not finite."""
        handle = ctypes.c_void_p()
        code = self.library.tc_pack_codes(_CODES.pack(*fields), ctypes.byref(handle))
        if code in REASONS and code != -2:
            raise BadArgumentError(f"packing a weight of {shape[0]} x {shape[1]}: {REASONS[code]}")
        return self._own(handle.value, shape)

    def packed_header(self, packed: PackedWeight) -> bytes:
        """What `place` needs to know of a packed weight beside its bytes."""
        size = self.library.tc_packed_header(packed.handle, None, 0)
        header = ctypes.create_string_buffer(size)
        self.library.tc_packed_header(packed.handle, header, size)
        return _SHAPE.pack(packed.out_features, packed.in_features) + header.raw

    def packed_memory(self, packed: PackedWeight) -> memoryview:
        """The bytes of a packed weight, which lives as long as the view does."""
        memory = (ctypes.c_char * packed.bytes).from_address(self.library.tc_packed_data(packed.handle))
        memory.owner = packed  # type: ignore[attr-defined]
        return memoryview(memory).cast("B")

    def alike(self, one: PackedWeight, other: PackedWeight) -> bool:
        """Whether two weights have one shape and are packed in the same way."""
        return bool(self.library.tc_packed_alike(one.handle, other.handle))

    def place(self, header: bytes) -> PackedWeight:
        """A packed weight with the header of another and memory that is not filled yet. Raises ValueError."""
        if len(header) < _SHAPE.size:
            raise ValueError("not the header of a packed weight")
        shape = _SHAPE.unpack_from(header)
        handle = self.library.tc_packed_place(header[_SHAPE.size :], len(header) - _SHAPE.size)
        if not handle:
            raise ValueError("not the header of a packed weight, or no memory for it")
        return PackedWeight(handle, int(self.library.tc_packed_bytes(handle)), shape, self.library.tc_free)

    def _own(self, handle: int | None, shape: tuple[int, int]) -> PackedWeight:
        if not handle:
            raise MemoryError(f"no memory to pack a weight of {shape[0]} x {shape[1]}")
        return PackedWeight(handle, int(self.library.tc_packed_bytes(handle)), shape, self.library.tc_free)


def refuse(name: str, code: int) -> None:
    """Raise what an op's return code means."""
    if code == -2:
        raise MemoryError(f"{name}: {REASONS[code]}")
    raise BadArgumentError(f"{name}: {REASONS.get(code, f'code {code}')}")


def library_path() -> Path:
    """Where the library lies if it was built."""
    return Path(os.environ.get(LIBRARY_VARIABLE) or Path(__file__).with_name("libturret_cpu.so"))


def load() -> Native | None:
    """The library, or None if it was not built. Raises PluginError if it is there but unusable."""
    path = library_path()
    if not path.is_file():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError as exc:
        raise PluginError(f"{path} cannot be loaded ({exc}); reinstall turret-platform-cpu on this machine") from exc
    found = library.tc_abi_version()
    if found != ABI_VERSION:
        raise PluginError(f"{path} has ABI {found}, expected {ABI_VERSION}; reinstall turret-platform-cpu")
    _declare(library)
    native = Native(library)
    wanted = os.environ.get(LEVEL_VARIABLE)
    if wanted and wanted != native.level():
        native.use_level(wanted)
    return native


def _declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the signatures."""
    pointer, integer, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    signatures: dict[str, tuple[object, list[object]]] = {
        "tc_abi_version": (integer, []),
        "tc_level": (ctypes.c_char_p, []),
        "tc_levels": (integer, [ctypes.c_char_p, integer]),
        "tc_use_level": (integer, [ctypes.c_char_p]),
        "tc_start": (integer, [integer, pointer, integer]),
        "tc_threads": (integer, []),
        "tc_pack_blocks": (pointer, [integer, pointer, wide, wide, wide]),
        "tc_pack_plain": (pointer, [integer, pointer, wide, wide, wide]),
        "tc_pack_codes": (integer, [ctypes.c_char_p, pointer]),
        "tc_free": (None, [pointer]),
        "tc_packed_bytes": (wide, [pointer]),
        "tc_packed_alike": (integer, [pointer, pointer]),
        "tc_packed_header": (wide, [pointer, pointer, wide]),
        "tc_packed_data": (pointer, [pointer]),
        "tc_packed_place": (pointer, [ctypes.c_char_p, wide]),
        "tc_program_new": (pointer, []),
        "tc_program_free": (None, [pointer]),
        "tc_program_steps": (wide, [pointer]),
        "tc_program_fault": (ctypes.c_char_p, [pointer]),
        "tc_program_fuse": (None, [pointer]),
        "tc_record_start": (integer, [pointer, ctypes.c_char_p]),
        "tc_record_stop": (None, []),
        "tc_replay": (integer, [pointer, ctypes.c_char_p, wide, wide]),
        **{name: (integer, [ctypes.c_char_p]) for name in OPS},
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
