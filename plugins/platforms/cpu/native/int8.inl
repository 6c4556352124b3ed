// Linears on codes with activations rounded to int8: products of unsigned codes with signed activations are summed exactly
// in int32, and each group's sum is scaled in float32 by the weight's scale and the activations'.
//
// Activations have one scale for each 32 of them, the largest magnitude / 127. A code's offset and a weight's m enter
// through the sums of the rounded activations. A row waits in scratch as records of 32 values, in quads
// of the order that the codes have.

#if defined(__AVX512F__)
constexpr int kInt8Rows = 6;
#elif defined(__AVX2__)
constexpr int kInt8Rows = 4;
#else
constexpr int kInt8Rows = 2;
#endif
constexpr int64_t kInt8Ahead = 3072;  // bytes by which weights are prefetched

// `offset`: what a code's offset adds to the group's sum. `sum`: of the activations, as float, for m.
template <int GROUPS>
struct Record {
  int8_t x[32];
  float scale;
  union {
    int32_t offset;
    float sum;
  } group[GROUPS];
};

// ---- rounding ------------------------------------------------------------------------------------------------------

// Blocks whose largest magnitude is below this round to nothing: its inverse would not be finite.
constexpr float kLeast = 1e-30f;

template <int GROUPS>
TC_INLINE void note_sum(const Packed& w, int group, int32_t sum, Record<GROUPS>& to) {
  if (w.has_low) to.group[group].sum = to.scale * float(sum);
  else to.group[group].offset = sum * (has_byte_table(w.table) ? -128 : code_offset_of(w.table));
}

#if defined(__AVX512F__)

template <int GROUPS>
TC_INLINE void round_block(const Packed& w, const vf (&v)[2], Record<GROUPS>& to) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);  // magnitudes order as their bits do; not-a-number is the largest
  const __m512i top0 = _mm512_and_si512(_mm512_castps_si512(v[0]), mask), top1 = _mm512_and_si512(_mm512_castps_si512(v[1]), mask);
  const float top = bits_to_float(uint32_t(_mm512_reduce_max_epi32(_mm512_max_epi32(top0, top1))));
  const vf inverse = vset(top < kLeast ? 0.f : 127.f / top);
  const __m512i n0 = vint(v[0] * inverse), n1 = vint(v[1] * inverse);
  const __m256i bytes = _mm256_set_m128i(_mm512_cvtepi32_epi8(n1), _mm512_cvtepi32_epi8(n0));
  const __m256i quads = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  _mm256_storeu_si256((__m256i*)to.x, _mm256_shuffle_epi8(bytes, quads));
  to.scale = top / 127.f;
  if (GROUPS == 1) {
    note_sum(w, 0, _mm512_reduce_add_epi32(_mm512_add_epi32(n0, n1)), to);
  } else {
    note_sum(w, 0, _mm512_reduce_add_epi32(n0), to);
    note_sum(w, GROUPS - 1, _mm512_reduce_add_epi32(n1), to);
  }
}

#else

// Largest magnitude of a block, not-a-number if one is: magnitudes order as their bits do.
TC_INLINE float magnitude_of(const vf (&v)[32 / kWidth]) {
  alignas(64) int32_t lane[kWidth];
  alignas(64) float value[kWidth];
  for (int l = 0; l < kWidth; l++) lane[l] = 0;
  for (const vf& part : v) {
    vstore(value, part);
    for (int l = 0; l < kWidth; l++) {
      const int32_t bits = int32_t(float_to_bits(value[l]) & 0x7fffffffu);
      lane[l] = bits > lane[l] ? bits : lane[l];
    }
  }
  int32_t top = 0;
  for (int l = 0; l < kWidth; l++) top = lane[l] > top ? lane[l] : top;
  return bits_to_float(uint32_t(top));
}

template <int GROUPS>
TC_INLINE void round_block(const Packed& w, const vf (&v)[32 / kWidth], Record<GROUPS>& to) {
  const float top = magnitude_of(v);
  const vf inverse = vset(top < kLeast ? 0.f : 127.f / top);
  alignas(64) int32_t lane[32];
  for (int i = 0; i < 32 / kWidth; i++) {
    const vi n = vint(v[i] * inverse);
    std::memcpy(lane + i * kWidth, &n, sizeof n);
  }
  to.scale = top / 127.f;
  for (int i = 0; i < 32; i++) to.x[i / 4 * 4 + quad_place(i % 4)] = int8_t(lane[i]);
  for (int g = 0; g < GROUPS; g++) {
    int32_t sum = 0;
    for (int i = 0; i < 32 / GROUPS; i++) sum += int8_t(lane[g * (32 / GROUPS) + i]);
    note_sum(w, g, sum, to);
  }
}

