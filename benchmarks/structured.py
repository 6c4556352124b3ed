"""What it costs to keep to a form: time per token with a grammar against the same run without.

Runs the demo in this process with a batch of equal prompts, in alternation: with a JSON schema that no answer finishes,
and without one. Both ignore the end and generate the same number of tokens. `greedy` takes the most likely token,
`sampled` draws at temperature 1; compiling is done before anything is measured. The last line is JSON: seconds of each
run, medians of the ratios of adjacent runs (1.05: 5% more time per token), the ratio of the quickest runs, which other
work on the machine disturbs least, and tokens per second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from turret import LLM, SamplingParams, StructuredOutputsParams

SCHEMA: dict[str, Any] = {
    "type": "array", "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"enum": ["cat", "dog", "bird"]}, "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "age", "kind", "tags"],
    },
}  # fmt: skip
PROMPT = "A list of pets as JSON, each with its name, age, kind and a few tags:\n"


def run(llm: LLM, batch: int, params: SamplingParams) -> float:
    """Seconds of one batch."""
    began = time.perf_counter()
    answers = llm.generate([f"{number}. {PROMPT}" for number in range(batch)], params, use_tqdm=False)
    spent = time.perf_counter() - began
    for answer in answers:
        made = answer.outputs[0]
        assert made.finish_reason == "length" and len(made.token_ids) == params.max_tokens, made.finish_reason
        if params.structured_outputs is not None:
            assert made.text.lstrip().startswith("["), made.text
    return spent


def compare(llm: LLM, args: argparse.Namespace, temperature: float) -> dict[str, Any]:
    """Rounds of both, the first one not counted."""
    plain = SamplingParams(temperature=temperature, max_tokens=args.tokens, ignore_eos=True, seed=1)
    formed = plain.replace(structured_outputs=StructuredOutputsParams(json=SCHEMA))
    pairs = []
    for number in range(args.rounds + 1):
        order = (plain, formed) if number % 2 else (formed, plain)
        spent = {params is formed: run(llm, args.batch, params) for params in order}
        if number:
            pairs.append((spent[False], spent[True]))
    tokens = args.batch * args.tokens
    return {
        "ratio": round(statistics.median(formed / plain for plain, formed in pairs), 4),
        "ratio_of_best": round(min(formed for _, formed in pairs) / min(plain for plain, _ in pairs), 4),
        "seconds": [[round(a, 3), round(b, 3)] for a, b in pairs],
        "tokens_per_second": [round(tokens / statistics.median(column)) for column in zip(*pairs, strict=True)],
    }


def main(argv: list[str] | None = None) -> None:
    """Print a comparison for each way to choose tokens, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    found: dict[str, Any] = {"benchmark": "structured", "batch": args.batch, "tokens": args.tokens}
    with LLM(args.model, max_model_len=1024, max_num_seqs=args.batch) as llm:
        for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            found[name] = compare(llm, args, temperature)
            print(name, found[name])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
