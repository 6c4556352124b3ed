// Linears by bf16 dot products: bf16 activations as they are, on bf16 weights or on codes. Codes stay integers (exact in
// bf16), each group's sum is scaled in float32, an offset m enters through the sum of the group's activations: the weight is
// never rounded. Rows wait in scratch.

constexpr int kPlainRows = 12;   // rows of a tile: as many sums as registers hold
constexpr int kCodeRows = 6;     // half as many: each row needs a group's sum beside its own
constexpr int64_t kAhead = 2560; // bytes by which weights are prefetched

TC_INLINE __m512 dot(__m512 acc, __m512i a, __m512i b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }
TC_INLINE __m512i pair_of(const bf16* x) {
  int32_t both;
  std::memcpy(&both, x, 4);
  return _mm512_set1_epi32(both);
}

// What codes [first, first + 32) stand for; four-bit tables repeat, since a lookup takes the low five bits of a word. Of
// 8-bit floats the first 32, among them those without an exponent.
TC_INLINE __m512i table_of(int table, int bits, int first) {
  alignas(64) bf16 entries[32];
  const int exponent = float_exponent(table);
  for (int i = 0; i < 32; i++)
    entries[i] = to_bf16(exponent ? float8_value(exponent, i) : float(code_value(table, bits == 4 ? i % 16 : first + i)));
  return _mm512_load_si512(entries);
}

// Each word shifted so that bit FROM comes to bit TO; bits shifted in or left over are garbage.
template <int FROM, int TO>
TC_INLINE __m512i moved(__m512i words) {
  if (FROM < TO) return _mm512_slli_epi16(words, TO - FROM);
  if (FROM > TO) return _mm512_srli_epi16(words, FROM - TO);
  return words;
}

// Codes of four to six bits to bf16: pair T of quad QUAD, its even or odd bytes. A lookup ignores the bits above
// those it needs.
template <int BITS, int QUAD, int T>
TC_INLINE __m512i look_up(__m512i words, __m512i high, __m512i table, __m512i upper) {
  const __m512i low = moved<8 * T + QUAD / 4 * 4, 0>(words);
  if (BITS == 4) return _mm512_permutexvar_epi16(low, table);
  const __m512i above = BITS == 5 ? moved<8 * T + QUAD, 4>(high) : moved<8 * T + 2 * (QUAD % 4), 4>(high);
  const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), low, above, 0xca);  // low & 15 | above & ~15
  return BITS == 5 ? _mm512_permutexvar_epi16(index, table) : _mm512_permutex2var_epi16(table, index, upper);
}

// Quads of 16 columns' 8-bit codes (offset 128) to bf16 pairs of their even (T = 0) or odd bytes, exactly.
template <int T>
TC_INLINE __m512i widen_quads(__m512i codes) {
  const __m512i s = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
  const __m512i first = _mm512_srai_epi32(_mm512_slli_epi32(s, T == 0 ? 24 : 16), 24);
  const __m512i second = _mm512_srai_epi32(T == 0 ? _mm512_slli_epi32(s, 8) : s, 24);
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(first)), 16);
  return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(_mm512_cvtepi32_ps(second)));
}

// Quads of 16 columns' 8-bit floats with so many exponent bits to bf16 pairs of their even (T = 0) or odd bytes, exactly:
// `tiny` holds what those without an exponent stand for, which bf16 writes with one.
template <int EXPONENT, int T>
TC_INLINE __m512i widen_floats(__m512i codes, __m512i tiny) {
  const __m512i sign = _mm512_set1_epi16(short(0x8000)), x = T == 0 ? _mm512_slli_epi16(codes, 8) : codes;
  const __m512i magnitude = _mm512_srli_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0x7f00)), EXPONENT == 4 ? 4 : 3);
  const __m512i usual = _mm512_add_epi16(magnitude, _mm512_set1_epi16(EXPONENT == 4 ? 120 << 7 : 112 << 7));
  const __m512i small = _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 8), tiny);
  const __mmask32 subnormal = _mm512_testn_epi16_mask(x, _mm512_set1_epi16(EXPONENT == 4 ? 0x7800 : 0x7c00));
  return _mm512_ternarylogic_epi32(sign, x, _mm512_mask_mov_epi16(usual, subnormal, small), 0xca);
}