#endif

template <int GROUPS>
static void round_row(const LinearArgs& a, int64_t row, uint8_t* to) {
  const Row from(a.x, a.element, row * a.x_stride);
  auto* record = reinterpret_cast<Record<GROUPS>*>(to);
  const int64_t all = a.w->k;
  for (int64_t k = 0; k < a.w->k_padded; k += 32, record++) {
    vf v[32 / kWidth];
    for (int i = 0; i < 32 / kWidth; i++) {
      const int64_t at = k + i * kWidth;
      v[i] = at + kWidth <= all ? from.load(at, kWidth) : at < all ? from.load(at, int(all - at)) : vset(0.f);
    }
    round_block<GROUPS>(*a.w, v, *record);
  }
}

// ---- products ------------------------------------------------------------------------------------------------------

constexpr bool signed_codes(int bits, bool tabled) { return !kWideDot && (bits == 8 || tabled); }

// Quad QUAD of a run as bytes to multiply; `low` are the bytes of its line, `high` those of the bits above four.
template <int BITS, bool TABLED, int QUAD>
TC_INLINE vi quad_of(vi low, vi high, const uint8_t* table) {
  if (BITS == 8) return signed_codes(8, false) ? vxor_bits(low, vset_bits(int32_t(0x80808080u))) : low;
  const vi fifteen = vset_bits(0x0f0f0f0f), nibble = vright<QUAD / 4 * 4>(low);
  if (BITS == 4) return TABLED ? vbytes_of(table, vand_bits(nibble, fifteen)) : vand_bits(nibble, fifteen);
  constexpr int at = BITS == 5 ? QUAD : 2 * (QUAD % 4);
  const vi moved = at < 4 ? vleft<(at < 4 ? 4 - at : 0)>(high) : vright<(at > 4 ? at - 4 : 0)>(high);
  return vpick_bits(fifteen, nibble, vand_bits(moved, vset_bits(BITS == 5 ? 0x10101010 : 0x30303030)));
}

template <bool SIGNED>
TC_INLINE vi add_dot(vi sum, vi codes, vi x) { return SIGNED ? vdot_signed(sum, codes, x) : vdot(sum, codes, x); }

// Adds quad QUAD of a run (its stripe's bytes begin at `run`) to the sums of R rows.
template <int R, int BITS, bool TABLED, int QUAD>
TC_INLINE void add_bytes(const uint8_t* run, const uint8_t* table, const uint8_t* x, int64_t stride, vi (&s)[R][2]) {
  vi codes[2];
  for (int v = 0; v < 2; v++) {
    const vi low = vload_bits(run + (BITS == 8 ? QUAD : QUAD % 4) * 128 + v * 4 * kWidth);
    const vi high = BITS == 5 || BITS == 6 ? vload_bits(run + 512 + (BITS == 6 ? QUAD / 4 * 128 : 0) + v * 4 * kWidth) : low;
    codes[v] = quad_of<BITS, TABLED, QUAD>(low, high, table);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) {
    int32_t four;
    std::memcpy(&four, x + r * stride + 4 * QUAD, 4);
    const vi b = vset_bits(four);
    s[r][0] = add_dot<signed_codes(BITS, TABLED)>(s[r][0], codes[0], b);
    s[r][1] = add_dot<signed_codes(BITS, TABLED)>(s[r][1], codes[1], b);
  }
}

// Scales and offsets of one group of the stripe's columns.
struct GroupScales {
  vf d[2], m[2];
};

// Codes are taken less `base`.
template <bool LOW, bool ANY>
TC_INLINE GroupScales group_scales(const Packed& w, const uint8_t* unit, int column, int group, float base) {
  GroupScales s;
  for (int v = 0; v < 2; v++) {
    const int c = column + v * kWidth;
    s.d[v] = load_scales<ANY>(w, unit, c);
    if (w.has_sub) s.d[v] = s.d[v] * load_group_scales<ANY>(w, unit + w.sub_offset() + group * kPanel + c);
    if (!LOW) continue;
    s.m[v] = load_lows<ANY>(w, unit, c, s.d[v], base);
    if (w.has_sub) s.m[v] = vset(0.f) - s.m[v] * vload_unsigned(unit + w.sub_low_offset() + group * kPanel + c);
  }
  return s;
}

template <int R, int SUB, bool LOW, bool SIGNED>
TC_INLINE void open_group(const uint8_t* x, int64_t stride, int group, vi (&s)[R][2]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) {
    const auto* record = reinterpret_cast<const Record<32 / SUB>*>(x + r * stride);
    s[r][0] = s[r][1] = vset_bits(LOW || SIGNED ? 0 : record->group[group].offset);
  }
}

