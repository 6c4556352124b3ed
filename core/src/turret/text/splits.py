"""How text is cut into words before byte-level BPE, by the name a GGUF file gives (`tokenizer.ggml.pre`).

Owns: that table. Knows nothing of files. The expressions are those the models were trained with, as their
tokenizer.json files state them.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, pre_tokenizers

__all__ = ["SPLITS", "SplitRule"]

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(digits: str) -> str:
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"


def _cased(digits: str, contractions: str) -> str:
    """Words split where upper case follows lower case (the o200k family)."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}{upper}*{lower}+{contractions}|{lead}{upper}+{lower}*{contractions}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
    )


@dataclass(frozen=True, slots=True)
class SplitRule:
    """One way to cut: by `patterns`, each applied to what the one before left, or GPT-2's own cut when there are none.

    `individual_digits` puts every digit alone first. `nfc` composes characters before anything else. `ignore_merges`
    takes a whole word that is in the vocabulary as it is. `default_bos` is whether text begins with bos when the file
    does not say.
    """

    patterns: tuple[str, ...] = ()
    individual_digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    default_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The library's pre-tokenizer for this rule."""
        steps: list[pre_tokenizers.PreTokenizer] = []
        if self.individual_digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        steps += [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in self.patterns]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.patterns))
        return pre_tokenizers.Sequence(steps)


_GPT2 = SplitRule()
_DIGITS = SplitRule(individual_digits=True)
_LLAMA3 = SplitRule((_cl100k(r"\p{N}{1,3}"),), ignore_merges=True, default_bos=True)
_CL100K = SplitRule((_cl100k(r"\p{N}{1,3}"),))
_QWEN2 = SplitRule((_cl100k(r"\p{N}"),), nfc=True)
_TEKKEN = SplitRule((_cased(r"\p{N}", ""),), ignore_merges=True)
_O200K = SplitRule((_cased(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"),))
_DEEPSEEK3 = SplitRule((
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}",
))  # fmt: skip

SPLITS: MappingProxyType[str, SplitRule] = MappingProxyType({
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "roberta-bpe"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), _CL100K),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "trillion"), _QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _O200K),
    "tekken": _TEKKEN,
    "deepseek-v3": _DEEPSEEK3,
})  # fmt: skip
"""Rules by the name GGUF files use."""
