// Linear layers on packed weights.
//
// Two drivers. `dot`: bf16 activations on bf16 dot products; codes stay integers (exact in bf16), each group's sum is
// scaled in float32, an offset m enters through the sum of the group's activations: the weight is never rounded.
// `wide`: float32 multiply-add on weights decoded to float32; serves float32 activations and every level without bf16
// dot products.
//
// In both an output element is one chain of operations along K in a fixed order, whatever the rows beside it.

constexpr int kStripe = 2 * kWidth;  // columns that a wide tile holds in two vectors
#if defined(__AVX512F__)
constexpr int kWideRows = 12;
#elif defined(__AVX2__)
constexpr int kWideRows = 6;
#else
constexpr int kWideRows = 4;
#endif
constexpr int kPlainRows = 12;  // rows of a tile: as many sums as registers hold
constexpr int kCodeRows = 6;    // half as many: each row needs a group's sum beside its own
constexpr int64_t kAhead = 2560;  // bytes by which weights are prefetched
TC_INLINE int64_t align64(int64_t n) { return (n + 63) & ~int64_t(63); }

// ---- decoding to float32 -------------------------------------------------------------------------------------------

// Codes of value k (within the unit) of all columns, as what they stand for.
static void codes_of_row(const Packed& w, const uint8_t* unit, int k, float* out) {
  const uint8_t* codes = unit + w.code_offset();
  if (w.code_bits == 8) {
    const auto* row = reinterpret_cast<const int8_t*>(codes) + k / 2 * kPanel * 2 + k % 2;
    for (int c = 0; c < kPanel; c++) out[c] = float(row[2 * c]);
    return;
  }
  const auto* run = reinterpret_cast<const uint16_t*>(codes + k / 32 * w.run_bytes());
  const int octet = k % 32 / 8, t = k % 8 / 2, place = 4 * octet + t, first = code_offset_of(w.table);
  for (int half = 0; half < 2; half++) {
    const uint16_t* words = run + (octet * 2 + half) * 32 + k % 2;
    int code[16];
    for (int c = 0; c < 16; c++) code[c] = (words[2 * c] >> (4 * t)) & 15;
    const uint16_t* high = run + 256 + k % 2;
    if (w.code_bits == 5)
      for (int c = 0; c < 16; c++) code[c] |= ((high[half * 32 + 2 * c] >> place) & 1) << 4;
    if (w.code_bits == 6)
      for (int c = 0; c < 16; c++) code[c] |= ((high[(half * 2 + place / 8) * 32 + 2 * c] >> (2 * (place % 8))) & 3) << 4;
    if (w.table == kIQ4)
      for (int c = 0; c < 16; c++) out[16 * half + c] = float(kIQ4Values[code[c]]);
    else
      for (int c = 0; c < 16; c++) out[16 * half + c] = float(code[c] + first);
  }
}

// One unit of codes to float32 [unit][32], bit for bit the values of the format.
static void decode_unit_wide(const Packed& w, const uint8_t* unit, float* out) {
  alignas(64) float d[kPanel], low[kPanel] = {}, scale[kPanel], offset[kPanel];
  const auto* d16 = reinterpret_cast<const uint16_t*>(unit + w.d_offset());
  const auto* l16 = reinterpret_cast<const uint16_t*>(unit + w.low_offset());
  for (int c = 0; c < kPanel; c++) d[c] = from_f16(d16[c]);
  if (w.has_low)
    for (int c = 0; c < kPanel; c++) low[c] = from_f16(l16[c]);
  for (int g = 0; g < w.unit / w.sub; g++) {
    const auto* s8 = reinterpret_cast<const int8_t*>(unit + w.sub_offset()) + g * kPanel;
    const uint8_t* o8 = unit + w.sub_low_offset() + g * kPanel;
    for (int c = 0; c < kPanel; c++) {
      scale[c] = w.has_sub ? d[c] * float(s8[c]) : d[c];
      offset[c] = w.has_low ? (w.has_sub ? 0.f - low[c] * float(o8[c]) : low[c]) : 0.f;
    }
    for (int k = g * w.sub; k < (g + 1) * w.sub; k++) {
      float* o = out + k * kPanel;
      codes_of_row(w, unit, k, o);
      for (int c = 0; c < kPanel; c++) o[c] = scale[c] * o[c];
      if (w.has_low)
        for (int c = 0; c < kPanel; c++) o[c] += offset[c];
    }
  }
}

