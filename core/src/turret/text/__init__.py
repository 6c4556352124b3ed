"""Text: tokenizer, chat templates, incremental detokenizer, stop strings.

Owns: everything between strings and token ids. Knows nothing of engines, HTTP or torch; importing it imports neither
torch nor transformers.

    text = TextProcessor.open(checkpoint)                         # tokenizer + template + context length
    prompt = text.encode_chat(messages, ChatOptions(tools=...))   # .text, .token_ids
    ids = text.encode_prompt("Once upon a time")                  # or a list of ids
    out = text.output(sampling, prompt_token_ids=ids)             # one per sequence
    delta = out.push(new_ids, finished=False)                     # .text, .stop_reason, .num_tokens
    text.bad_words_ids(sampling.bad_words)                        # token sequences for the sampler
    text.tokenizer.decode(ids); text.tokenizer.token_bytes(id); text.tokenizer.piece(id)
"""

from turret.text.chat import ChatOptions, ChatTemplate, read_template
from turret.text.content_format import ContentFormat
from turret.text.detokenizer import Detokenizer
from turret.text.load import TokenizerOptions, load_tokenizer
from turret.text.output import OutputText, TextDelta
from turret.text.processor import ChatPrompt, TextOptions, TextProcessor, Truncation
from turret.text.stops import StopAutomaton, StopMatch, StopMatcher
from turret.text.tokenizer import FastTokenizer, SpecialTokens, Tokenizer
from turret.text.vocabulary import grammar_vocabulary

__all__ = [
    "ChatOptions",
    "ChatPrompt",
    "ChatTemplate",
    "ContentFormat",
    "Detokenizer",
    "FastTokenizer",
    "OutputText",
    "SpecialTokens",
    "StopAutomaton",
    "StopMatch",
    "StopMatcher",
    "TextDelta",
    "TextOptions",
    "TextProcessor",
    "Tokenizer",
    "TokenizerOptions",
    "Truncation",
    "grammar_vocabulary",
    "load_tokenizer",
    "read_template",
]
