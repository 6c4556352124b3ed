"""`turret bench throughput` and `latency`: the engine in this process, without HTTP.

Owns: the prompts and the clock. Knows nothing of engines: it calls `LLM`.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from turret.cli.arguments import read_options
from turret.cli.asking import CommandParser, at_least
from turret.cli.bench_profile import profile_lines
from turret.cli.bench_report import Report
from turret.errors import ConfigError

if TYPE_CHECKING:
    from turret.llm import LLM

__all__ = ["latency", "throughput"]


def throughput(argv: Sequence[str]) -> int:
    """Run many prompts at once; tokens a second."""
    parser = _parser("throughput", throughput.__doc__, 128, 64)
    parser.add_argument("--num-prompts", type=at_least(1), default=100, help="prompts (default: %(default)s)")
    args, options = _parsed(parser, argv)
    with _engine(options) as llm:
        _run(llm, args, [_prompt(llm, args, -1)], 2, False)
        prompts = [_prompt(llm, args, number) for number in range(args.num_prompts)]
        if args.profile:
            llm.start_profile()
        began = time.perf_counter()
        output = _run(llm, args, prompts, args.output_len, True)
        seconds = time.perf_counter() - began
        report = _begun("throughput", llm, args)
    report.add(
        requests=args.num_prompts, seconds=seconds, output_tokens=output,
        prompt_tokens=args.num_prompts * args.input_len, requests_per_second=args.num_prompts / seconds,
        output_tokens_per_second=output / seconds,
        total_tokens_per_second=(output + args.num_prompts * args.input_len) / seconds,
    )  # fmt: skip
    report.show()
    return 0


def latency(argv: Sequence[str]) -> int:
    """Run one batch again and again; milliseconds each."""
    parser = _parser("latency", latency.__doc__, 32, 128)
    parser.add_argument("--batch-size", type=at_least(1), default=1, help="prompts at once (default: %(default)s)")
    parser.add_argument("--num-iters", type=at_least(1), default=10, help="measured runs (default: %(default)s)")
    parser.add_argument("--num-iters-warmup", type=at_least(0), default=2, help="runs before (default: %(default)s)")
    args, options = _parsed(parser, argv)
    taken: list[float] = []
    with _engine(options) as llm:
        for number in tqdm(range(-args.num_iters_warmup, args.num_iters), unit="run", disable=None):
            if number == 0 and args.profile:
                llm.start_profile()
            # New prompts each time: the prefix cache must not answer.
            prompts = [_prompt(llm, args, number * args.batch_size + place) for place in range(args.batch_size)]
            began = time.perf_counter()
            _run(llm, args, prompts, args.output_len, False)
            if number >= 0:
                taken.append(time.perf_counter() - began)
        report = _begun("latency", llm, args)
    report.add(batch_size=args.batch_size, iterations=args.num_iters)
    report.spread("batch_ms", [seconds * 1e3 for seconds in taken])
    report.spread("per_output_token_ms", [seconds / args.output_len * 1e3 for seconds in taken])
    report.show()
    return 0


def _parser(name: str, text: str | None, input_len: int, output_len: int) -> CommandParser:
    parser = CommandParser(
        prog=f"turret bench {name}", description=text, allow_abbrev=False,
        usage=f"turret bench {name} [MODEL] [OPTIONS] [options of turret serve]",
    )  # fmt: skip
    parser.add_argument("--input-len", type=at_least(1), default=input_len, help="tokens a prompt (%(default)s)")
    parser.add_argument("--output-len", type=at_least(1), default=output_len, help="tokens an answer (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="show where time goes, by stage and kernel; slows a bit")
    return parser


def _parsed(parser: CommandParser, argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    args, rest = parser.parse_known_args(list(argv))
    return args, read_options(rest, os.environ)


def _engine(options: Mapping[str, Any]) -> LLM:
    from turret.compose.logs import setup_logging
    from turret.llm import LLM

    setup_logging(str(options.get("log_level", "warning")))
    return LLM(**options)


def _prompt(llm: LLM, args: argparse.Namespace, number: int) -> dict[str, Any]:
    """Random tokens, always the same for the same number."""
    draw, size = random.Random(number), llm.get_tokenizer().vocab_size
    return {"prompt_token_ids": [draw.randrange(size) for _ in range(args.input_len)]}


def _run(llm: LLM, args: argparse.Namespace, prompts: list[dict[str, Any]], output_len: int, show: bool) -> int:
    """Output tokens of all; each answer has its full length."""
    from turret.sampling import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    lengths = [len(o.outputs[0].token_ids) for o in llm.generate(prompts, params, use_tqdm=show)]
    if min(lengths) < output_len:
        raise ConfigError(
            f"an answer ended after {min(lengths)} of {output_len} tokens: the context ends there; lower --input-len "
            f"(now {args.input_len}) or --output-len", "output-len")
    return sum(lengths)


def _begun(name: str, llm: LLM, args: argparse.Namespace) -> Report:
    """The facts every report begins with; a profile is shown first, and kept in the JSON."""
    report, profile = Report(), llm.stop_profile() if args.profile else None
    report.add(measurement=name, model=llm.config.model.model or "demo", input_len=args.input_len,
               output_len=args.output_len)
    if profile is not None:
        print("\n".join(profile_lines(profile)))
        report.attach(profile=profile)
    return report
