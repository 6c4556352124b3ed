// Linears by float32 multiply-add on weights decoded to float32: float32 activations, float16 weights, and every level
// without bf16 dot products.

constexpr int kStripe = 2 * kWidth;  // columns that a tile holds in two vectors
#if defined(__AVX512F__)
constexpr int kHalfRows = 6;  // float16 takes four vectors of sums
#else
constexpr int kHalfRows = 2;
#endif
constexpr int64_t kHalfAhead = 2560;  // bytes by which float16 weights are prefetched
#if defined(__AVX512F__)
constexpr int kWideRows = 12;
#elif defined(__AVX2__)
constexpr int kWideRows = 6;
#else
constexpr int kWideRows = 4;
#endif

template <int R>
static void wide_tile(const float* x, int64_t x_stride, const float* w, int64_t count, float* acc) {
  vf sum[R][2];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2; v++) sum[r][v] = vload(acc + r * kPanel + v * kWidth);
  for (int64_t k = 0; k < count; k++, w += kPanel) {
    const vf w0 = vload(w), w1 = vload(w + kWidth);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const vf b = vset(x[r * x_stride + k]);
      sum[r][0] = vfma(w0, b, sum[r][0]);
      sum[r][1] = vfma(w1, b, sum[r][1]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2; v++) vstore(acc + r * kPanel + v * kWidth, sum[r][v]);
}

using WideTile = void (*)(const float*, int64_t, const float*, int64_t, float*);
static const WideTile kWideTiles[13] = {
    nullptr,
    wide_tile<1>, wide_tile<2>, wide_tile<3>, wide_tile<4>,
#if defined(__AVX2__)
    wide_tile<5>, wide_tile<6>,
#endif
#if defined(__AVX512F__)
    wide_tile<7>, wide_tile<8>, wide_tile<9>, wide_tile<10>, wide_tile<11>, wide_tile<12>,
#endif
};

struct WideMemory {
  int64_t stride;
  size_t shared, sums, own;
  explicit WideMemory(const LinearArgs& a) {
    stride = a.w->k_padded + 16;
    shared = size_t(align64(a.rows * stride * 4));
    sums = size_t(align64(a.rows * kPanel * 4));
    own = size_t(align64(kChunk * kPanel * 4)) + 2 * sums;
  }
};

// Sums [r1 - r0][32] of one panel.
static void wide_panel(const LinearArgs& a, const float* xs, int64_t stride, int64_t panel, int64_t r0, int64_t r1, float* decoded, float* acc) {
  const Packed& w = *a.w;
  std::memset(acc, 0, size_t(r1 - r0) * kPanel * 4);
  for (int64_t k = 0; k < w.k_padded; k += kChunk) {
    const int64_t count = w.k_padded - k < kChunk ? w.k_padded - k : kChunk;
    const float* chunk = decoded_chunk(w, w.panel(panel), k, count, decoded);
    for (int64_t r = r0; r < r1; r += kWideRows) {
      const int64_t tile = r1 - r < kWideRows ? r1 - r : kWideRows;
      for (int c = 0; c < kPanel; c += kStripe)
        kWideTiles[tile](xs + r * stride + k, stride, chunk + c, count, acc + (r - r0) * kPanel + c);
    }
  }
}

// One row of x to scratch.
static void wide_row(const LinearArgs& a, int64_t from, int64_t to) {
  const Packed& w = *a.w;
  float* row = reinterpret_cast<float*>(a.scratch) + to * WideMemory(a).stride;
  const Row x(a.x, a.element, from * a.x_stride);
  each_vector(w.k, [&](int64_t i, int n) { store_some(row + i, n, x.load(i, n)); });
  for (int64_t k = w.k; k < w.k_padded; k++) row[k] = 0;
}

// Columns [column, column + kStripe) of a panel of float16, whose pairs along K stand side by side in a vector: even and odd
// values add up apart.
template <int R>
static void half_tile(const float* x, int64_t x_stride, const uint16_t* w, int64_t pairs, float* acc) {
  vf s[R][4];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) s[r][v] = vset(0.f);
  for (int64_t p = 0; p < pairs; p++, w += 2 * kPanel) {
    vf weight[4];
    for (int v = 0; v < 4; v++) weight[v] = vload_half(w + v * kWidth);
    vfetch(reinterpret_cast<const uint8_t*>(w) + kHalfAhead);
    vfetch(reinterpret_cast<const uint8_t*>(w) + kHalfAhead + 64);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const vf b = vpair(x + r * x_stride + 2 * p);
      for (int v = 0; v < 4; v++) s[r][v] = vfma(weight[v], b, s[r][v]);
    }
  }
  alignas(64) float lane[kWidth];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) {
      vstore(lane, s[r][v]);
      for (int i = 0; i < kWidth / 2; i++) acc[r * kPanel + v * kWidth / 2 + i] = lane[2 * i] + lane[2 * i + 1];
    }
}

using HalfTile = void (*)(const float*, int64_t, const uint16_t*, int64_t, float*);
static const HalfTile kHalfTiles[kHalfRows + 1] = {
    nullptr, half_tile<1>, half_tile<2>,
#if defined(__AVX512F__)
    half_tile<3>, half_tile<4>, half_tile<5>, half_tile<6>,
#endif
};

// An item of the grid; `own` is the thread's memory.
static void wide_item(const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1, uint8_t* own) {
  const WideMemory memory(a);
  const auto* xs = reinterpret_cast<const float*>(a.scratch);
  auto* acc = reinterpret_cast<float*>(own);
  auto* up = reinterpret_cast<float*>(own + memory.sums);
  auto* decoded = reinterpret_cast<float*>(own + 2 * memory.sums);
  if (a.w->kind == kF16) {
    finish_rows<kHalfRows>(a, panel, r0, r1, [&](int64_t at, int64_t row, int64_t rows, bool, float* sums) {
      const auto* weights = reinterpret_cast<const uint16_t*>(a.w->panel(at));
      for (int c = 0; c < kPanel; c += kStripe)
        kHalfTiles[rows](xs + row * memory.stride, memory.stride, weights + 2 * c, a.w->k_padded / 2, sums + c);
    });
    return;
  }
  wide_panel(a, xs, memory.stride, panel, r0, r1, decoded, acc);
  if (a.epilogue != kGate) {
    write_panel(a, panel, acc, r0, r1 - r0);
    return;
  }
  wide_panel(a, xs, memory.stride, panel + a.w->panels / 2, r0, r1, decoded, up);
  write_gated(a, panel, acc, up, r0, r1 - r0);
}
