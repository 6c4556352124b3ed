"""llama.cpp through its C API, for benchmarks/cpu.py. Runs in an environment with llama-cpp-python and numpy.

The high-level class of that package has one sequence; this drives `llama_decode` with as many sequences as there are
prompts, which is what its server does, and takes the largest logit.
"""

from __future__ import annotations

import argparse
import ctypes

from cpu_peers.rounds import channel, serve

CONTEXT = 512
BATCH = 2048


def main() -> None:
    answers = channel()
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    import llama_cpp

    engine = LlamaCpp(args.model, args.streams, args.threads)
    serve(answers, engine.generate, version=llama_cpp.__version__)


class LlamaCpp:
    """One model and one context for all sequences."""

    def __init__(self, path: str, streams: int, threads: int) -> None:
        import llama_cpp
        import numpy

        self._api, self._numpy = llama_cpp, numpy
        self._silent = llama_cpp.llama_log_callback(lambda *_: None)  # kept: the library calls it until the end
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = streams * CONTEXT, BATCH, 512
        settings.n_seq_max, settings.kv_unified = streams, False
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(model, settings)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def generate(self, prompts: list[list[int]], output: int) -> int:
        """Prompts whole, packed up to the batch size; then one token of each at a time."""
        self._api.llama_memory_clear(self._memory, True)
        tokens: list[int] = []
        while len(tokens) < len(prompts):
            tokens += self._prefill(prompts, len(tokens))
        for step in range(output - 1):
            rows = [(tokens[s], len(prompt) + step, s, True) for s, prompt in enumerate(prompts)]
            tokens = self._decode(rows)
        return len(prompts) * output

    def _prefill(self, prompts: list[list[int]], first: int) -> list[int]:
        rows: list[tuple[int, int, int, bool]] = []
        for sequence in range(first, len(prompts)):
            prompt = prompts[sequence]
            if len(rows) + len(prompt) > BATCH:
                break
            rows += [(token, at, sequence, at == len(prompt) - 1) for at, token in enumerate(prompt)]
        return self._decode(rows)

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """The likeliest token after each row that asks for one."""
        batch = self._batch
        for row, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[row], batch.pos[row], batch.logits[row] = token, position, wanted
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
        batch.n_tokens = len(rows)
        if code := self._api.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode gave {code}")
        return [self._likeliest(row) for row, (*_, wanted) in enumerate(rows) if wanted]

    def _likeliest(self, row: int) -> int:
        logits = self._api.llama_get_logits_ith(self._context, row)
        return int(self._numpy.ctypeslib.as_array(logits, shape=(self._vocabulary,)).argmax())


if __name__ == "__main__":
    main()
