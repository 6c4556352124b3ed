"""Building a model and filling it with weights.

Owns: the order of a load, its progress and its errors. Knows no format and no family: the checkpoint names tensors, the
architecture places them, the layer factory packs them.

Peak memory is the model plus its largest layer: tensors are views of mapped files, a layer packs as soon as it is
complete, and pages that were read are given back along the way.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from turret.contracts import Model, ModelContext, QuantContext
from turret.contracts.models import Placement, WeightRule
from turret.errors import LoadError, TurretError
from turret.nn import LayerFactory, OpTable, Quantization
from turret.worker.packed_weights import packed_weights
from turret.worker.setup import ModelSource, WorkerParts
from turret.worker.stored import StoredTensor, release_pages, stored_tensors

__all__ = ["LoadTarget", "LoadedModel", "load_model"]

Progress = Callable[[str, float], None]
_STAGE = "loading weights"
_RELEASE_BYTES = 4 << 20
"""How much is read before its pages are given back."""


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where the model is to live: its device, the ops it calls, and the longest context."""

    device: str
    ops: OpTable
    max_position: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, the factory that made its layers, and how long that took (seconds)."""

    model: Model
    factory: LayerFactory
    seconds: float


def load_model(
    parts: WorkerParts, source: ModelSource, target: LoadTarget, progress: Progress | None = None
) -> LoadedModel:
    """Build the model and fill it. Raises LoadError that names the file and the tensor at fault."""
    began = time.monotonic()
    say = progress or _silent
    dummy = source.load_format == "dummy"
    stored = [] if dummy else stored_tensors(source.checkpoint, source.config, source.map_location)
    factory = LayerFactory(
        source.dtype, target.device, target.max_position, target.ops, _quantization(parts, source, stored))
    context = ModelContext(source.dtype, target.device, target.max_position, factory)
    model = parts.architecture.build(source.config, context)
    say(_STAGE, 0.0)
    if dummy:
        factory.fill_random(source.seed)
    else:
        kept = packed_weights(source, factory)
        restored = kept.restore(factory) if kept is not None else set()
        _fill(factory, _without(restored, parts.architecture.weights(source.config)), stored, say)
        if kept is not None and not restored:
            kept.save(factory)
    try:
        factory.finish()
    except LoadError as error:
        raise LoadError(f"{source.checkpoint.path}: {error}") from None
    say(_STAGE, 1.0)
    return LoadedModel(model, factory, time.monotonic() - began)


def _silent(stage: str, fraction: float) -> None:
    """Progress that nobody asked for."""


def _quantization(parts: WorkerParts, source: ModelSource, stored: Sequence[StoredTensor]) -> Quantization | None:
    if parts.quant is None or not stored:
        return None
    tensors = {t.name: (t.type_name, t.shape) for t in stored}
    specs = parts.quant.parse(QuantContext(source.config, tensors))
    return Quantization(parts.quant, specs) if specs else None


def _fill(factory: LayerFactory, rule: WeightRule, stored: list[StoredTensor], say: Progress) -> None:
    total = max(1, sum(t.data.nbytes for t in stored))
    done = read = 0
    with warnings.catch_warnings():
        # Mapped files are read-only, and torch says so for each tensor. Nothing here writes to weights.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        stored.reverse()
        while stored:
            tensor = stored.pop()
            _place(factory, rule, tensor)
            done, read = done + tensor.data.nbytes, read + tensor.data.nbytes
            if read >= _RELEASE_BYTES:
                release_pages(tensor.data)
                read = 0
            say(_STAGE, done / total)


def _without(restored: set[str], rule: WeightRule) -> WeightRule:
    """The rule, but weights of layers that have theirs are skipped. Their biases are not among what is stored."""
    if not restored:
        return rule

    def placement(name: str) -> Placement | None:
        found = rule(name)
        if found is None or found.skip:
            return found
        target, _, param = found.target.rpartition(".")
        return replace(found, skip=True) if target in restored and param != "bias" else found

    return placement


def _place(factory: LayerFactory, rule: WeightRule, stored: StoredTensor) -> None:
    where = f"{stored.file}: tensor {stored.stored_name!r}"
    placement = rule(stored.name)
    if placement is None:
        raise LoadError(f"{where} has no place in this model; the checkpoint does not match its config's architecture")
    if placement.skip:
        return
    try:
        factory.place(placement, stored.tensor())
    except TurretError as error:
        raise LoadError(f"{where}: {error}") from error
    except (RuntimeError, ValueError, IndexError) as error:
        raise LoadError(f"{where} of shape {stored.shape} and type {stored.type_name} does not fit: {error}") from error