// What is needed to turn codes into operands: their tables, the run at hand and the stream's prefetch.
struct CodeStream {
  __m512i table, upper;
  const uint8_t* run;
  const uint8_t* ahead;
  int64_t step;
};

// Adds quad QUAD of the run to the sums of R rows.
template <int R, int BITS, int QUAD, int FLOAT>
TC_INLINE void add_quad(CodeStream& w, const bf16* x, int64_t x_stride, __m512 (&s)[R][2]) {
  __m512i codes[2][2];
  for (int h = 0; h < 2; h++) {
    const __m512i words = _mm512_load_si512(w.run + (BITS == 8 ? QUAD : QUAD % 4) * 128 + 64 * h);
    if (FLOAT != 0) {
      codes[h][0] = widen_floats<FLOAT, 0>(words, w.table);
      codes[h][1] = widen_floats<FLOAT, 1>(words, w.table);
    } else if (BITS == 8) {
      codes[h][0] = widen_quads<0>(words);
      codes[h][1] = widen_quads<1>(words);
    } else {
      const __m512i high = BITS == 4 ? words : _mm512_load_si512(w.run + 512 + (BITS == 6 ? QUAD / 4 * 128 : 0) + 64 * h);
      codes[h][0] = look_up<BITS, QUAD, 0>(words, high, w.table, w.upper);
      codes[h][1] = look_up<BITS, QUAD, 1>(words, high, w.table, w.upper);
    }
  }
#pragma GCC unroll 2
  for (int t = 0; t < 2; t++)
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const __m512i b = pair_of(x + r * x_stride + 4 * QUAD + 2 * t);
      s[r][0] = dot(s[r][0], codes[0][t], b);
      s[r][1] = dot(s[r][1], codes[1][t], b);
    }
}

// Two quads and the prefetch of what they take of the stream.
template <int R, int BITS, int QUAD, int FLOAT>
TC_INLINE void add_two(CodeStream& w, const bf16* x, int64_t x_stride, __m512 (&s)[R][2]) {
  for (int line = 0; line <= BITS / 2; line++) _mm_prefetch((const char*)(w.ahead + 64 * line), _MM_HINT_T0);
  w.ahead += w.step;
  add_quad<R, BITS, QUAD, FLOAT>(w, x, x_stride, s);
  add_quad<R, BITS, QUAD + 1, FLOAT>(w, x, x_stride, s);
}

// Scales of a unit and where its groups' own lie.
struct UnitScales {
  vf d[2], m[2];
  const uint8_t *scales, *offsets;
};

// Adds a group's sums, scaled (and its offset times the sum of its activations), to the rows' totals; clears the sums.
template <int R, bool SCALED, bool LOW, bool ANY>
TC_INLINE void close_group(const Packed& w, const UnitScales& u, int group, const float* sums, int64_t sums_stride, __m512 (&s)[R][2], __m512 (&c)[R][2]) {
  for (int v = 0; v < 2; v++) {
    vf scale = u.d[v], low = u.m[v];
    if (SCALED) scale = scale * load_group_scales<ANY>(w, u.scales + group * kPanel + 16 * v);
    if (SCALED && LOW) low = vset(0.f) - low * vload_unsigned(u.offsets + group * kPanel + 16 * v);
    for (int r = 0; r < R; r++) {
      c[r][v] = vfma(s[r][v], scale, c[r][v]);
      if (LOW) c[r][v] = vfma(low, vset(sums[r * sums_stride]), c[r][v]);
      s[r][v] = vset(0.f);
    }
  }
}

