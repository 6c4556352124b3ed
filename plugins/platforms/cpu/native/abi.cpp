// The C ABI of the library and the choice of ISA level at run time.
//
// Ops take a pointer to their arguments (kernels.h) and return 0, or a negative number: -1 an argument is out of range,
// -2 no memory. Every pointer is borrowed for the call, except packed weights, which live until tc_free.
#include <cstdlib>
#include <cstring>

#include "kernels.h"
#include "profile.h"
#include "program.h"

namespace tc {
namespace generic { extern const Kernels kKernels; }
#if defined(TC_HAVE_AVX2)
namespace avx2 { extern const Kernels kKernels; }
#endif
#if defined(TC_HAVE_AVX512)
namespace avx512 { extern const Kernels kKernels; }
#endif
#if defined(TC_HAVE_AVX512_VNNI)
namespace avx512_vnni { extern const Kernels kKernels; }
#endif
#if defined(TC_HAVE_AVX512_BF16)
namespace avx512_bf16 { extern const Kernels kKernels; }
#endif

namespace {

constexpr int kMostLevels = 5;

// Best first; only levels that this machine can run.
int levels(const Kernels* out[kMostLevels]) {
  int n = 0;
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
#if defined(TC_HAVE_AVX512) || defined(TC_HAVE_AVX512_VNNI) || defined(TC_HAVE_AVX512_BF16)
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
#if defined(TC_HAVE_AVX512_BF16)
  if (wide && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16")) out[n++] = &avx512_bf16::kKernels;
#endif
#if defined(TC_HAVE_AVX512_VNNI)
  if (wide && __builtin_cpu_supports("avx512vnni")) out[n++] = &avx512_vnni::kKernels;
#endif
#if defined(TC_HAVE_AVX512)
  if (wide) out[n++] = &avx512::kKernels;
#endif
#if defined(TC_HAVE_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) out[n++] = &avx2::kKernels;
#endif
#endif
  out[n++] = &generic::kKernels;
  return n;
}

const Kernels*& active() {
  static const Kernels* one = [] {
    const Kernels* all[kMostLevels];
    levels(all);
    return all[0];
  }();
  return one;
}

// Whether products with either need the same of their rows.
bool alike(const Packed& a, const Packed& b) {
  return a.kind == b.kind && a.block_type == b.block_type && a.code_bits == b.code_bits && a.table == b.table && a.unit == b.unit &&
         a.sub == b.sub && a.has_low == b.has_low && a.has_sub == b.has_sub && a.scale == b.scale && a.token_rows == b.token_rows && a.n == b.n && a.k == b.k;
}

void spread(const Step& step) {
  record(step);
  PoolLock lock;
  profiled(step.op, &step.args, [&] { pool_run(job_of(step.op, *active()), &step.args, small(step) ? 1 : 1 << 30); });
}

}  // namespace

const Kernels& active_kernels() { return *active(); }

}  // namespace tc

using namespace tc;

#define TC_API extern "C" __attribute__((visibility("default")))

TC_API int tc_abi_version() { return 12; }

TC_API const char* tc_level() { return active()->level; }

// Writes the names of the levels that run here, best first, separated by spaces.
TC_API int tc_levels(char* out, int size) {
  const Kernels* all[kMostLevels];
  const int n = levels(all);
  if (size < 1) return -1;
  out[0] = 0;
  for (int i = 0; i < n; i++) {
    if (std::strlen(out) + std::strlen(all[i]->level) + 2 > size_t(size)) return -1;
    if (i) std::strcat(out, " ");
    std::strcat(out, all[i]->level);
  }
  return n;
}

TC_API int tc_use_level(const char* name) {
  const Kernels* all[kMostLevels];
  const int n = levels(all);
  for (int i = 0; i < n; i++)
    if (!std::strcmp(all[i]->level, name)) {
      PoolLock lock;
      active() = all[i];
      return 0;
    }
  return -1;
}

TC_API int tc_start(int threads, const int* cpus, int ncpus) { return pool_start(threads, cpus, ncpus); }
TC_API int tc_threads() { return pool_threads(); }

TC_API void* tc_pack_blocks(int type, const void* rows, int64_t row_bytes, int64_t n, int64_t k) {
  return pack_blocks(type, static_cast<const uint8_t*>(rows), row_bytes, n, k);
}
TC_API void* tc_pack_plain(int element, const void* rows, int64_t stride, int64_t n, int64_t k) {
  return pack_plain(element, rows, stride, n, k);
}
// 0, and the weight at `out`; -1 if the arguments fit no format, -2 without memory, -3 if a number is not finite or the order
// of columns is none.
TC_API int tc_pack_codes(const CodesArgs* args, void** out) {
  bool strange = false;
  Packed* packed = pack_codes(*args, &strange);
  *out = strange ? nullptr : packed;
  if (strange) free_packed(packed);
  return strange ? -3 : packed ? 0 : codes_fit(*args) ? -2 : -1;
}
TC_API void tc_free(void* packed) { free_packed(static_cast<Packed*>(packed)); }
// A packed weight as the next process can place it: a header, its bytes at tc_packed_data.
TC_API int64_t tc_packed_header(const void* packed, void* out, int64_t size) {
  if (size < int64_t(sizeof(Packed))) return int64_t(sizeof(Packed));
  Packed header = *static_cast<const Packed*>(packed);
  header.data = nullptr;
  header.arena = nullptr;
  std::memcpy(out, &header, sizeof(Packed));
  return int64_t(sizeof(Packed));
}
TC_API void* tc_packed_data(const void* packed) { return static_cast<const Packed*>(packed)->data; }
TC_API void* tc_packed_place(const void* header, int64_t size) {
  if (size != int64_t(sizeof(Packed))) return nullptr;
  Packed copy;
  std::memcpy(&copy, header, sizeof(Packed));
  return place_packed(copy);
}
TC_API int tc_packed_alike(const void* a, const void* b) { return alike(*static_cast<const Packed*>(a), *static_cast<const Packed*>(b)); }
TC_API int64_t tc_packed_bytes(const void* packed) { return int64_t(static_cast<const Packed*>(packed)->bytes); }

TC_API int tc_linear(const LinearArgs* args) {
  if (args->rows <= 0) return args->rows == 0 ? 0 : -1;
  if (args->epilogue == kGate && args->w->n % (2 * kPanel)) return -1;
  const Step step(*args);
  record(step);
  PoolLock lock;
  const Kernels* kernels = active();
  const int threads = pool_threads_locked();
  const int64_t chunk = chunk_rows(args->w->k_padded);
  for (int64_t begin = 0; begin < args->rows; begin += chunk) {
    LinearArgs a = rows_from(*args, begin, chunk);
    a.scratch = pool_scratch(kernels->linear_scratch(a, threads));
    if (!a.scratch) return -2;
    profiled(Op::kLinear, &a, [&] { pool_run(kernels->linear, &a, small(Step(a)) ? 1 : threads); });
  }
  return 0;
}

TC_API int tc_rows(const RowsArgs* a) {
  if (!ids_within(a->ids, a->rows, a->w->n)) return -1;
  spread(Step(*a));
  return 0;
}

TC_API int tc_embedding(const EmbeddingArgs* a) {
  if (!ids_within(a->ids, a->rows, a->entries)) return -1;
  spread(Step(*a));
  return 0;
}

#define TC_PLAIN(name, Args)           \
  TC_API int name(const Args* a) {     \
    if (a->rows > 0) spread(Step(*a)); \
    return 0;                          \
  }
TC_PLAIN(tc_norm, NormArgs)
TC_PLAIN(tc_layer_norm, LayerNormArgs)
TC_PLAIN(tc_rotary, RotaryArgs)
TC_PLAIN(tc_gated, GatedArgs)
TC_PLAIN(tc_pointwise, PointwiseArgs)
TC_PLAIN(tc_argmax, ArgmaxArgs)
TC_PLAIN(tc_add_gated, AddGatedArgs)

TC_API int tc_route(const RouteArgs* a) {
  if (a->experts > kMaxExperts || a->top_k < 1 || a->top_k > a->experts) return -1;
  if (a->rows > 0) spread(Step(*a));
  return 0;
}

static bool experts_fit(const ExpertsArgs& a) {
  if (a.count < 1 || a.top_k < 1 || a.top_k > a.count || a.rows > INT32_MAX / a.top_k) return false;
  const Packed &up = *a.experts->up, &down = *a.experts->down;
  if (up.n != 2 * down.k || up.k != down.n) return false;
  for (int64_t e = 1; e < a.count; e++)
    if (!alike(*a.experts[e].up, up) || !alike(*a.experts[e].down, down)) return false;
  return ids_within(a.ids, a.rows * a.top_k, a.count);
}

TC_API int tc_experts(const ExpertsArgs* args) {
  if (!experts_fit(*args)) return -1;
  if (args->rows <= 0) return 0;
  record(Step(*args));
  PoolLock lock;
  const Kernels* kernels = active();
  const int threads = pool_threads_locked();
  const int64_t chunk = kernels->experts_rows(*args);
  for (int64_t begin = 0; begin < args->rows; begin += chunk) {
    ExpertsArgs a = tokens_from(*args, begin, chunk);
    a.plan = nullptr;
    const size_t scratch = (kernels->experts_scratch(a, threads) + 63) & ~size_t(63);
    a.scratch = pool_scratch(scratch + kernels->experts_plan(a));
    if (!a.scratch) return -2;
    a.plan = a.scratch + scratch;
    const int most = small(Step(a)) ? 1 : threads;
    profiled(Op::kExperts, &a, [&] {
      pool_run(kernels->experts_up, &a, most);
      pool_run(kernels->experts_down, &a, most);
    });
  }
  return 0;
}

TC_API int tc_softcap(const SoftcapArgs* a) {
  spread(Step(*a));
  return 0;
}

TC_API int tc_attention(const AttentionArgs* args) {
  AttentionArgs a = *args;
  if (a.kv_heads < 1 || a.heads % a.kv_heads || a.block_size < 16 || a.block_size % 16) return -1;
  if (a.head_size < 1 || a.head_size > kMaxHead || a.value_size < 1 || a.value_size > kMaxHead) return -1;
  if (a.values_in_keys && a.value_size > a.head_size) return -1;
  if (a.cache < kCacheF32 || a.cache > kCacheE5M2) return -1;
  if (a.tokens <= 0) return 0;
  record(Step(a));
  PoolLock lock;
  const Kernels* kernels = active();
  const int threads = pool_threads_locked();
  a.scratch = pool_scratch(kernels->attention_scratch(a, threads));
  if (!a.scratch) return -2;
  profiled(Op::kAttention, &a, [&] { pool_run(kernels->attention, &a, threads); });
  return 0;
}

TC_API int tc_sample(const SampleArgs* args) {
  SampleArgs a = *args;
  if (a.vocab < 1 || a.vocab > INT32_MAX || a.edits < 0) return -1;
  if (a.count <= 0) return 0;
  PoolLock lock;
  const Kernels* kernels = active();
  const int threads = int(a.count < pool_threads_locked() ? a.count : pool_threads_locked());
  a.scratch_bytes = int64_t(kernels->sample_scratch(a));
  a.scratch = pool_scratch(size_t(a.scratch_bytes) * size_t(threads));
  if (!a.scratch) return -2;
  pool_run(kernels->sample, &a, threads);
  return 0;
}
