// Linears on signed bytes with one scale for a row of W, and activations rounded to int8 with one scale for each row: what
// checkpoints made for 8-bit weights and activations ask for. Products of a whole row are summed exactly in int32 and
// scaled once.

constexpr int64_t kMostTokenSums = int64_t(1) << 16;  // values along K whose products with bytes an int32 holds for sure

static bool token_serves(const LinearArgs& a) {
  return a.activations == kInt8 && a.w->token_rows && a.w->k_padded <= kMostTokenSums;
}

// What stands before a row's bytes.
struct alignas(64) TokenHead {
  float scale;
  int32_t offset;  // what the codes' offset adds to each sum
};

struct TokenMemory {
  int64_t stride;  // bytes between rows
  size_t all;
  explicit TokenMemory(const LinearArgs& a) {
    stride = align64(int64_t(sizeof(TokenHead)) + a.w->k_padded);
    if (stride % 128 == 0) stride += 64;  // off powers of two: the rows of a tile must not fall into the same cache sets
    all = size_t(a.rows * stride);
  }
};

// Values [k, k + 32) of a row, zeros beyond its end.
TC_INLINE void load_block(const LinearArgs& a, const Row& from, int64_t k, float* to) {
  for (int i = 0; i < 32; i += kWidth) {
    const int64_t left = a.w->k - k - i;
    vstore(to + i, left >= kWidth ? from.load(k + i, kWidth) : left > 0 ? from.load(k + i, int(left)) : vset(0.f));
  }
}

static void round_token(const LinearArgs& a, int64_t row, uint8_t* to) {
  const Row from(a.x, a.element, row * a.x_stride);
  alignas(64) float block[32];
  alignas(64) int32_t whole[32];
  int32_t top = 0;  // magnitudes order as their bits do; not-a-number is the largest
  for (int64_t k = 0; k < a.w->k; k += 32) {
    load_block(a, from, k, block);
    for (float v : block) {
      const int32_t bits = int32_t(float_to_bits(v) & 0x7fffffffu);
      top = bits > top ? bits : top;
    }
  }
  const float largest = bits_to_float(uint32_t(top));
  const vf inverse = vset(largest < kLeast ? 0.f : 127.f / largest);
  int32_t sum = 0;
  auto* bytes = reinterpret_cast<int8_t*>(to + sizeof(TokenHead));
  for (int64_t k = 0; k < a.w->k_padded; k += 32, bytes += 32) {
    load_block(a, from, k, block);
    for (int i = 0; i < 32; i += kWidth) {
      const vi n = vint(vload(block + i) * inverse);
      std::memcpy(whole + i, &n, sizeof n);
    }
    for (int i = 0; i < 32; i++) {
      const auto byte = int8_t(whole[i]);
      bytes[i / 4 * 4 + quad_place(i % 4)] = byte;
      sum += byte;
    }
  }
  *reinterpret_cast<TokenHead*>(to) = {largest / 127.f, kWideDot ? -128 * sum : 0};
}

// Columns [column, column + 2 kWidth) of a panel for up to kInt8Rows rows.
template <int R>
static void token_tile(const Packed& w, const uint8_t* panel, int column, const uint8_t* x, int64_t stride, bool cold, float* acc) {
  const int runs = w.unit / 32;
  const int64_t units = w.units(), code_offset = w.code_offset(), run_bytes = w.run_bytes();
  vi s[R][2];
  for (int r = 0; r < R; r++) s[r][0] = s[r][1] = vset_bits(reinterpret_cast<const TokenHead*>(x + r * stride)->offset);
  const uint8_t *unit = panel, *at = x + sizeof(TokenHead);
  for (int64_t u = 0; u < units; u++, unit += w.unit_bytes) {
    const uint8_t* run = unit + code_offset + 4 * column;
    for (int g = 0; g < runs; g++, run += run_bytes, at += 32) {
      if (R <= 2 || cold)
        for (int i = 0; i < 1024; i += 64) vfetch(run + kInt8Ahead + i);
      add_bytes<R, 8, false, 0>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 1>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 2>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 3>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 4>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 5>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 6>(run, nullptr, at, stride, s);
      add_bytes<R, 8, false, 7>(run, nullptr, at, stride, s);
    }
  }
  for (int v = 0; v < 2; v++) {
    const vf d = load_scales<true>(w, panel, column + v * kWidth);
    for (int r = 0; r < R; r++)
      vstore(acc + r * kPanel + column + v * kWidth, vfloat(s[r][v]) * (d * vset(reinterpret_cast<const TokenHead*>(x + r * stride)->scale)));
  }
}

using TokenTile = void (*)(const Packed&, const uint8_t*, int, const uint8_t*, int64_t, bool, float*);
static const TokenTile kTokenTiles[kInt8Rows + 1] = {
    nullptr, token_tile<1>, token_tile<2>,
#if defined(__AVX2__)
    token_tile<3>, token_tile<4>,
#endif
#if defined(__AVX512F__)
    token_tile<5>, token_tile<6>,
#endif
};

// One row of x to scratch.
static void token_row(const LinearArgs& a, int64_t from, int64_t to) {
  round_token(a, from, a.scratch + to * TokenMemory(a).stride);
}

// An item of the grid.
static void token_item(const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1) {
  const Packed& w = *a.w;
  const int64_t stride = TokenMemory(a).stride;
  finish_rows<kInt8Rows>(a, panel, r0, r1, [&](int64_t at, int64_t row, int64_t rows, bool cold, float* acc) {
    for (int c = 0; c < kPanel; c += kStripe)
      kTokenTiles[rows](w, w.panel(at), c, a.scratch + row * stride, stride, cold && c == 0, acc);
  });
}
