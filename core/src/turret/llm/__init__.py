"""The offline door: `LLM`.

Owns: prompts in, finished answers out, in one call and in this process. Knows nothing of HTTP.

    from turret import LLM, SamplingParams

    with LLM(model="demo") as llm:
        outputs = llm.generate(["The capital of France is"], SamplingParams(temperature=0))
"""

from turret.llm.beams import BeamSearchOutput, BeamSearchParams, BeamSearchSequence
from turret.llm.door import LLM
from turret.llm.outputs import CompletionOutput, Logprob, Metric, RequestOutput
from turret.llm.prompts import PromptInput

__all__ = [
    "LLM", "BeamSearchOutput", "BeamSearchParams", "BeamSearchSequence", "CompletionOutput", "Logprob", "Metric",
    "PromptInput", "RequestOutput",
]  # fmt: skip
