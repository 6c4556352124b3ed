// Counters of time by kernel.
#include "profile.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <vector>

namespace tc {
namespace {

struct Counters {
  std::atomic<bool> on{false};
  std::vector<ProfileRow> rows;
};

Counters& counters() {
  static Counters one;
  return one;
}

const char* name_of(Op op) {
  switch (op) {
    case Op::kLinear: return "linear";
    case Op::kRows: return "rows";
    case Op::kEmbedding: return "embedding";
    case Op::kNorm: return "norm";
    case Op::kLayerNorm: return "layer_norm";
    case Op::kRotary: return "rotary";
    case Op::kGated: return "gated";
    case Op::kPointwise: return "pointwise";
    case Op::kSoftcap: return "softcap";
    case Op::kArgmax: return "argmax";
    case Op::kRoute: return "route";
    case Op::kAddGated: return "add gated";
    case Op::kExperts: return "experts";
    case Op::kAttention: return "attention";
  }
  return "other";
}

int64_t bits_of(const Packed& w) { return w.kind == kCodes ? w.code_bits : w.kind == kF32 ? 32 : 16; }

int64_t rows_in(Op op, const void* args) {
  switch (op) {
    case Op::kLinear: return static_cast<const LinearArgs*>(args)->rows;
    case Op::kRows: return static_cast<const RowsArgs*>(args)->rows;
    case Op::kEmbedding: return static_cast<const EmbeddingArgs*>(args)->rows;
    case Op::kNorm: return static_cast<const NormArgs*>(args)->rows;
    case Op::kLayerNorm: return static_cast<const LayerNormArgs*>(args)->rows;
    case Op::kRotary: return static_cast<const RotaryArgs*>(args)->rows;
    case Op::kGated: return static_cast<const GatedArgs*>(args)->rows;
    case Op::kPointwise: return static_cast<const PointwiseArgs*>(args)->rows;
    case Op::kSoftcap: return 1;
    case Op::kArgmax: return static_cast<const ArgmaxArgs*>(args)->rows;
    case Op::kRoute: return static_cast<const RouteArgs*>(args)->rows;
    case Op::kAddGated: return static_cast<const AddGatedArgs*>(args)->rows;
    case Op::kExperts: return static_cast<const ExpertsArgs*>(args)->rows;
    case Op::kAttention: return static_cast<const AttentionArgs*>(args)->tokens;
  }
  return 0;
}

}  // namespace

bool profiling() { return counters().on.load(std::memory_order_relaxed); }

int64_t profile_clock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void profile_add(Op op, const void* args, int64_t began) {
  const int64_t ns = profile_clock() - began;
  ProfileRow row{};
  std::strncpy(row.op, name_of(op), sizeof row.op - 1);
  if (op == Op::kLinear) {
    const Packed& w = *static_cast<const LinearArgs*>(args)->w;
    row.n = w.n;
    row.k = w.k;
    row.block_type = w.block_type;
    row.bits = bits_of(w);
    row.weight_bytes = int64_t(w.bytes);
  }
  std::vector<ProfileRow>& rows = counters().rows;
  auto same = std::find_if(rows.begin(), rows.end(), [&](const ProfileRow& have) {
    return !std::strcmp(have.op, row.op) && have.n == row.n && have.k == row.k && have.block_type == row.block_type && have.bits == row.bits;
  });
  const int64_t bytes = row.weight_bytes;
  if (same == rows.end()) {
    row.weight_bytes = 0;
    same = rows.insert(rows.end(), row);
  }
  same->calls++;
  same->ns += ns;
  same->rows += rows_in(op, args);
  same->weight_bytes += bytes;
}

}  // namespace tc

using namespace tc;

#define TC_API extern "C" __attribute__((visibility("default")))

// Starts counting from nothing (1), or stops and keeps what was counted (0).
TC_API void tc_profile(int on) {
  PoolLock lock;
  if (on) counters().rows.clear();
  counters().on = on != 0;
}

// Copies up to `capacity` rows out; how many there are.
TC_API int64_t tc_profile_rows(void* out, int64_t capacity) {
  PoolLock lock;
  const std::vector<ProfileRow>& rows = counters().rows;
  std::memcpy(out, rows.data(), sizeof(ProfileRow) * size_t(std::min<int64_t>(capacity, int64_t(rows.size()))));
  return int64_t(rows.size());
}