// Values [k0, k0 + count) of a panel as float32 [count][32]. k0 is a multiple of kChunk.
static const float* wide_chunk(const Packed& w, const uint8_t* panel, int64_t k0, int64_t count, float* out) {
  if (w.kind == kF32) return reinterpret_cast<const float*>(panel) + k0 * kPanel;
  if (w.kind == kBF16) {
    const auto* pairs = reinterpret_cast<const bf16*>(panel) + k0 * kPanel;
    for (int64_t p = 0; p < count / 2; p++)
      for (int c = 0; c < kPanel; c += kWidth) {
        vf even, odd;
        vpairs(pairs + (p * kPanel + c) * 2, even, odd);
        vstore(out + 2 * p * kPanel + c, even);
        vstore(out + (2 * p + 1) * kPanel + c, odd);
      }
    return out;
  }
  for (int64_t u = 0; u < count / w.unit; u++)
    decode_unit_wide(w, panel + (k0 / w.unit + u) * w.unit_bytes, out + u * w.unit * kPanel);
  return out;
}

// ---- the wide driver -----------------------------------------------------------------------------------------------

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

static void write_columns(const LinearArgs& a, const float* acc, int64_t row0, int64_t rows, int64_t column0) {
  const int64_t left = a.w->n - column0;
  const int columns = left < kPanel ? int(left) : kPanel;
  alignas(64) float bias[kPanel] = {};
  if (a.bias)
    for (int c = 0; c < columns; c++)
      bias[c] = a.bias_element == kFloat32 ? static_cast<const float*>(a.bias)[column0 + c]
                                           : from_bf16(static_cast<const bf16*>(a.bias)[column0 + c]);
  for (int64_t r = 0; r < rows; r++, acc += kPanel) {
    const int64_t at = (row0 + r) * a.out_stride + column0;
    alignas(64) float line[kPanel];
    for (int c = 0; c < kPanel; c += kWidth) vstore(line + c, a.bias ? vload(acc + c) + vload(bias + c) : vload(acc + c));
    if (a.out_element == kFloat32) {
      std::memcpy(static_cast<float*>(a.out) + at, line, size_t(columns) * 4);
    } else if (columns == kPanel) {
      for (int c = 0; c < kPanel; c += kWidth) vstore(static_cast<bf16*>(a.out) + at + c, vload(line + c));
    } else {
      alignas(64) bf16 narrow[kPanel];
      for (int c = 0; c < kPanel; c += kWidth) vstore(narrow + c, vload(line + c));
      std::memcpy(static_cast<bf16*>(a.out) + at, narrow, size_t(columns) * 2);
    }
  }
}

// Work is (panel, group of rows); groups only exist when there are fewer panels than threads need.
struct Grid {
  int64_t panels, groups, rows;
  Grid(int64_t panels, int64_t rows, int threads, int tile) : panels(panels), groups(1), rows(rows) {
    const int64_t most = (rows + tile - 1) / tile;
    if (panels < 2 * threads) groups = (4 * threads + panels - 1) / panels;
    if (groups > most) groups = most;
    if (groups < 1) groups = 1;
  }
  int64_t items() const { return panels * groups; }
  void item(int64_t i, int64_t& panel, int64_t& r0, int64_t& r1) const {
    panel = i / groups;
    r0 = rows * (i % groups) / groups;
    r1 = rows * (i % groups + 1) / groups;
  }
};

struct WideMemory {
  int64_t stride;
  size_t shared, own;
  explicit WideMemory(const LinearArgs& a) {
    stride = a.w->k_padded + 16;
    shared = size_t(align64(a.rows * stride * 4));
    own = size_t(align64(kChunk * kPanel * 4) + align64(a.rows * kPanel * 4));
  }
};

