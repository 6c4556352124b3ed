// Linear layers on packed weights: three drivers and the choice between them.
//
// The choice depends on the weight, the type of the activations and what the caller asks for, never on the number of rows;
// and in each driver an output element is one chain of operations along K in a fixed order, whatever the rows beside it.

TC_INLINE int64_t align64(int64_t n) { return (n + 63) & ~int64_t(63); }

#include "decode.inl"
#include "epilogue.inl"
#include "wide.inl"
#include "int8.inl"
#include "int8_token.inl"
#if defined(__AVX512BF16__)
#include "dot.inl"
#endif

static bool int8_serves(const LinearArgs& a) {
  return a.activations == kInt8 && a.w->kind == kCodes && !float_exponent(a.w->table);
}

enum class Driver : int { kWide, kDot, kInt8, kToken };

static Driver driver_of(const LinearArgs& a) {
  if (token_serves(a)) return Driver::kToken;
  if (int8_serves(a)) return Driver::kInt8;
#if defined(__AVX512BF16__)
  if (dot_serves(a)) return Driver::kDot;
#endif
  return Driver::kWide;
}

// Rows of a tile, by which the work is cut.
static int tile_rows(Driver driver) {
  if (driver == Driver::kInt8 || driver == Driver::kToken) return kInt8Rows;
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return kPlainRows;
#endif
  return kWideRows;
}

// Memory for the rows of x as the driver wants them.
static size_t driver_memory(const LinearArgs& a) {
  const Driver driver = driver_of(a);
  if (driver == Driver::kToken) return TokenMemory(a).all;
  if (driver == Driver::kInt8) return Int8Memory(a).all;
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return DotMemory(a).all;
#endif
  return WideMemory(a).shared;
}

// The same, and for the rows in the order of the weight's columns where it has one.
static size_t rows_memory(const LinearArgs& a) {
  const size_t ordered = a.w->has_order ? size_t(align64(a.rows * a.w->k * (a.element == kFloat32 ? 4 : 2))) : 0;
  return driver_memory(a) + ordered;
}

// Memory of one thread.
static size_t own_memory(const LinearArgs& a) { return driver_of(a) == Driver::kWide ? WideMemory(a).own : 0; }

static size_t linear_scratch(const LinearArgs& a, int threads) { return rows_memory(a) + size_t(threads) * own_memory(a); }

template <typename T>
static void order_row(const int32_t* order, int64_t k, const T* from, T* to) {
  for (int64_t i = 0; i < k; i++) to[i] = from[order[i]];
}

// Arguments whose rows of x lie in the order of the weight's columns, row `from` of them brought there as row `to`.
static LinearArgs ordered(const LinearArgs& a, int64_t from, int64_t to) {
  LinearArgs b = a;
  const int64_t k = a.w->k;
  uint8_t* rows = a.scratch + driver_memory(a);
  if (a.element == kFloat32) order_row(a.w->order(), k, static_cast<const float*>(a.x) + from * a.x_stride, reinterpret_cast<float*>(rows) + to * k);
  else order_row(a.w->order(), k, static_cast<const bf16*>(a.x) + from * a.x_stride, reinterpret_cast<bf16*>(rows) + to * k);
  b.x = rows;
  b.x_stride = k;
  return b;
}

static void driver_row(Driver driver, const LinearArgs& a, int64_t from, int64_t to) {
  if (driver == Driver::kToken) return token_row(a, from, to);
  if (driver == Driver::kInt8) return int8_row(a, from, to);
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return dot_row(a, from, to);
#endif
  wide_row(a, from, to);
}

// Row `from` of x to place `to` of scratch, as the driver wants it.
static void linear_row(Driver driver, const LinearArgs& a, int64_t from, int64_t to) {
  if (a.w->has_order) driver_row(driver, ordered(a, from, to), to, to);
  else driver_row(driver, a, from, to);
}

// Rows [r0, r1) of a panel of the output (a pair of panels where gated) from rows in scratch.
static void linear_item(Driver driver, const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1, uint8_t* own) {
  if (driver == Driver::kToken) return token_item(a, panel, r0, r1);
  if (driver == Driver::kInt8) return int8_item(a, panel, r0, r1);
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return dot_item(a, panel, r0, r1);
#endif
  wide_item(a, panel, r0, r1, own);
}

static void linear_of(const LinearArgs& a, const NormArgs* norm, Team& team) {
  const Driver driver = driver_of(a);
  uint8_t* own = a.scratch + rows_memory(a) + size_t(team.id) * own_memory(a);
  prepare_rows(a, norm, team, [&](int64_t r) { linear_row(driver, a, r, r); });
  const Grid grid(a, team.count, tile_rows(driver));
  share_items(team, grid.items(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      int64_t panel, r0, r1;
      grid.item(i, panel, r0, r1);
      linear_item(driver, a, panel, r0, r1, own);
    }
  });
}

static void linear(const void* args, Team& team) { linear_of(*static_cast<const LinearArgs*>(args), nullptr, team); }

static void normed_linear(const void* args, Team& team) {
  const auto& a = *static_cast<const NormedLinearArgs*>(args);
  linear_of(a.linear, &a.norm, team);
}
