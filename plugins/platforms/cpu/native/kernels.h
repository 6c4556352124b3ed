// Arguments of every kernel and the table through which one ISA level offers them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "packed.h"
#include "pool.h"
#include "sample.h"

namespace tc {

enum Element : int { kFloat32 = 0, kBFloat16 = 1 };

// What KV pages hold; those from kCacheInt8 on take one byte a number.
enum Cache : int { kCacheF32 = 0, kCacheBF16 = 1, kCacheF16 = 2, kCacheInt8 = 3, kCacheE4M3 = 4, kCacheE5M2 = 5 };

constexpr int64_t kMaxHead = 1024;

// How activations meet codes: as they are, or rounded to int8 with a scale for each 32 of them.
enum Activations : int { kExact = 0, kInt8 = 1 };

// What becomes of y = x W^T + bias. Where y is not stored itself it is first rounded to `via_element`, so that a fused
// linear gives the bits of a linear into a tensor of that type followed by the op.
//   kStore  out[M,N] = y
//   kAddTo  out[M,N] += y
//   kGate   out[M,N/2] = f(y[:, :N/2]) * y[:, N/2:] with f = `gate`, a kind of GatedArgs; N/2 is a multiple of kPanel
enum Epilogue : int { kStore = 0, kAddTo = 1, kGate = 2 };

// Strides in elements.
struct LinearArgs {
  const Packed* w;
  const void* x;
  int64_t x_stride;
  void* out;
  int64_t out_stride;
  int64_t rows;
  const void* bias;
  int element;  // of x
  int out_element;
  int bias_element;
  int activations;
  int epilogue, gate, via_element;
  uint8_t* scratch;
};

struct RowsArgs {
  const Packed* w;
  const int64_t* ids;
  void* out;
  int64_t out_stride;
  int64_t rows;
  int element;
};

struct EmbeddingArgs {
  const void* table;
  const int64_t* ids;
  void* out;
  int64_t entries, rows, width;
  float scale;
  int element;  // of the table
  int out_element;
};

// `residual` null: plain norm. Gain is offset + weight. Rows come in runs of `inner` (heads of a token), with strides
// between runs and within them.
struct NormArgs {
  void* out;
  const void* x;
  void* residual;
  const void* weight;
  int64_t out_stride, x_stride, residual_stride;
  int64_t inner, out_inner, x_inner;
  int64_t rows, width;
  float eps, offset;
  int out_element, x_element, residual_element, weight_element;
};

// A linear on the rows of a norm: whoever prepares a row normalises it first. The norm's rows are the linear's.
struct NormedLinearArgs {
  LinearArgs linear;
  NormArgs norm;
};

// (x - mean) / deviation * weight + bias; weight and bias may be null. Runs of rows as in NormArgs.
struct LayerNormArgs {
  void* out;
  const void *x, *weight, *bias;
  int64_t out_stride, x_stride;
  int64_t inner, out_inner, x_inner;
  int64_t rows, width;
  float eps;
  int out_element, x_element, weight_element, bias_element;
};

struct RotaryArgs {
  void *q, *k;
  int64_t q_stride, k_stride, q_head_stride, k_head_stride;  // between tokens, between heads
  const float* cos_sin;
  const int64_t* positions;
  int64_t rows, q_heads, k_heads, rotary_dim;
  int interleaved;
  int element;
};

// kind 0 silu, 1 gelu (tanh), 2 gelu (erf)
struct GatedArgs {
  void* out;
  const void* x;
  int64_t out_stride, x_stride;
  int64_t rows, width;
  int kind;
  int element;
};

enum Pointwise : int { kCopy = 0, kAdd = 1, kScale = 2, kSilu = 3, kGeluTanh = 4, kGelu = 5, kRelu2 = 6 };

// copy: out = x; add: out += x; scale: out = x * factor; the rest: out = f(x).
struct PointwiseArgs {
  void* out;
  const void* x;
  int64_t out_stride, x_stride;
  int64_t rows, width;
  float factor;
  int kind, out_element, x_element;
};

// Rows of float32: where the first largest number is, and the number.
struct ArgmaxArgs {
  const float* x;
  int64_t* token;
  float* value;
  int64_t x_stride, rows, width;
};

struct SoftcapArgs {
  void* x;
  int64_t count;
  float cap;
  int element;
};

constexpr int64_t kMaxExperts = 1024;

// Each row's top_k of its experts, best first (the first of equals), and their weights; all contiguous. Scores are the
// softmax or sigmoid of logits; `bias` (may be null) takes part in the choice only.
struct RouteArgs {
  float* weights;
  int64_t* ids;
  const float *logits, *bias;
  int64_t rows, experts, top_k;
  float scale;
  int sigmoid, renormalise;
};

// x += sigmoid(gate) * y, with one gate a row.
struct AddGatedArgs {
  void* x;
  const void* y;
  const float* gate;
  int64_t x_stride, y_stride, gate_stride;
  int64_t rows, width;
  int x_element, y_element;
};

struct Expert {
  const Packed *up, *down;  // gate and up stacked
};

// out = the sum over each row's top_k of weights * expert(x); an expert is down(f(gate(x)) * up(x)) with f = `gate`, a kind
// of GatedArgs. `count` experts, packed alike. weights and ids [rows, top_k] as `route` leaves them.
struct ExpertsArgs {
  const Expert* experts;
  const void* x;
  const float* weights;
  const int64_t* ids;
  void* out;
  int64_t x_stride, out_stride;
  int64_t rows, count, top_k;
  int element;  // of x
  int out_element;
  int activations, gate;
  uint8_t *scratch, *plan;
};

// Rows of a linear that are computed at a time: their activations stay in the second-level cache (program.cpp).
int64_t chunk_rows(int64_t k);

// Paged attention; see kv.inl for the page layout. `k` and `v` are written to the cache first.
struct AttentionArgs {
  const void *q, *k, *v;
  void *out, *kv;
  int64_t q_stride, k_stride, v_stride, out_stride;  // between tokens; heads are contiguous
  const int32_t* query_start;
  const int32_t* seq_lens;
  const int32_t* block_table;
  const int64_t* slots;
  int64_t table_stride;
  int64_t batch, tokens;
  int64_t heads, kv_heads, head_size, value_size, block_size;
  int64_t window;  // 0: none
  float scale, softcap;
  const float* sinks;
  const float* slopes;  // of ALiBi, one a head
  int element;  // of q, k, v, out
  int cache;
  int bidirectional;
  int values_in_keys;  // a value is the first value_size numbers of its key; pages hold keys only, and v is not read
  uint8_t* scratch;
  int64_t scratch_bytes;
};

struct Kernels {
  const char* level;
  size_t (*linear_scratch)(const LinearArgs&, int threads);
  void (*linear)(const void*, Team&);
  void (*normed_linear)(const void*, Team&);
  void (*rows)(const void*, Team&);
  void (*embedding)(const void*, Team&);
  void (*norm)(const void*, Team&);
  void (*rotary)(const void*, Team&);
  void (*gated)(const void*, Team&);
  void (*softcap)(const void*, Team&);
  void (*layer_norm)(const void*, Team&);
  void (*pointwise)(const void*, Team&);
  void (*argmax)(const void*, Team&);
  void (*route)(const void*, Team&);
  void (*add_gated)(const void*, Team&);
  int64_t (*experts_rows)(const ExpertsArgs&);  // that are computed at a time
  size_t (*experts_scratch)(const ExpertsArgs&, int threads);
  size_t (*experts_plan)(const ExpertsArgs&);
  void (*experts_up)(const void*, Team&);  // first this, then the other
  void (*experts_down)(const void*, Team&);
  size_t (*attention_scratch)(const AttentionArgs&, int threads);
  void (*attention)(const void*, Team&);
  size_t (*sample_scratch)(const SampleArgs&);  // of one thread
  void (*sample)(const void*, Team&);
};

}  // namespace tc
