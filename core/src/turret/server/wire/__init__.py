"""Wire models: the JSON shapes of requests and answers, as msgspec structs.

Owns: field names, types and defaults. Knows nothing of how a request is carried out. Unknown fields are ignored, as
OpenAI clients expect; a field that is null means the same as one that is absent.
"""

from turret.server.wire.answers import (
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatMessage,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionTokensDetails,
    ErrorBody,
    ErrorInfo,
    ModelCard,
    ModelList,
    PromptTokensDetails,
    TokenAnswer,
    TokenChance,
    TokenChoice,
    TokenLogprob,
    Usage,
)
from turret.server.wire.requests import (
    AbortRequest,
    CallFields,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    GenerateRequest,
    SamplingFields,
    StreamOptions,
    TokenizeRequest,
    TokenSampling,
)

__all__ = [
    "AbortRequest",
    "CallFields",
    "ChatChoice",
    "ChatCompletion",
    "ChatLogprobs",
    "ChatMessage",
    "ChatRequest",
    "Completion",
    "CompletionChoice",
    "CompletionLogprobs",
    "CompletionRequest",
    "CompletionTokensDetails",
    "DetokenizeRequest",
    "ErrorBody",
    "ErrorInfo",
    "GenerateRequest",
    "ModelCard",
    "ModelList",
    "PromptTokensDetails",
    "SamplingFields",
    "StreamOptions",
    "TokenAnswer",
    "TokenChance",
    "TokenChoice",
    "TokenLogprob",
    "TokenSampling",
    "TokenizeRequest",
    "Usage",
]
