"""Contracts between core and plugins: Protocols and the values they exchange, one module a kind.

Owns: what plugin authors implement. Knows no implementation; imports torch for typing only.

`CONTRACT_VERSIONS` is the version core serves of each kind; majors N and N-1 are accepted through adapters.
"""

from turret.contracts.attention import (
    AttentionBackend,
    AttentionBatch,
    AttentionCall,
    AttentionQuery,
    KVLayout,
    KVSpec,
)
from turret.contracts.endpoints import (
    ChatAnswer,
    ChatFinish,
    ChatUsage,
    Endpoint,
    EndpointAnswer,
    EndpointCall,
    EndpointFault,
    EndpointHost,
    EndpointRoute,
    EndpointStream,
)
from turret.contracts.graphs import (
    GraphRecorder,
    Program,
    RecordingPlatform,
    SplitProgram,
    SplittingRecorder,
    StepBindings,
    Variation,
)
from turret.contracts.listeners import (
    CompletionAnswer,
    CompletionPart,
    EndpointListener,
    ListenerHost,
    ListenerPlace,
    ListeningEndpoint,
    ServerFacts,
)
from turret.contracts.models import AttentionNeed, Model, ModelArchitecture, ModelContext, Placement, WeightRule
from turret.contracts.ops import (
    OP_NAMES,
    ExpertWeights,
    LinearCall,
    LinearKernel,
    LinearQuery,
    MoECall,
    OpProvider,
    Routing,
    StorableKernel,
)
from turret.contracts.parsers import (
    ContentDelta,
    ParserContext,
    ParserEvent,
    ParserSession,
    ReasoningDelta,
    ReasoningParser,
    ThinkingMarks,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolParser,
)
from turret.contracts.platform import ConfigPatch, ConfigView, DeviceInfo, MemoryInfo, Platform, WorkerEnv
from turret.contracts.policy import DisplacingPolicy, RequestView, SchedulerPolicy
from turret.contracts.profiling import KernelTime, ProfilingPlatform
from turret.contracts.quant import LayerSpec, ParamSpec, QuantContext, QuantizedWeight, QuantMethod, QuantSpec
from turret.contracts.sample import SampleFault, SampleOutcome, SampleRow
from turret.contracts.structured import (
    Grammar,
    GrammarCompiler,
    GrammarMatcher,
    GrammarSpec,
    StructuredBackend,
    Vocabulary,
)
from turret.contracts.verdict import Verdict
from turret.contracts.worker import WatchableWorker, Worker, WorkerOrder, WorkerPlatform
from turret.plugins.kinds import KINDS

CONTRACT_VERSIONS = {kind.name: kind.api for kind in KINDS.values()}

__all__ = [
    "CONTRACT_VERSIONS",
    "OP_NAMES",
    "AttentionBackend",
    "AttentionBatch",
    "AttentionCall",
    "AttentionNeed",
    "AttentionQuery",
    "ChatAnswer",
    "ChatFinish",
    "ChatUsage",
    "CompletionAnswer",
    "CompletionPart",
    "ConfigPatch",
    "ConfigView",
    "ContentDelta",
    "DeviceInfo",
    "DisplacingPolicy",
    "Endpoint",
    "EndpointAnswer",
    "EndpointCall",
    "EndpointFault",
    "EndpointHost",
    "EndpointListener",
    "EndpointRoute",
    "EndpointStream",
    "ExpertWeights",
    "Grammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "GrammarSpec",
    "GraphRecorder",
    "KVLayout",
    "KVSpec",
    "KernelTime",
    "LayerSpec",
    "LinearCall",
    "LinearKernel",
    "LinearQuery",
    "ListenerHost",
    "ListenerPlace",
    "ListeningEndpoint",
    "MemoryInfo",
    "MoECall",
    "Model",
    "ModelArchitecture",
    "ModelContext",
    "OpProvider",
    "ParamSpec",
    "ParserContext",
    "ParserEvent",
    "ParserSession",
    "Placement",
    "Platform",
    "ProfilingPlatform",
    "Program",
    "QuantContext",
    "QuantMethod",
    "QuantSpec",
    "QuantizedWeight",
    "ReasoningDelta",
    "ReasoningParser",
    "RecordingPlatform",
    "RequestView",
    "Routing",
    "SampleFault",
    "SampleOutcome",
    "SampleRow",
    "SchedulerPolicy",
    "ServerFacts",
    "SplitProgram",
    "SplittingRecorder",
    "StepBindings",
    "StorableKernel",
    "StructuredBackend",
    "ThinkingMarks",
    "ToolArgumentsDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolParser",
    "Variation",
    "Verdict",
    "Vocabulary",
    "WatchableWorker",
    "WeightRule",
    "Worker",
    "WorkerEnv",
    "WorkerOrder",
    "WorkerPlatform",
]
