// Linears by float32 multiply-add on weights decoded to float32: float32 activations, and every level without bf16 dot
// products.

constexpr int kStripe = 2 * kWidth;  // columns that a tile holds in two vectors
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

static void linear_wide(const LinearArgs& a, Team& team) {
  const Packed& w = *a.w;
  const WideMemory memory(a);
  auto* xs = reinterpret_cast<float*>(a.scratch);
  uint8_t* own = a.scratch + memory.shared + size_t(team.id) * memory.own;
  auto* acc = reinterpret_cast<float*>(own);
  auto* up = reinterpret_cast<float*>(own + memory.sums);
  auto* decoded = reinterpret_cast<float*>(own + 2 * memory.sums);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      float* to = xs + r * memory.stride;
      const Row from(a.x, a.element, r * a.x_stride);
      each_vector(w.k, [&](int64_t i, int n) { store_some(to + i, n, from.load(i, n)); });
      for (int64_t k = w.k; k < w.k_padded; k++) to[k] = 0;
    }
  });
  const Grid grid(a, team.count, kWideRows);
  team_for(team, 1, grid.items(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      int64_t panel, r0, r1;
      grid.item(i, panel, r0, r1);
      wide_panel(a, xs, memory.stride, panel, r0, r1, decoded, acc);
      if (a.epilogue != kGate) {
        write_panel(a, panel, acc, r0, r1 - r0);
        continue;
      }
      wide_panel(a, xs, memory.stride, panel + w.panels / 2, r0, r1, decoded, up);
      write_gated(a, panel, acc, up, r0, r1 - r0);
    }
  });
}