static void linear_wide(const LinearArgs& a, Team& team) {
  const Packed& w = *a.w;
  const WideMemory memory(a);
  auto* xs = reinterpret_cast<float*>(a.scratch);
  uint8_t* own = a.scratch + memory.shared + size_t(team.id) * memory.own;
  auto* decoded = reinterpret_cast<float*>(own);
  auto* acc = reinterpret_cast<float*>(own + align64(kChunk * kPanel * 4));
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      float* to = xs + r * memory.stride;
      if (a.element == kFloat32)
        std::memcpy(to, static_cast<const float*>(a.x) + r * a.x_stride, size_t(w.k) * 4);
      else
        for (int64_t k = 0; k < w.k; k++) to[k] = from_bf16(static_cast<const bf16*>(a.x)[r * a.x_stride + k]);
      for (int64_t k = w.k; k < w.k_padded; k++) to[k] = 0;
    }
  });
  const Grid grid(w.panels, a.rows, team.count, kWideRows);
  team_for(team, 1, grid.items(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      int64_t panel, r0, r1;
      grid.item(i, panel, r0, r1);
      std::memset(acc, 0, size_t(r1 - r0) * kPanel * 4);
      for (int64_t k = 0; k < w.k_padded; k += kChunk) {
        const int64_t count = w.k_padded - k < kChunk ? w.k_padded - k : kChunk;
        const float* chunk = wide_chunk(w, w.panel(panel), k, count, decoded);
        for (int64_t r = r0; r < r1; r += kWideRows) {
          const int64_t tile = r1 - r < kWideRows ? r1 - r : kWideRows;
          for (int c = 0; c < kPanel; c += kStripe)
            kWideTiles[tile](xs + r * memory.stride + k, memory.stride, chunk + c, count, acc + (r - r0) * kPanel + c);
        }
      }
      write_columns(a, acc, r0, r1 - r0, panel * kPanel);
    }
  });
}

// ---- the dot driver ------------------------------------------------------------------------------------------------

#if defined(__AVX512BF16__)

TC_INLINE __m512 dot(__m512 acc, __m512i a, __m512i b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }
TC_INLINE __m512i pair_of(const bf16* x) {
  int32_t both;
  std::memcpy(&both, x, 4);
  return _mm512_set1_epi32(both);
}

// What codes [first, first + 32) stand for; four-bit tables repeat, since a lookup takes the low five bits of a word.
TC_INLINE __m512i table_of(int table, int bits, int first) {
  alignas(64) bf16 entries[32];
  for (int i = 0; i < 32; i++) entries[i] = to_bf16(float(code_value(table, bits == 4 ? i % 16 : first + i)));
  return _mm512_load_si512(entries);
}

// Brings the bits that belong to place PLACE of a run to where an index has its bits from 4 on; other bits are garbage.
template <int BITS, int PLACE>
TC_INLINE __m512i high_bits(const __m512i* high) {
  constexpr int at = BITS == 5 ? PLACE : 2 * (PLACE % 8);
  const __m512i words = high[BITS == 5 ? 0 : PLACE / 8];
  if (at < 4) return _mm512_slli_epi16(words, 4 - at);
  if (at > 4) return _mm512_srli_epi16(words, at - 4);
  return words;
}

// Codes of four to six bits to bf16: value pair T of an octet. A lookup ignores the bits above those it needs.
template <int BITS, int OCTET, int T>
TC_INLINE __m512i look_up(__m512i words, const __m512i* high, __m512i table, __m512i upper) {
  const __m512i low = T == 0 ? words : _mm512_srli_epi16(words, 4 * T);
  if (BITS == 4) return _mm512_permutexvar_epi16(low, table);
  // low & 15 | high & ~15, in one operation
  const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), low, high_bits<BITS, 4 * OCTET + T>(high), 0xca);
  return BITS == 5 ? _mm512_permutexvar_epi16(index, table) : _mm512_permutex2var_epi16(table, index, upper);
}

// 32 int8 to 32 bf16, exactly.
TC_INLINE __m512i widen_codes(const uint8_t* p) {
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i*)p)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i*)(p + 16))));
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// Scales (and offsets) of one group for 16 columns, from its int8 scales and uint8 offsets.
template <bool LOW>
TC_INLINE void group_scales(const uint8_t* scales, const uint8_t* offsets, __m512 d, __m512 m, __m512& scale, __m512& low) {
  scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i*)scales))));
  if (LOW) {
    const __m512 o = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i*)offsets)));
    low = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(m, o));
  }
}

// What is needed to turn codes into operands: their tables, the run at hand and the stream's prefetch.
struct CodeStream {
  __m512i table, upper;
  __m512i high[2][2];  // bits above four of a run: [half][word set]
  const uint8_t* run;
  const uint8_t* ahead;
  int64_t step;
};