template <int R, int SUB, bool LOW>
TC_INLINE void close_bytes(const GroupScales& w, const uint8_t* x, int64_t stride, int group, const vi (&s)[R][2], vf (&c)[R][2]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) {
    const auto* record = reinterpret_cast<const Record<32 / SUB>*>(x + r * stride);
    for (int v = 0; v < 2; v++) {
      c[r][v] = vfma(vfloat(s[r][v]), w.d[v] * vset(record->scale), c[r][v]);
      if (LOW) c[r][v] = vfma(w.m[v], vset(record->group[group].sum), c[r][v]);
    }
  }
}

// Columns [column, column + 2 kWidth) of a panel for up to kInt8Rows rows.
template <int R, int BITS, int SUB, bool LOW, bool TABLED, bool ANY = false>
static void int8_tile(const Packed& w, const uint8_t* unit, int column, const uint8_t* x, int64_t stride, bool cold, float* acc) {
  constexpr bool SIGNED = signed_codes(BITS, TABLED);
  constexpr float base = SIGNED && BITS == 8 ? 128.f : 0.f;
  const uint8_t* table = byte_table(w, SIGNED);
  const int runs = w.unit / 32, step = int(w.unit_bytes / runs), lines = step / 64 + 1;
  const int64_t units = w.units(), code_offset = w.code_offset(), run_bytes = w.run_bytes();
  vf c[R][2];
  for (int r = 0; r < R; r++) c[r][0] = c[r][1] = vset(0.f);
  for (int64_t u = 0; u < units; u++, unit += w.unit_bytes) {
    const uint8_t* run = unit + code_offset + 4 * column;
    for (int g = 0; g < runs; g++, run += run_bytes, x += sizeof(Record<32 / SUB>)) {
      const uint8_t* ahead = unit + kInt8Ahead + g * step;
      // What the run takes of the stream, as measured: a quarter at a time for a row or two and for five and six bits; for more
      // rows four bits all at once, and eight are left to the processor, which keeps pace.
      constexpr bool spread = R <= 2 || BITS == 5 || BITS == 6;
      if (!spread && BITS == 4 && cold)
        for (int i = 0; i < lines; i++) __builtin_prefetch(ahead + 64 * i);
      const auto fetch = [&](int part) {
        if (!spread || (R > 1 && !cold)) return;
        for (int i = 0; i <= BITS / 2; i++) vfetch(ahead + part * step / 4 + 64 * i);
      };
      vi s[R][2];
      open_group<R, SUB, LOW, SIGNED>(x, stride, 0, s);
      if (SUB == 32) {
        // Halves of the same bytes one after the other; 8-bit codes as they come, since a stream out of order is slow.
        fetch(0);
        add_bytes<R, BITS, TABLED, 0>(run, table, x, stride, s);
        add_bytes<R, BITS, TABLED, BITS == 8 ? 1 : 4>(run, table, x, stride, s);
        fetch(1);
        add_bytes<R, BITS, TABLED, BITS == 8 ? 2 : 1>(run, table, x, stride, s);
        add_bytes<R, BITS, TABLED, BITS == 8 ? 3 : 5>(run, table, x, stride, s);
        fetch(2);
        add_bytes<R, BITS, TABLED, BITS == 8 ? 4 : 2>(run, table, x, stride, s);
        add_bytes<R, BITS, TABLED, BITS == 8 ? 5 : 6>(run, table, x, stride, s);
        fetch(3);
        add_bytes<R, BITS, TABLED, BITS == 8 ? 6 : 3>(run, table, x, stride, s);
        add_bytes<R, BITS, TABLED, 7>(run, table, x, stride, s);
      } else {
        fetch(0);
        add_bytes<R, BITS, TABLED, 0>(run, table, x, stride, s);
        add_bytes<R, BITS, TABLED, 1>(run, table, x, stride, s);
        fetch(1);
        add_bytes<R, BITS, TABLED, 2>(run, table, x, stride, s);
        add_bytes<R, BITS, TABLED, 3>(run, table, x, stride, s);
      }
      close_bytes<R, SUB, LOW>(group_scales<LOW, ANY>(w, unit, column, SUB == 32 ? g : 2 * g, base), x, stride, 0, s, c);
      if (SUB == 32) continue;
      open_group<R, SUB, LOW, SIGNED>(x, stride, 32 / SUB - 1, s);
      fetch(2);
      add_bytes<R, BITS, TABLED, 4>(run, table, x, stride, s);
      add_bytes<R, BITS, TABLED, 5>(run, table, x, stride, s);
      fetch(3);
      add_bytes<R, BITS, TABLED, 6>(run, table, x, stride, s);
      add_bytes<R, BITS, TABLED, 7>(run, table, x, stride, s);
      close_bytes<R, SUB, LOW>(group_scales<LOW, ANY>(w, unit, column, 2 * g + 1, base), x, stride, 32 / SUB - 1, s, c);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2; v++) vstore(acc + r * kPanel + column + v * kWidth, c[r][v]);
}

using Int8Tile = void (*)(const Packed&, const uint8_t*, int, const uint8_t*, int64_t, bool, float*);
#if defined(__AVX512F__)
#define TC_TILES(...)                                                                                                        \
  { nullptr, int8_tile<1, __VA_ARGS__>, int8_tile<2, __VA_ARGS__>, int8_tile<3, __VA_ARGS__>, int8_tile<4, __VA_ARGS__>,     \
    int8_tile<5, __VA_ARGS__>, int8_tile<6, __VA_ARGS__> }
#elif defined(__AVX2__)
#define TC_TILES(...) \
  { nullptr, int8_tile<1, __VA_ARGS__>, int8_tile<2, __VA_ARGS__>, int8_tile<3, __VA_ARGS__>, int8_tile<4, __VA_ARGS__> }
#else
#define TC_TILES(...) { nullptr, int8_tile<1, __VA_ARGS__>, int8_tile<2, __VA_ARGS__> }
#endif

static const Int8Tile* other_int8_tiles(const Packed& w) {
  static const Int8Tile plain4[] = TC_TILES(4, 32, false, false, true), low4[] = TC_TILES(4, 32, true, false, true);
  static const Int8Tile tabled4[] = TC_TILES(4, 32, false, true, true), short_tabled4[] = TC_TILES(4, 16, false, true, true);
  static const Int8Tile plain8[] = TC_TILES(8, 32, false, false, true), low8[] = TC_TILES(8, 32, true, false, true);
  if (w.code_bits == 8) return w.has_low ? low8 : plain8;
  if (has_byte_table(w.table)) return w.sub == 16 ? short_tabled4 : tabled4;
  return w.has_low ? low4 : plain4;
}

// Tiles by their number of rows.
static const Int8Tile* int8_tiles(const Packed& w) {
  static const Int8Tile plain4[] = TC_TILES(4, 32, false, false), low4[] = TC_TILES(4, 32, true, false);
  static const Int8Tile tabled4[] = TC_TILES(4, 32, false, true);
  static const Int8Tile short4[] = TC_TILES(4, 16, false, false), short_low4[] = TC_TILES(4, 16, true, false);
  static const Int8Tile plain5[] = TC_TILES(5, 32, false, false), low5[] = TC_TILES(5, 32, true, false);
  static const Int8Tile short6[] = TC_TILES(6, 16, false, false);
  static const Int8Tile plain8[] = TC_TILES(8, 32, false, false);
  if (!is_block_format(w)) return other_int8_tiles(w);
  if (w.code_bits == 8) return plain8;
  if (w.code_bits == 6) return short6;
  if (w.code_bits == 5) return w.has_low ? low5 : plain5;
  if (has_byte_table(w.table)) return tabled4;
  if (w.sub == 16) return w.has_low ? short_low4 : short4;
  return w.has_low ? low4 : plain4;
}

struct Int8Memory {
  int64_t stride;  // bytes between rows
  size_t all;
  explicit Int8Memory(const LinearArgs& a) {
    stride = align64(a.w->k_padded / 32 * int64_t(a.w->sub == 16 ? sizeof(Record<2>) : sizeof(Record<1>)));
    if (stride % 128 == 0) stride += 64;  // off powers of two: the rows of a tile must not fall into the same cache sets
    all = size_t(a.rows * stride);
  }
};

// One row of x to scratch.
static void int8_row(const LinearArgs& a, int64_t from, int64_t to) {
  uint8_t* row = a.scratch + to * Int8Memory(a).stride;
  if (a.w->sub == 16) round_row<2>(a, from, row);
  else round_row<1>(a, from, row);
}

// An item of the grid.
static void int8_item(const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1) {
  const Packed& w = *a.w;
  const int64_t stride = Int8Memory(a).stride;
  const Int8Tile* tiles = int8_tiles(w);
  finish_rows<kInt8Rows>(a, panel, r0, r1, [&](int64_t at, int64_t row, int64_t rows, bool cold, float* acc) {
    for (int c = 0; c < kPanel; c += kStripe)
      tiles[rows](w, w.panel(at), c, a.scratch + row * stride, stride, cold && c == 0, acc);
  });
}
