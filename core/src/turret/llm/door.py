"""`LLM`: the engine in this process, behind plain calls.

Owns: the engine it starts and the calls users of vLLM know. Knows nothing of HTTP or processes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn, Self

from turret.compose.offline import OfflineParts, build_offline
from turret.config import Config, option_table
from turret.config.refused import refusal
from turret.errors import ConfigError, EngineError, NotSupportedError, RequestError
from turret.llm.beams import BeamSearchOutput, BeamSearchParams, run_beams
from turret.llm.collect import Batch
from turret.llm.loading import LoadBar
from turret.llm.outputs import Metric, RequestOutput
from turret.llm.prompts import EncodedPrompt, PromptInput, encode_prompts, pair_with
from turret.sampling import SamplingParams
from turret.server.beam_steps import check_beams, first_requests
from turret.server.expansion import Expander, Generation
from turret.server.lengths import Limits
from turret.server.structure import program_of
from turret.text import ChatOptions, ContentFormat, Tokenizer

__all__ = ["LLM"]

_DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_COUNTERS = (
    "prefix_cache_queries_total", "prefix_cache_hits_total", "preemptions_total", "prompt_tokens_total",
    "generation_tokens_total", "prompt_tokens_cached_total", "forward_seconds_total",
)  # fmt: skip
_OF_METRICS = frozenset({"kv_cache_metrics", "kv_cache_metrics_sample"})
"""Options of what only `/metrics` tells."""
_GAUGES = ("num_running", "num_waiting", "kv_cache_usage")


class LLM:
    """A model to call.

    `model` and the options are those of `turret serve`, with underscores (`LLM(model="demo", max_model_len=2048)`); see
    `turret serve --help`. Raises `ConfigError` for an unknown or refused option, `LoadError` or `PluginError` when the
    model cannot be served. Close it, or use it in a `with`, to give the memory back.
    """

    def __init__(self, model: str | None = None, **options: Any) -> None:
        if model is not None:
            options["model"] = model
        options = _checked(options)
        self.config = Config.from_options(options)
        with LoadBar(self.config.load.use_tqdm_on_load) as bar:
            parts = build_offline(self.config, tuple(options), bar.update)
        self._parts = parts
        self._expander = Expander(self.config.model.seed, parts.checkpoint.eos_token_ids, parts.text)
        self._limits = Limits(parts.max_model_len)
        self._serial = 0
        self._closer = weakref.finalize(self, _end, parts)

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: None = None,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Continue one or many prompts; results in input order.

        A prompt is a text, a list of token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}`. Without
        `sampling_params` the model's own defaults hold; one for all prompts, or one for each. Raises `RequestError` (a
        `ValueError`) before anything runs when a prompt or a parameter is wrong; a request that fails in the engine is
        marked with `finish_reason` "error" and leaves the others alone.
        """
        _refuse_lora(lora_request)
        return self._run(encode_prompts(self._parts.text, prompts), sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        lora_request: None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or a list of them; results in input order. Errors as in `generate`."""
        _refuse_lora(lora_request)
        if mm_processor_kwargs:
            raise RequestError("mm_processor_kwargs: this version serves text only", "mm_processor_kwargs")
        options = ChatOptions(
            add_generation_prompt=add_generation_prompt and not continue_final_message,
            continue_final_message=continue_final_message,
            tools=tools,
            kwargs=chat_template_kwargs or {},
            content_format=ContentFormat(chat_template_content_format),
        )
        conversations: Any = [messages] if not messages or isinstance(messages[0], Mapping) else messages
        prompts = []
        for conversation in conversations:
            rendered = self._parts.text.encode_chat(conversation, options, chat_template)
            prompts.append(EncodedPrompt(rendered.token_ids, rendered.text))
        return self._run(prompts, sampling_params, use_tqdm, None)

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self._parts.text.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What holds when a call names no parameters: the model's generation config, else the built-in defaults."""
        defaults = self._parts.generation_defaults
        chosen = {name: defaults[name] for name in _DEFAULTED if defaults.get(name) is not None}
        if defaults.get("max_new_tokens") is not None:
            chosen["max_tokens"] = defaults["max_new_tokens"]
        return SamplingParams(**chosen)

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False when blocks in use prevent it."""
        return bool(self._parts.engine.call("reset_prefix_cache"))

    def start_profile(self) -> None:
        """Count from now on where the time of steps goes."""
        self._parts.engine.call("worker", "profile", "start")

    def stop_profile(self) -> dict[str, Any]:
        """What was counted since: `steps`, seconds of `stages`, and `kernels` (name, detail, calls, seconds,
        weight_bytes, operations), where the platform counts them. Raises `EngineError` if nothing was started."""
        found: dict[str, Any] | None = self._parts.engine.call("worker", "profile", "stop")
        if found is None:
            raise EngineError("no profile was started: call start_profile first")
        return found

    def get_metrics(self) -> list[Metric]:
        """The engine's counters and gauges."""
        stats = self._parts.engine.stats
        return [
            *(Metric(f"turret:{name}", "counter", getattr(stats, name)) for name in _COUNTERS),
            *(Metric(f"turret:{name}", "gauge", getattr(stats, name)) for name in _GAUGES),
        ]

    def shutdown(self) -> None:
        """End the engine and give its memory back; safe to repeat."""
        self._closer()

    close = shutdown

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def beam_search(
        self, prompts: PromptInput | Sequence[PromptInput], params: BeamSearchParams, lora_request: None = None
    ) -> list[BeamSearchOutput]:
        """The `params.beam_width` best continuations of each prompt; their text and tokens include the prompt."""
        _refuse_lora(lora_request)
        jobs = []
        for prompt in encode_prompts(self._parts.text, prompts):
            job = replace(self._job(prompt, params.sampling(), 0), length_penalty=params.length_penalty)
            check_beams(job, self.config.model.logprobs_mode)
            jobs.append((job, self._expander.expand(first_requests(job)), prompt.text))
        return run_beams(self._parts.text, self._parts.engine, jobs)

    def encode(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not in this version."""
        raise NotSupportedError("pooling models are not in this version; generate and chat are what LLM offers")

    embed = classify = score = reward = encode

    def _run(
        self,
        prompts: list[EncodedPrompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
        priority: Sequence[int] | None,
    ) -> list[RequestOutput]:
        paired = pair_with(self.get_default_sampling_params() if params is None else params, len(prompts))
        if priority is not None and len(priority) != len(prompts):
            raise RequestError(f"there are {len(prompts)} prompts but {len(priority)} priorities", "priority")
        batch = Batch(self._parts.text, self._parts.engine)
        for position, (prompt, its_params) in enumerate(zip(prompts, paired, strict=True)):
            try:
                job = self._job(prompt, its_params, priority[position] if priority is not None else 0)
                batch.add(job, self._expander.expand(job), prompt.text)
            except RequestError as error:
                raise RequestError(f"prompt {position}: {error}", error.param) from error
        return batch.run(use_tqdm)

    def _job(self, prompt: EncodedPrompt, params: SamplingParams, priority: int) -> Generation:
        params.check_against_model(self._parts.vocab_size, self.config.model.max_logprobs)
        room = self._limits.resolve(len(prompt.token_ids), None)
        self._serial += 1
        return Generation(
            request_id=str(self._serial - 1),
            prompts=(prompt.token_ids,),
            params=params,
            max_tokens=(room if params.max_tokens is None else min(room, params.max_tokens),),
            grammar=program_of(self._parts.grammars, params.structured_outputs, self.config.structured),
            priority=priority,
            cache_salt=prompt.cache_salt,
        )


def _end(parts: OfflineParts) -> None:
    parts.grammars.close()
    parts.engine.shutdown()


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse what this version lacks and what only a server has; drop what asks for nothing."""
    server_only = {o.field for o in option_table(Config) if o.section in ("server", "tls")} | _OF_METRICS
    kept = {}
    for name, value in options.items():
        if name in server_only:
            raise ConfigError(f"{name} is an option of `turret serve`; LLM has no server", name)
        known = refusal(name.replace("_", "-"))
        if known is None:
            kept[name] = value
        elif not known.asks_for_nothing(value):
            raise ConfigError(f"{name}: {known.sentence}", name)
    return kept


def _refuse_lora(lora_request: object) -> None:
    if lora_request is not None:
        raise NotSupportedError("adapters are not in this version; merge the adapter into the weights")
