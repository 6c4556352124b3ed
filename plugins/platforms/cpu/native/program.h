// Recorded forwards: a list of ops with their arguments, replayed for any number of tokens.
//
// Owns what an op is as a value (Step), how its work is judged, and the recording of a thread. Knows no kernel's inside.
#pragma once
#include <vector>

#include "kernels.h"

namespace tc {

enum class Op : int { kLinear, kRows, kEmbedding, kNorm, kLayerNorm, kRotary, kGated, kPointwise, kSoftcap, kArgmax, kRoute, kAddGated, kExperts, kAttention };

union AnyArgs {
  LinearArgs linear;
  RowsArgs rows;
  EmbeddingArgs embedding;
  NormArgs norm;
  LayerNormArgs layer_norm;
  RotaryArgs rotary;
  GatedArgs gated;
  PointwiseArgs pointwise;
  SoftcapArgs softcap;
  ArgmaxArgs argmax;
  RouteArgs route;
  AddGatedArgs add_gated;
  ExpertsArgs experts;
  AttentionArgs attention;
};

struct Step {
  Op op;
  int group = 0;           // of attention: which of the step's geometries
  int64_t per_token = 1;   // rows of the op for each token of the step
  AnyArgs args;
  explicit Step(const LinearArgs& a) : op(Op::kLinear) { args.linear = a; }
  explicit Step(const RowsArgs& a) : op(Op::kRows) { args.rows = a; }
  explicit Step(const EmbeddingArgs& a) : op(Op::kEmbedding) { args.embedding = a; }
  explicit Step(const NormArgs& a) : op(Op::kNorm) { args.norm = a; }
  explicit Step(const LayerNormArgs& a) : op(Op::kLayerNorm) { args.layer_norm = a; }
  explicit Step(const RotaryArgs& a) : op(Op::kRotary) { args.rotary = a; }
  explicit Step(const GatedArgs& a) : op(Op::kGated) { args.gated = a; }
  explicit Step(const PointwiseArgs& a) : op(Op::kPointwise) { args.pointwise = a; }
  explicit Step(const SoftcapArgs& a) : op(Op::kSoftcap) { args.softcap = a; }
  explicit Step(const ArgmaxArgs& a) : op(Op::kArgmax) { args.argmax = a; }
  explicit Step(const RouteArgs& a) : op(Op::kRoute) { args.route = a; }
  explicit Step(const AddGatedArgs& a) : op(Op::kAddGated) { args.add_gated = a; }
  explicit Step(const ExpertsArgs& a) : op(Op::kExperts) { args.experts = a; }
  explicit Step(const AttentionArgs& a) : op(Op::kAttention) { args.attention = a; }
};

// The ISA level in use (abi.cpp).
const Kernels& active_kernels();

// The kernel that does an op.
Job job_of(Op op, const Kernels& kernels);

// Whether an op is so small that sharing it costs more than it saves.
bool small(const Step& step);

// A linear's rows [begin, begin + count), or as many of them as there are.
LinearArgs rows_from(const LinearArgs& all, int64_t begin, int64_t count);

// The same of a mixture's experts.
ExpertsArgs tokens_from(const ExpertsArgs& all, int64_t begin, int64_t count);

bool ids_within(const int64_t* ids, int64_t count, int64_t entries);

// Rows [begin, begin + count) of a norm.
NormArgs norm_rows_from(const NormArgs& all, int64_t begin, int64_t count);

// Joins steps whose results nobody else reads into one where that gives the same bits (fuse.cpp).
void fuse(std::vector<Step>& steps);

// Whether the norm may be done by the linear that follows it.
bool normalises_for(const Step& norm, const Step& linear);

// Appends an op to the program that this thread records, if it does.
void record(const Step& step);

}  // namespace tc