// Adds one octet (8 values along K) to the sums of R rows.
template <int R, int BITS, int OCTET>
TC_INLINE void add_octet(CodeStream& w, const bf16* x, int64_t x_stride, __m512 (&s)[R][2]) {
  __m512i codes[2][4];
  for (int line = 0; line <= BITS / 2; line++) _mm_prefetch((const char*)(w.ahead + 64 * line), _MM_HINT_T0);
  w.ahead += w.step;
  for (int h = 0; h < 2; h++) {
    if (BITS == 8) {
      for (int t = 0; t < 4; t++) codes[h][t] = widen_codes(w.run + 256 * OCTET + 64 * t + 32 * h);
    } else {
      const __m512i words = _mm512_load_si512(w.run + 128 * OCTET + 64 * h);
      codes[h][0] = look_up<BITS, OCTET, 0>(words, w.high[h], w.table, w.upper);
      codes[h][1] = look_up<BITS, OCTET, 1>(words, w.high[h], w.table, w.upper);
      codes[h][2] = look_up<BITS, OCTET, 2>(words, w.high[h], w.table, w.upper);
      codes[h][3] = look_up<BITS, OCTET, 3>(words, w.high[h], w.table, w.upper);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < 4; t++)
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const __m512i b = pair_of(x + r * x_stride + 8 * OCTET + 2 * t);
      s[r][0] = dot(s[r][0], codes[0][t], b);
      s[r][1] = dot(s[r][1], codes[1][t], b);
    }
}

// Scales of a unit and where its groups' own lie.
struct UnitScales {
  __m512 d[2], m[2];
  const uint8_t *scales, *offsets;
};

// Adds a group's sums, scaled (and its offset times the sum of its activations), to the rows' totals; clears the sums.
template <int R, bool SCALED, bool LOW>
TC_INLINE void close_group(const UnitScales& u, int group, const float* sums, int64_t sums_stride, __m512 (&s)[R][2], __m512 (&c)[R][2]) {
  for (int v = 0; v < 2; v++) {
    __m512 scale = u.d[v], low = u.m[v];
    if (SCALED) group_scales<LOW>(u.scales + group * kPanel + 16 * v, u.offsets + group * kPanel + 16 * v, u.d[v], u.m[v], scale, low);
    for (int r = 0; r < R; r++) {
      c[r][v] = _mm512_fmadd_ps(s[r][v], scale, c[r][v]);
      if (LOW) c[r][v] = _mm512_fmadd_ps(low, _mm512_set1_ps(sums[r * sums_stride]), c[r][v]);
      s[r][v] = _mm512_setzero_ps();
    }
  }
}

