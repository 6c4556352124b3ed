"""Frozen values that cross rooms and processes, as msgspec structs.

Owns: the shapes of what the front end, the engine and the workers tell each other. Knows nothing of torch, HTTP or
queues. Only plain data lives here; tensors never cross, pickle never happens.
"""

from turret.messages.frames import (
    DRAINED_STATS,
    Abort,
    ClientFrame,
    EngineFailure,
    EngineFrame,
    EngineReady,
    EngineStats,
    Events,
    Forget,
    Shutdown,
    Submit,
    Utility,
    UtilityReply,
    Watch,
)
from turret.messages.grammar import GrammarProgram
from turret.messages.kv import KVCacheConfig, KVGroup, KVGroupKind
from turret.messages.request import FinishReason, Request, TokenEvent, TokenLogprobs
from turret.messages.step import NewRequest, RequestResult, RunningRequest, StepPlan, StepResult, WorkerFacts
from turret.messages.thinking import ThinkingBudget

__all__ = [
    "DRAINED_STATS",
    "Abort",
    "ClientFrame",
    "EngineFailure",
    "EngineFrame",
    "EngineReady",
    "EngineStats",
    "Events",
    "FinishReason",
    "Forget",
    "GrammarProgram",
    "KVCacheConfig",
    "KVGroup",
    "KVGroupKind",
    "NewRequest",
    "Request",
    "RequestResult",
    "RunningRequest",
    "Shutdown",
    "StepPlan",
    "StepResult",
    "Submit",
    "ThinkingBudget",
    "TokenEvent",
    "TokenLogprobs",
    "Utility",
    "UtilityReply",
    "Watch",
    "WorkerFacts",
]
