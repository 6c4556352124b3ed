"""Cases of model architectures: built tiny, run in several ways, the same logits each time.

Owns these checks. Knows no family: configs come from the plugin. Equality with another implementation of the same
family is the plugin's own test; here a model is held against itself and its contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from turret.contracts import AttentionNeed
from turret.testing.cases import Case, NotApplicable, Subject
from turret.testing.samples import ModelSample
from turret.testing.tiny import Setting, TinyModel

__all__ = ["build"]

TOLERANCE = 1e-4
STRANGER = "no.such.layer.weight"


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("contract", "attention_needs_agree", _needs, subject)
    yield subject.case("contract", "weights_cover_parameters", _weights, subject)
    yield subject.case("end_to_end", "chunks_and_batches_agree", _chunks, subject)
    yield subject.case("end_to_end", "order_matters", _order, subject)


def _samples(subject: Subject) -> list[ModelSample]:
    """The samples of this architecture."""
    found: list[ModelSample] = subject.samples(ModelSample)
    mine = [one for one in found if subject.candidate.name in one.config.get("architectures", [subject.candidate.name])]
    if not mine:
        raise NotApplicable(f"no sample is a {subject.candidate.name}")
    return mine


def _needs(subject: Subject) -> None:
    """What it says of its attention before it is built is what its layers then ask for."""
    architecture = subject.load()
    for sample in _samples(subject):
        told = set(architecture.attention_needs(sample.config))
        built = TinyModel(architecture, sample.config, Setting())
        asked = {_need(query) for query in built.factory.attention_queries(8, "float32")}
        assert asked == told, f"{sample.name}: attention_needs says {told}, the layers ask for {asked}"
        layers = sorted(layer for group in built.model.kv_groups() for layer in group.layers)
        assert layers == list(range(len(built.factory.attention_layers))), f"{sample.name}: kv_groups miss a layer"


def _need(query: Any) -> AttentionNeed:
    names = AttentionNeed.__dataclass_fields__
    return AttentionNeed(**{name: getattr(query, name) for name in names})


def _weights(subject: Subject) -> None:
    """Every parameter is reached by the name it is stored under; a stranger's name is not known."""
    architecture = subject.load()
    for sample in _samples(subject):
        rule = architecture.weights(sample.config)
        for parameter in TinyModel(architecture, sample.config, Setting()).factory.parameters():
            placement = rule(parameter.name)
            assert placement is not None and not placement.skip, f"{sample.name}: {parameter.name} goes nowhere"
            target = f"{parameter.target}.{parameter.param}"
            found = (placement.target, placement.shard or 0)
            assert found == (target, parameter.shard), f"{sample.name}: {parameter.name} goes to {found}"
        assert rule(STRANGER) is None, f"{sample.name}: it claims to know a tensor called {STRANGER}"


def _vocab(sample: ModelSample) -> int:
    found = sample.vocab_size or sample.config.get("vocab_size")
    assert isinstance(found, int), f"{sample.name}: say vocab_size"
    return found


def _prompts(vocab: int) -> list[list[int]]:
    source = torch.Generator().manual_seed(3)
    return [torch.randint(0, vocab, (length,), generator=source).tolist() for length in (13, 1, 24)]


def _chunks(subject: Subject) -> None:
    """Whole prompts, chunks, single tokens, alone or in a batch: the same logits."""
    architecture = subject.load()
    for sample in _samples(subject):
        model = TinyModel(architecture, sample.config, Setting())
        prompts = _prompts(_vocab(sample))
        whole = model.logits(prompts, chunk=64)
        assert all(bool(torch.isfinite(part).all()) for part in whole), f"{sample.name}: logits that are no numbers"
        assert whole[0].dtype == torch.float32 and whole[0].shape == (13, _vocab(sample))
        ways = {"chunks of 5": model.logits(prompts, chunk=5), "single tokens": model.logits(prompts, chunk=1)}
        ways["alone"] = [model.logits([prompt], chunk=64)[0] for prompt in prompts]
        for way, parts in ways.items():
            worst = max(float((a - b).abs().max()) for a, b in zip(parts, whole, strict=True))
            assert worst <= TOLERANCE, f"{sample.name}: {way} gives other logits, off by {worst:.3g}"


def _order(subject: Subject) -> None:
    """A model that ignores its positions or its context would pass everything else."""
    architecture = subject.load()
    for sample in _samples(subject):
        model = TinyModel(architecture, sample.config, Setting())
        prompt = _prompts(_vocab(sample))[2]
        if prompt[0] == prompt[1]:
            prompt[0] = (prompt[0] + 1) % _vocab(sample)
        swapped = [prompt[1], prompt[0], *prompt[2:]]
        one, other = (model.logits([tokens], chunk=64)[0][-1] for tokens in (prompt, swapped))
        assert float((one - other).abs().max()) > 1e-6, f"{sample.name}: the order of tokens makes no difference"