// A whole panel for up to kCodeRows rows: codes go from the stream to the dot product without a stop in the cache. Decoding
// them again for the next rows costs less than storing them would.
template <int R, int BITS, int SUB, bool SCALED, bool LOW>
static void code_tile(const Packed& w, const uint8_t* unit, const bf16* x, int64_t x_stride, const float* sums, int64_t sums_stride, float* acc) {
  const int runs = w.unit / 32;
  const int64_t units = w.units(), code_offset = w.code_offset(), run_bytes = w.run_bytes();
  // Prefetches go over the stream evenly, headers included: a burst of them at each header halved the speed.
  CodeStream stream{table_of(w.table, BITS, 0), table_of(w.table, BITS, 32), {}, unit, unit + kAhead, w.unit_bytes / (w.unit / 8)};
  __m512 s[R][2], c[R][2];
  for (int r = 0; r < R; r++) s[r][0] = s[r][1] = c[r][0] = c[r][1] = _mm512_setzero_ps();
  for (int64_t u = 0; u < units; u++, unit += w.unit_bytes) {
    UnitScales own;
    for (int h = 0; h < 2; h++) {
      own.d[h] = _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)unit + h));
      own.m[h] = LOW ? _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)(unit + 64) + h)) : _mm512_setzero_ps();
    }
    own.scales = unit + w.sub_offset();
    own.offsets = unit + w.sub_low_offset();
    stream.run = unit + code_offset;
    for (int g = 0; g < runs; g++, x += 32, stream.run += run_bytes) {
      if (BITS == 5 || BITS == 6)
        for (int i = 0; i < 2 * (BITS - 4); i++) stream.high[i / (BITS - 4)][i % (BITS - 4)] = _mm512_load_si512(stream.run + 512 + 64 * i);
      add_octet<R, BITS, 0>(stream, x, x_stride, s);
      add_octet<R, BITS, 1>(stream, x, x_stride, s);
      if (SUB == 16) close_group<R, SCALED, LOW>(own, 2 * g, sums++, sums_stride, s, c);
      add_octet<R, BITS, 2>(stream, x, x_stride, s);
      add_octet<R, BITS, 3>(stream, x, x_stride, s);
      close_group<R, SCALED, LOW>(own, SUB == 16 ? 2 * g + 1 : g, sums++, sums_stride, s, c);
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

static CodeTile code_tile_of(const Packed& w, int64_t rows) {
  static const CodeTile plain4[] = TC_SIX(code_tile, 4, 32, false, false), low4[] = TC_SIX(code_tile, 4, 32, false, true);
  static const CodeTile scaled4[] = TC_SIX(code_tile, 4, 32, true, false), both4[] = TC_SIX(code_tile, 4, 32, true, true);
  static const CodeTile short4[] = TC_SIX(code_tile, 4, 16, true, false), short_low4[] = TC_SIX(code_tile, 4, 16, true, true);
  static const CodeTile plain5[] = TC_SIX(code_tile, 5, 32, false, false), low5[] = TC_SIX(code_tile, 5, 32, false, true);
  static const CodeTile both5[] = TC_SIX(code_tile, 5, 32, true, true);
  static const CodeTile short6[] = TC_SIX(code_tile, 6, 16, true, false);
  static const CodeTile plain8[] = TC_SIX(code_tile, 8, 32, false, false);
  if (w.code_bits == 8) return plain8[rows];
  if (w.code_bits == 6) return short6[rows];
  if (w.code_bits == 5) return (w.has_sub ? both5 : w.has_low ? low5 : plain5)[rows];
  if (w.sub == 16) return (w.has_low ? short_low4 : short4)[rows];
  if (w.has_sub) return (w.has_low ? both4 : scaled4)[rows];
  return (w.has_low ? low4 : plain4)[rows];
}

struct DotMemory {
  int64_t stride, sums_stride;
  size_t sums_at, shared, own;
  explicit DotMemory(const LinearArgs& a) {
    stride = a.w->k_padded + 32;  // off powers of two: the rows of a tile must not fall into the same cache sets
    if (stride % 64 == 0) stride += 32;
    sums_stride = a.w->has_low ? a.w->k_padded / a.w->sub : 0;
    sums_at = size_t(align64(a.rows * stride * 2));
    shared = sums_at + size_t(align64(a.rows * sums_stride * 4));
    own = size_t(align64(a.rows * kPanel * 4));
  }
};

static void prepare_row(const LinearArgs& a, int64_t row, bf16* to, float* sums) {
  const Packed& w = *a.w;
  std::memcpy(to, static_cast<const bf16*>(a.x) + row * a.x_stride, size_t(w.k) * 2);
  for (int64_t k = w.k; k < w.k_padded; k++) to[k] = 0;
  if (!w.has_low) return;
  for (int64_t g = 0; g < w.k / w.sub; g++) {
    vf sum = vload(to + g * w.sub);
    if (w.sub == 32) sum = sum + vload(to + g * w.sub + 16);
    sums[g] = vsum(sum);
  }
}

static void dot_panel(const LinearArgs& a, const DotMemory& memory, const bf16* xs, const float* sums, int64_t panel, int64_t rows, float* acc) {
  const Packed& w = *a.w;
  const int64_t most = w.kind == kCodes ? kCodeRows : kPlainRows, tiles = (rows + most - 1) / most;
  for (int64_t t = 0; t < tiles; t++) {  // tiles of nearly equal height
    const int64_t r0 = rows * t / tiles, height = rows * (t + 1) / tiles - r0;
    const bf16* x = xs + r0 * memory.stride;
    float* c = acc + r0 * kPanel;
    if (w.kind == kCodes)
      code_tile_of(w, height)(w, w.panel(panel), x, memory.stride, sums + r0 * memory.sums_stride, memory.sums_stride, c);
    else
      kPlainTiles[height](x, memory.stride, reinterpret_cast<const bf16*>(w.panel(panel)), w.k_padded / 2, c);
  }
}

static void linear_dot(const LinearArgs& a, Team& team) {
  const Packed& w = *a.w;
  const DotMemory memory(a);
  auto* xs = reinterpret_cast<bf16*>(a.scratch);
  auto* sums = reinterpret_cast<float*>(a.scratch + memory.sums_at);
  uint8_t* own = a.scratch + memory.shared + size_t(team.id) * memory.own;
  auto* acc = reinterpret_cast<float*>(own);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) prepare_row(a, r, xs + r * memory.stride, sums + r * memory.sums_stride);
  });
  const Grid grid(w.panels, a.rows, team.count, kPlainRows);
  team_for(team, 1, grid.items(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      int64_t panel, r0, r1;
      grid.item(i, panel, r0, r1);
      dot_panel(a, memory, xs + r0 * memory.stride, sums + r0 * memory.sums_stride, panel, r1 - r0, acc);
      write_columns(a, acc, r0, r1 - r0, panel * kPanel);
    }
  });
}

