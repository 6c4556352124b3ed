// Linear layers on packed weights: three drivers and the choice between them.
//
// The choice depends on the weight, the type of the activations and what the caller asks for, never on the number of rows;
// and in each driver an output element is one chain of operations along K in a fixed order, whatever the rows beside it.

TC_INLINE int64_t align64(int64_t n) { return (n + 63) & ~int64_t(63); }

#include "decode.inl"
#include "epilogue.inl"
#include "wide.inl"
#include "int8.inl"
#if defined(__AVX512BF16__)
#include "dot.inl"
#endif

static bool int8_serves(const LinearArgs& a) { return a.activations == kInt8 && a.w->kind == kCodes; }

static size_t linear_scratch(const LinearArgs& a, int threads) {
  if (int8_serves(a)) return Int8Memory(a).all;
#if defined(__AVX512BF16__)
  if (dot_serves(a)) return DotMemory(a).all;
#endif
  const WideMemory memory(a);
  return memory.shared + size_t(threads) * memory.own;
}

static void linear(const void* args, Team& team) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  if (int8_serves(a)) return linear_int8(a, team);
#if defined(__AVX512BF16__)
  if (dot_serves(a)) return linear_dot(a, team);
#endif
  linear_wide(a, team);
}
