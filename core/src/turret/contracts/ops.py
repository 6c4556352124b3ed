"""Contract `ops`: named ops that a platform or vendor may replace one by one.

Owns: `OpProvider`, `LinearKernel` and the list of op signatures. Knows no kernel. Version 1.0.

Every op writes into `out` (or in place) and allocates nothing that outlives the call, so that a forward can be recorded
as a list of (kernel, pointers, sizes). T tokens, H hidden, I intermediate, D head size, N out, K in features.

Activation tensors are contiguous in their last dimension and of one dtype, except that the residual stream and what
joins it (x and residual of norms and add, out of linears, embedding and rows) may be float32 beside a narrower out or
x. Weights of norms are float32 or that dtype. x and out of norms may have more leading dimensions with strides of their
own ([T,heads,D] slices of a fused projection), and out may be x itself.

embedding(out[T,H], ids[T] int64, weight[V,H], scale)                      out = weight[ids] * scale
rms_norm(out[T,H], x[T,H], weight[H], eps, offset)                        offset + weight is the gain (Gemma: 1, else 0)
fused_add_rms_norm(out[T,H], x[T,H], residual[T,H], weight[H], eps, offset)  residual += x; out = rms_norm(residual)
layer_norm(out[T,H], x[T,H], weight[H] | None, bias[H] | None, eps)
rotary(q[T,Hq,D], k[T,Hkv,D], cos_sin[P,R] float32, positions[T] int64, interleaved)  in place on the first R of D;
    cos in columns :R/2, sin in R/2:
silu_and_mul(out[T,I], x[T,2I])                                            out = silu(x[:, :I]) * x[:, I:]
gelu_and_mul(out[T,I], x[T,2I], tanh)                                      the same with gelu
activation(out[T,I], x[T,I], name)                                         relu2, gelu, gelu_tanh, silu
softcap(x[..], cap)                                                        in place: x = cap * tanh(x / cap)
add(x[T,H], y[T,H])                                                        in place: x += y
scale(x[T,H], factor)                                                      in place: x *= factor
copy(out[T,H], x[T,H])                                                     out = x, to out's dtype
add_gated(x[T,H], y[T,H], gate[T,1] float32)                               in place: x += sigmoid(gate) * y
route(weights[T,K] float32, ids[T,K] int64, logits[T,E] float32, bias[E] float32 | None, routing)  each token's K best
    experts, best first: scores = routing.scoring of logits; bias takes part in the choice only; weights = scores of the
    chosen, divided by their sum if routing.renormalise, times routing.scale
moe(call: MoECall)                                                         out[T,H] = sum over K of weights * expert(x)
argmax(token[T] int64, value[T] float32, x[T,V] float32)                   the first largest of a row; nan is largest
sample(out: list of B SampleOutcome, logits[B,V] float32, rows: list of B SampleRow)   see contracts/sample.py; logits
    are afterwards as they were, and a row's outcome does not depend on other rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from turret.contracts.quant import QuantizedWeight, QuantSpec
from turret.contracts.verdict import Verdict

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "OP_NAMES",
    "ExpertWeights",
    "LinearCall",
    "LinearKernel",
    "LinearQuery",
    "MoECall",
    "OpProvider",
    "Routing",
    "StorableKernel",
]

OP_NAMES = (
    "embedding",
    "rms_norm",
    "fused_add_rms_norm",
    "layer_norm",
    "rotary",
    "silu_and_mul",
    "gelu_and_mul",
    "activation",
    "softcap",
    "add",
    "scale",
    "copy",
    "argmax",
    "sample",
    "add_gated",
    "route",
    "moe",
)


@dataclass(frozen=True, slots=True)
class Routing:
    """How experts are chosen: `scoring` is `softmax` or `sigmoid`."""

    scoring: str = "softmax"
    renormalise: bool = True
    scale: float = 1.0


@dataclass(slots=True)
class ExpertWeights:
    """A mixture's experts as one linear kernel packed them, expert e being down[e](f(gate(x)) * up(x)): `up[e]` is gate
    and up, one below the other; `activation` names f. `state` is the op's own, kept from call to call."""

    kernel: LinearKernel
    up: Sequence[Any]
    down: Sequence[Any]
    activation: str
    state: Any = None


@dataclass(slots=True)
class MoECall:
    """out[T,H] float32 = sum over k of weights[:,k] * experts[ids[:,k]](x). `experts[e](out[n,H] float32, x[n,H])` runs
    one expert over n rows, n <= T; `sorted` [T*K,H] of x's dtype and `results` [T*K,H] float32 are scratch. A token's
    result does not depend on the other tokens, nor on how many of them chose the same experts. `packed`: the same
    experts for an op that multiplies them together, where one kernel has packed them all."""

    out: Tensor
    x: Tensor
    weights: Tensor
    ids: Tensor
    experts: Sequence[Callable[[Tensor, Tensor], None]]
    sorted: Tensor
    results: Tensor
    packed: ExpertWeights | None = None


@dataclass(frozen=True, slots=True)
class LinearQuery:
    """A weight that needs a kernel: its spec (None = plain), N, K, the activation dtype's torch name and the device.

    `stored` is the dtype of a plain weight's rows where it is another than `dtype`, and of 16 bits: a kernel that takes
    it multiplies the stored numbers as they are; where none does, rows are cast to `dtype`.
    """

    spec: QuantSpec | None
    out_features: int
    in_features: int
    dtype: str
    device: str
    stored: str | None = None


@dataclass(slots=True)
class LinearCall:
    """out[T,N] = x[T,K] @ W.T + bias. `packed` is what `pack` returned; out may be a column slice (row stride > N), and
    float32 while x has 16 bits (logits): a kernel that sums in float32 need not round there."""

    out: Tensor
    x: Tensor
    packed: Any
    bias: Tensor | None = None


@runtime_checkable
class LinearKernel(Protocol):
    """y = x @ W.T + b for a pattern of QuantSpec.

    Promise: a row's result does not depend on the other rows of x, nor on how many there are.
    """

    name: str

    def supports(self, query: LinearQuery) -> Verdict:
        """Whether such a weight can run here."""

    def pack(self, weight: QuantizedWeight) -> Any:
        """Lay the weight out for the kernel, once, at load; the kernel now owns its memory."""

    def apply(self, call: LinearCall) -> None:
        """Compute."""

    def rows(self, packed: Any, ids: Tensor, out: Tensor) -> None:
        """out[T,K] = W[ids]: the embedding look-up of a packed (tied) weight."""


@runtime_checkable
class StorableKernel(LinearKernel, Protocol):
    """A kernel whose packed weights are plain bytes that another process can use."""

    @property
    def layout(self) -> str:
        """Names what the bytes depend on beside the weight: the code that packs and reads them, the instruction set.
        Bytes of one layout are never given to another."""

    def store(self, packed: Any) -> tuple[bytes, memoryview]:
        """A short header, and the bytes; they are borrowed from `packed`."""

    def restore(self, header: bytes) -> tuple[Any, memoryview]:
        """A packed weight whose memory the caller fills with the bytes. Raises ValueError for a strange header."""


@runtime_checkable
class OpProvider(Protocol):
    """Ops of one platform or vendor; whatever it lacks runs on the reference."""

    api: str
    name: str

    def ops(self) -> Mapping[str, Callable[..., None]]:
        """Ops by name, with the signatures above."""

    def linear_kernels(self) -> Sequence[LinearKernel]:
        """Kernels for linears, best first."""