static bool dot_serves(const LinearArgs& a) { return a.element == kBFloat16 && a.w->kind != kF32; }
#endif

static size_t linear_scratch(const LinearArgs& a, int threads) {
#if defined(__AVX512BF16__)
  if (dot_serves(a)) {
    const DotMemory memory(a);
    return memory.shared + size_t(threads) * memory.own;
  }
#endif
  const WideMemory memory(a);
  return memory.shared + size_t(threads) * memory.own;
}

static void linear(const void* args, Team& team) {
  const auto& a = *static_cast<const LinearArgs*>(args);
#if defined(__AVX512BF16__)
  if (dot_serves(a)) return linear_dot(a, team);
#endif
  linear_wide(a, team);
}

// ---- rows of a packed weight: the embedding of a tied head -----------------------------------------------------------

static int code_at(const Packed& w, const uint8_t* unit, int column, int k) {
  const uint8_t* codes = unit + w.code_offset();
  if (w.code_bits == 8) return int8_t(codes[(k / 2 * kPanel + column) * 2 + k % 2]);
  const auto* run = reinterpret_cast<const uint16_t*>(codes + k / 32 * w.run_bytes());
  const int octet = k % 32 / 8, t = k % 8 / 2, half = column / 16, word = 2 * (column % 16) + k % 2, place = 4 * octet + t;
  const int low = (run[(octet * 2 + half) * 32 + word] >> (4 * t)) & 15;
  if (w.code_bits == 5) return low | ((run[256 + half * 32 + word] >> place) & 1) << 4;
  if (w.code_bits == 6) return low | ((run[256 + (half * 2 + place / 8) * 32 + word] >> (2 * (place % 8))) & 3) << 4;
  return low;
}

static float value_of(const Packed& w, const uint8_t* unit, int column, int k) {
  uint16_t d16, l16;
  std::memcpy(&d16, unit + w.d_offset() + 2 * column, 2);
  float scale = from_f16(d16);
  const int g = k / w.sub, code = code_at(w, unit, column, k);
  if (w.has_sub) scale *= float(int8_t(unit[w.sub_offset() + g * kPanel + column]));
  const float v = scale * float(w.code_bits == 8 ? code : code_value(w.table, code));
  if (!w.has_low) return v;
  std::memcpy(&l16, unit + w.low_offset() + 2 * column, 2);
  const float low = from_f16(l16);
  return w.has_sub ? v + (0.f - low * float(unit[w.sub_low_offset() + g * kPanel + column])) : v + low;
}

static float weight_at(const Packed& w, int64_t row, int64_t k) {
  const uint8_t* panel = w.panel(row / kPanel);
  const int column = int(row % kPanel);
  if (w.kind == kF32) return reinterpret_cast<const float*>(panel)[k * kPanel + column];
  if (w.kind == kBF16) return from_bf16(reinterpret_cast<const bf16*>(panel)[(k / 2 * kPanel + column) * 2 + k % 2]);
  return value_of(w, panel + k / w.unit * w.unit_bytes, column, int(k % w.unit));
}

static void rows(const void* args, Team& team) {
  const auto& a = *static_cast<const RowsArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
      for (int64_t k = 0; k < a.w->k; k++) {
        const float v = weight_at(*a.w, a.ids[r], k);
        if (a.element == kFloat32)
          static_cast<float*>(a.out)[r * a.out_stride + k] = v;
        else
          static_cast<bf16*>(a.out)[r * a.out_stride + k] = to_bf16(v);
      }
  });
}
