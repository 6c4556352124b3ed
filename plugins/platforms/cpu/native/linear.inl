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

enum class Driver : int { kWide, kDot, kInt8 };

static Driver driver_of(const LinearArgs& a) {
  if (int8_serves(a)) return Driver::kInt8;
#if defined(__AVX512BF16__)
  if (dot_serves(a)) return Driver::kDot;
#endif
  return Driver::kWide;
}

// Rows of a tile, by which the work is cut.
static int tile_rows(Driver driver) {
  if (driver == Driver::kInt8) return kInt8Rows;
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return kPlainRows;
#endif
  return kWideRows;
}

// Memory for the rows of x as the driver wants them.
static size_t rows_memory(const LinearArgs& a) {
  const Driver driver = driver_of(a);
  if (driver == Driver::kInt8) return Int8Memory(a).all;
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return DotMemory(a).all;
#endif
  return WideMemory(a).shared;
}

// Memory of one thread.
static size_t own_memory(const LinearArgs& a) { return driver_of(a) == Driver::kWide ? WideMemory(a).own : 0; }

static size_t linear_scratch(const LinearArgs& a, int threads) { return rows_memory(a) + size_t(threads) * own_memory(a); }

// Row `from` of x to place `to` of scratch, as the driver wants it.
static void linear_row(Driver driver, const LinearArgs& a, int64_t from, int64_t to) {
  if (driver == Driver::kInt8) return int8_row(a, from, to);
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return dot_row(a, from, to);
#endif
  wide_row(a, from, to);
}

// Rows [r0, r1) of a panel of the output (a pair of panels where gated) from rows in scratch.
static void linear_item(Driver driver, const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1, uint8_t* own) {
  if (driver == Driver::kInt8) return int8_item(a, panel, r0, r1);
#if defined(__AVX512BF16__)
  if (driver == Driver::kDot) return dot_item(a, panel, r0, r1);
#endif
  wide_item(a, panel, r0, r1, own);
}

static void linear(const void* args, Team& team) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  const Driver driver = driver_of(a);
  uint8_t* own = a.scratch + rows_memory(a) + size_t(team.id) * own_memory(a);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) linear_row(driver, a, r, r);
  });
  const Grid grid(a, team.count, tile_rows(driver));
  team_for(team, 1, grid.items(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      int64_t panel, r0, r1;
      grid.item(i, panel, r0, r1);
      linear_item(driver, a, panel, r0, r1, own);
    }
  });
}