// A whole panel for up to kCodeRows rows: codes go from the stream to the dot product without a stop in the cache. Decoding
// them again for the next rows costs less than storing them would.
template <int R, int BITS, int SUB, bool SCALED, bool LOW, bool ANY = false, int FLOAT = 0>
static void code_tile(const Packed& w, const uint8_t* unit, const bf16* x, int64_t x_stride, const float* sums, int64_t sums_stride, float* acc) {
  const int runs = w.unit / 32;
  const int64_t units = w.units(), code_offset = w.code_offset(), run_bytes = w.run_bytes();
  // Prefetches go over the stream evenly, headers included: a burst of them at each header halved the speed.
  CodeStream stream{table_of(w.table, BITS, 0), table_of(w.table, BITS, 32), unit, unit + kAhead, w.unit_bytes / (w.unit / 8)};
  __m512 s[R][2], c[R][2];
  for (int r = 0; r < R; r++) s[r][0] = s[r][1] = c[r][0] = c[r][1] = _mm512_setzero_ps();
  for (int64_t u = 0; u < units; u++, unit += w.unit_bytes) {
    UnitScales own;
    for (int h = 0; h < 2; h++) {
      own.d[h] = load_scales<ANY>(w, unit, 16 * h);
      own.m[h] = LOW ? load_lows<ANY>(w, unit, 16 * h, own.d[h], BITS == 8 ? 128.f : 0.f) : vset(0.f);
    }
    own.scales = unit + w.sub_offset();
    own.offsets = unit + w.sub_low_offset();
    stream.run = unit + code_offset;
    for (int g = 0; g < runs; g++, x += 32, stream.run += run_bytes) {
      add_two<R, BITS, 0, FLOAT>(stream, x, x_stride, s);
      add_two<R, BITS, 2, FLOAT>(stream, x, x_stride, s);
      if (SUB == 16) close_group<R, SCALED, LOW, ANY>(w, own, 2 * g, sums++, sums_stride, s, c);
      add_two<R, BITS, 4, FLOAT>(stream, x, x_stride, s);
      add_two<R, BITS, 6, FLOAT>(stream, x, x_stride, s);
      close_group<R, SCALED, LOW, ANY>(w, own, SUB == 16 ? 2 * g + 1 : g, sums++, sums_stride, s, c);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2; v++) _mm512_store_ps(acc + r * kPanel + 16 * v, c[r][v]);
}

// A whole panel of plain bf16 weights for up to kPlainRows rows.
template <int R>
static void plain_tile(const bf16* x, int64_t x_stride, const bf16* w, int64_t pairs, float* acc) {
  __m512 s[R][2];
  for (int r = 0; r < R; r++) s[r][0] = s[r][1] = _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; p++, w += 64) {
    const __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 32);
    _mm_prefetch((const char*)w + kAhead, _MM_HINT_T0);
    _mm_prefetch((const char*)w + kAhead + 64, _MM_HINT_T0);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const __m512i b = pair_of(x + r * x_stride + 2 * p);
      s[r][0] = dot(s[r][0], w0, b);
      s[r][1] = dot(s[r][1], w1, b);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2; v++) _mm512_store_ps(acc + r * kPanel + 16 * v, s[r][v]);
}

using CodeTile = void (*)(const Packed&, const uint8_t*, const bf16*, int64_t, const float*, int64_t, float*);
using PlainTile = void (*)(const bf16*, int64_t, const bf16*, int64_t, float*);
#define TC_SIX(name, ...) \
  { nullptr, name<1, __VA_ARGS__>, name<2, __VA_ARGS__>, name<3, __VA_ARGS__>, name<4, __VA_ARGS__>, name<5, __VA_ARGS__>, name<6, __VA_ARGS__> }
static const PlainTile kPlainTiles[kPlainRows + 1] = {
    nullptr, plain_tile<1>, plain_tile<2>, plain_tile<3>, plain_tile<4>, plain_tile<5>, plain_tile<6>,
    plain_tile<7>, plain_tile<8>, plain_tile<9>, plain_tile<10>, plain_tile<11>, plain_tile<12>,
};

static CodeTile other_code_tile_of(const Packed& w, int64_t rows) {
  static const CodeTile plain4[] = TC_SIX(code_tile, 4, 32, false, false, true), low4[] = TC_SIX(code_tile, 4, 32, false, true, true);
  static const CodeTile short4[] = TC_SIX(code_tile, 4, 16, true, false, true);
  static const CodeTile plain8[] = TC_SIX(code_tile, 8, 32, false, false, true), low8[] = TC_SIX(code_tile, 8, 32, false, true, true);
  static const CodeTile e4m3[] = TC_SIX(code_tile, 8, 32, false, false, true, 4), e5m2[] = TC_SIX(code_tile, 8, 32, false, false, true, 5);
  if (w.table == kE4M3) return e4m3[rows];
  if (w.table == kE5M2) return e5m2[rows];
  if (w.code_bits == 8) return (w.has_low ? low8 : plain8)[rows];
  if (w.has_sub) return short4[rows];
  return (w.has_low ? low4 : plain4)[rows];
}

static CodeTile code_tile_of(const Packed& w, int64_t rows) {
  static const CodeTile plain4[] = TC_SIX(code_tile, 4, 32, false, false), low4[] = TC_SIX(code_tile, 4, 32, false, true);
  static const CodeTile scaled4[] = TC_SIX(code_tile, 4, 32, true, false), both4[] = TC_SIX(code_tile, 4, 32, true, true);
  static const CodeTile short4[] = TC_SIX(code_tile, 4, 16, true, false), short_low4[] = TC_SIX(code_tile, 4, 16, true, true);
  static const CodeTile plain5[] = TC_SIX(code_tile, 5, 32, false, false), low5[] = TC_SIX(code_tile, 5, 32, false, true);
  static const CodeTile both5[] = TC_SIX(code_tile, 5, 32, true, true);
  static const CodeTile short6[] = TC_SIX(code_tile, 6, 16, true, false);
  static const CodeTile plain8[] = TC_SIX(code_tile, 8, 32, false, false);
  if (!is_block_format(w)) return other_code_tile_of(w, rows);
  if (w.code_bits == 8) return plain8[rows];
  if (w.code_bits == 6) return short6[rows];
  if (w.code_bits == 5) return (w.has_sub ? both5 : w.has_low ? low5 : plain5)[rows];
  if (w.sub == 16) return (w.has_low ? short_low4 : short4)[rows];
  if (w.has_sub) return (w.has_low ? both4 : scaled4)[rows];
  return (w.has_low ? low4 : plain4)[rows];
}

struct DotMemory {
  int64_t stride, sums_stride;
  size_t sums_at, all;
  explicit DotMemory(const LinearArgs& a) {
    stride = a.w->k_padded + 32;  // off powers of two: the rows of a tile must not fall into the same cache sets
    if (stride % 64 == 0) stride += 32;
    sums_stride = a.w->has_low ? a.w->k_padded / a.w->sub : 0;
    sums_at = size_t(align64(a.rows * stride * 2));
    all = sums_at + size_t(align64(a.rows * sums_stride * 4));
  }
};

// One row of x to scratch.
static void dot_row(const LinearArgs& a, int64_t row, int64_t place) {
  const Packed& w = *a.w;
  const DotMemory memory(a);
  const bf16* from = static_cast<const bf16*>(a.x) + row * a.x_stride;
  bf16* to = reinterpret_cast<bf16*>(a.scratch) + place * memory.stride;
  std::memcpy(to, from, size_t(w.k) * 2);
  for (int64_t k = w.k; k < w.k_padded; k++) to[k] = 0;
  if (!w.has_low) return;
  float* sums = reinterpret_cast<float*>(a.scratch + memory.sums_at) + place * memory.sums_stride;
  for (int64_t g = 0; g < w.k_padded / w.sub; g++) {
    vf sum = vload(to + g * w.sub);
    if (w.sub == 32) sum = sum + vload(to + g * w.sub + 16);
    sums[g] = vsum(sum);
  }
}

// An item of the grid.
static void dot_item(const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1) {
  const Packed& w = *a.w;
  const DotMemory memory(a);
  const auto* xs = reinterpret_cast<const bf16*>(a.scratch);
  const auto* sums = reinterpret_cast<const float*>(a.scratch + memory.sums_at);
  if (w.kind != kCodes) {
    finish_rows<kPlainRows>(a, panel, r0, r1, [&](int64_t at, int64_t row, int64_t rows, bool, float* acc) {
      const auto* weights = reinterpret_cast<const bf16*>(w.panel(at));
      kPlainTiles[rows](xs + row * memory.stride, memory.stride, weights, w.k_padded / 2, acc);
    });
    return;
  }
  finish_rows<kCodeRows>(a, panel, r0, r1, [&](int64_t at, int64_t row, int64_t rows, bool, float* acc) {
    code_tile_of(w, rows)(w, w.panel(at), xs + row * memory.stride, memory.stride, sums + row * memory.sums_stride, memory.sums_stride, acc);
  });
}

static bool dot_serves(const LinearArgs& a) { return a.element == kBFloat16 && (a.w->kind == kBF16 || a.w->kind == kCodes); }
