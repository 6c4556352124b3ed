// Pages of the KV cache: their layout, and the numbers in them.
//
// A page holds `block_size` tokens of all KV heads in sub-blocks of 16 tokens: keys [Hkv][block_size / 16], then values
// likewise. Key heads are padded to an even size, value heads to a multiple of 16. Within a sub-block numbers lie in the
// pairs that a bf16 dot product takes: keys [D/2][16 tokens][2], values [8][Dv][2 tokens]; float32 lies as keys
// [D][16], values [16][Dv]. int8 has 16 float32 scales behind the numbers, one for each token.
//
// Where values are the first numbers of their keys (latent attention), a page holds keys only.
//
// Numbers of one byte are a sign and one of 128 magnitudes, each exact in bf16: so one kernel serves int8, e4m3 and e5m2,
// with a table each. int8 stands for value * scale with scale = largest magnitude / 127; fp8 has a scale of 1, rounds to
// nearest even and saturates.

constexpr int kSubBlock = 16;

static TC_INLINE bool byte_cache(int cache) { return cache >= kCacheInt8; }

struct PageShape {
  int64_t key_size, value_size;  // padded
  int64_t key_codes, value_codes;  // bytes of a sub-block's numbers; scales follow
  int64_t key_sub, value_sub;      // bytes of a sub-block
  int64_t subs, values_at, page;   // sub-blocks of a head in a page; bytes
  explicit PageShape(const AttentionArgs& a) {
    const int64_t element = a.cache == kCacheF32 ? 4 : byte_cache(a.cache) ? 1 : 2;
    const int64_t scales = a.cache == kCacheInt8 ? 4 * kSubBlock : 0;
    key_size = (a.head_size + 1) / 2 * 2;
    value_size = (a.value_size + 15) / 16 * 16;
    key_codes = kSubBlock * key_size * element;
    value_codes = kSubBlock * value_size * element;
    key_sub = align64(key_codes + scales);
    value_sub = a.values_in_keys ? 0 : align64(value_codes + scales);
    subs = a.block_size / kSubBlock;
    values_at = a.kv_heads * subs * key_sub;
    page = values_at + a.kv_heads * subs * value_sub;
  }
};

constexpr int kPart = 256;  // tokens that attention takes at a time
constexpr int kPartSubs = kPart / kSubBlock;

// Where the sub-blocks of a part lie, as one KV head of a request sees them.
struct PartPages {
  const uint8_t *key[kPartSubs], *value[kPartSubs];
  const float *key_scale[kPartSubs], *value_scale[kPartSubs];  // of int8
};

// One request's pages as one KV head sees them.
struct PageView {
  PageShape shape;
  const uint8_t *keys, *values;
  const int32_t* table;
  int64_t block_size;
  PageView(const AttentionArgs& a, int64_t request, int64_t kv_head) : shape(a) {
    keys = static_cast<const uint8_t*>(a.kv) + kv_head * shape.subs * shape.key_sub;
    values = static_cast<const uint8_t*>(a.kv) + shape.values_at + kv_head * shape.subs * shape.value_sub;
    table = a.block_table + request * a.table_stride;
    block_size = a.block_size;
  }
  // Sub-blocks of the part from token `part` on that hold any of tokens [low, high).
  void part(int64_t part, int64_t low, int64_t high, PartPages& to) const {
    const int begin = low > part ? int((low - part) / kSubBlock) : 0;
    const int end = high < part + kPart ? int((high - part + kSubBlock - 1) / kSubBlock) : kPartSubs;
    for (int i = begin; i < end; i++) {
      const int64_t token = part + i * kSubBlock, page = table[token / block_size] * shape.page, sub = token % block_size / kSubBlock;
      to.key[i] = keys + page + sub * shape.key_sub;
      to.value[i] = values + page + sub * shape.value_sub;
      to.key_scale[i] = reinterpret_cast<const float*>(to.key[i] + shape.key_codes);
      to.value_scale[i] = shape.value_sub ? reinterpret_cast<const float*>(to.value[i] + shape.value_codes) : to.key_scale[i];
    }
  }
};

// ---- numbers -----------------------------------------------------------------------------------------------------------

// bf16 of m * 2^shift for m below 256.
constexpr uint16_t bf16_of(int m, int shift) {
  if (m == 0) return 0;
  int top = 0;
  while (m >> (top + 1)) top++;
  return uint16_t(((127 + shift + top) << 7) | ((m << (7 - top)) & 0x7f));
}

struct Magnitudes {
  uint16_t at[128];
};

constexpr Magnitudes magnitudes(int cache) {
  Magnitudes all{};
  for (int m = 0; m < 128; m++) {
    if (cache == kCacheInt8) {
      all.at[m] = bf16_of(m, 0);
    } else if (cache == kCacheE4M3) {
      all.at[m] = m == 127 ? 0x7fc0 : m < 8 ? bf16_of(m, -9) : bf16_of(8 + (m & 7), (m >> 3) - 10);
    } else {
      all.at[m] = m > 124 ? 0x7fc0 : m == 124 ? 0x7f80 : m < 4 ? bf16_of(m, -16) : bf16_of(4 + (m & 3), (m >> 2) - 17);
    }
  }
  return all;
}

alignas(64) static constexpr Magnitudes kMagnitudes[3] = {
    magnitudes(kCacheInt8), magnitudes(kCacheE4M3), magnitudes(kCacheE5M2)};

static TC_INLINE const Magnitudes& table_of(int cache) { return kMagnitudes[byte_cache(cache) ? cache - kCacheInt8 : 0]; }

TC_INLINE float from_code(const Magnitudes& table, uint8_t code) {
  return from_bf16(uint16_t(table.at[code & 127] | ((code & 128) << 8)));
}

TC_INLINE uint8_t to_e4m3(float x) {
  const uint32_t u = float_to_bits(x) & 0x7fffffffu, sign = (float_to_bits(x) >> 24) & 128;
  if (u > 0x7f800000u) return uint8_t(sign | 127);
  if (u >= 0x43e00000u) return uint8_t(sign | 126);  // 448 and above
  if (u < 0x3c800000u) return uint8_t(sign | uint32_t(rintf(bits_to_float(u) * 512.f)));  // below 2^-6
  const uint32_t code = ((u + 0x7ffffu + ((u >> 20) & 1)) >> 20) - (120u << 3);
  return uint8_t(sign | (code > 126 ? 126 : code));
}

TC_INLINE uint8_t to_e5m2(float x) {
  const uint32_t u = float_to_bits(x) & 0x7fffffffu, sign = (float_to_bits(x) >> 24) & 128;
  if (u > 0x7f800000u) return uint8_t(sign | 127);
  if (u >= 0x47600000u) return uint8_t(sign | 123);  // 57344 and above
  if (u < 0x38800000u) return uint8_t(sign | uint32_t(rintf(bits_to_float(u) * 65536.f)));  // below 2^-14
  const uint32_t code = ((u + 0xfffffu + ((u >> 21) & 1)) >> 21) - (112u << 2);
  return uint8_t(sign | (code > 123 ? 123 : code));
}

TC_INLINE uint16_t to_f16(float x) {
  const uint32_t u = float_to_bits(x) & 0x7fffffffu, sign = (float_to_bits(x) >> 16) & 0x8000;
  if (u > 0x7f800000u) return uint16_t(sign | 0x7e00);
  if (u >= 0x477ff000u) return uint16_t(sign | 0x7c00);  // rounds to 65536
  if (u < 0x38800000u) return uint16_t(sign | uint32_t(rintf(bits_to_float(u) * 16777216.f)));  // below 2^-14
  return uint16_t(sign | (((u + 0xfffu + ((u >> 13) & 1)) >> 13) - (112u << 10)));
}

// ---- writing -----------------------------------------------------------------------------------------------------------

// Scale of n numbers; not a number if one of them is none or infinite.
static float int8_scale(const float* x, int64_t n) {
  float top = 0.f;
  for (int64_t i = 0; i < n; i++) {
    const float m = bits_to_float(float_to_bits(x[i]) & 0x7fffffffu);
    if (!(m <= 3.4e38f)) return bits_to_float(0x7fc00000u);
    top = m > top ? m : top;
  }
  return top / 127.f;
}

TC_INLINE uint8_t to_int8(float x, float inverse) {
  const int v = int(rintf(x * inverse));
  const int m = v < 0 ? -v : v;
  return uint8_t((v < 0 ? 128 : 0) | (m > 127 ? 127 : m));
}

// One head's n numbers of a token to a sub-block: number i lies `step` elements after number i - 2 + i % 2 ... for keys
// pair i / 2 is `pair` elements on; for values number i is 2 elements on. `first` is where number 0 goes.
struct Places {
  int64_t first, pair, odd, pairs;  // element of number i: first + i / 2 * pair + i % 2 * odd
};

static void put_numbers(int cache, uint8_t* to, const Places& at, const float* x, float scale) {
  const float inverse = cache == kCacheInt8 && scale > 0.f ? 1.f / scale : 0.f;
  const bool none = scale != scale;
  for (int64_t i = 0; i < 2 * at.pairs; i++) {
    const int64_t place = at.first + i / 2 * at.pair + i % 2 * at.odd;
    switch (cache) {
      case kCacheF32: reinterpret_cast<float*>(to)[place] = x[i]; break;
      case kCacheBF16: reinterpret_cast<bf16*>(to)[place] = to_bf16(x[i]); break;
      case kCacheF16: reinterpret_cast<uint16_t*>(to)[place] = to_f16(x[i]); break;
      case kCacheInt8: to[place] = none ? 0 : to_int8(x[i], inverse); break;
      case kCacheE4M3: to[place] = to_e4m3(x[i]); break;
      default: to[place] = to_e5m2(x[i]);
    }
  }
}

static void read_head(const AttentionArgs& a, const void* from, int64_t at, int64_t n, int64_t padded, float* to) {
  for (int64_t i = 0; i < n; i++)
    to[i] = a.element == kFloat32 ? static_cast<const float*>(from)[at + i] : from_bf16(static_cast<const bf16*>(from)[at + i]);
  for (int64_t i = n; i < padded; i++) to[i] = 0.f;
}

// A bf16 token to pages of bf16: bits move, none change.
static void write_bits(const AttentionArgs& a, const PageShape& shape, int64_t token, uint8_t* page, int64_t sub, int64_t lane) {
  for (int64_t h = 0; h < a.kv_heads; h++) {
    const bf16* k = static_cast<const bf16*>(a.k) + token * a.k_stride + h * a.head_size;
    const bf16* v = static_cast<const bf16*>(a.v) + token * a.v_stride + h * a.value_size;
    auto* key = reinterpret_cast<bf16*>(page + (h * shape.subs + sub) * shape.key_sub) + 2 * lane;
    auto* value = reinterpret_cast<bf16*>(page + shape.values_at + (h * shape.subs + sub) * shape.value_sub) + lane / 2 * 2 * shape.value_size + lane % 2;
    int64_t i = 0;
    for (; i + 1 < a.head_size; i += 2) std::memcpy(key + i * kSubBlock, k + i, 4);
    if (i < a.head_size) {
      key[i * kSubBlock] = k[i];
      key[i * kSubBlock + 1] = 0;
    }
    if (a.values_in_keys) continue;
    for (i = 0; i < a.value_size; i++) value[2 * i] = v[i];
    for (; i < shape.value_size; i++) value[2 * i] = 0;
  }
}

static void write_token(const AttentionArgs& a, const PageShape& shape, int64_t token) {
  const int64_t slot = a.slots[token];
  if (slot < 0) return;
  const int64_t offset = slot % a.block_size, sub = offset / kSubBlock, lane = offset % kSubBlock;
  uint8_t* page = static_cast<uint8_t*>(a.kv) + slot / a.block_size * shape.page;
  if (a.cache == kCacheBF16 && a.element == kBFloat16) return write_bits(a, shape, token, page, sub, lane);
  const bool wide = a.cache == kCacheF32;
  // float32: keys [D][16], values [16][Dv]; else keys [D/2][16][2], values [8][Dv][2].
  const Places keys = wide ? Places{lane, 2 * kSubBlock, kSubBlock, shape.key_size / 2} : Places{2 * lane, 2 * kSubBlock, 1, shape.key_size / 2};
  const Places values = wide ? Places{lane * shape.value_size, 2, 1, shape.value_size / 2}
                             : Places{lane / 2 * 2 * shape.value_size + lane % 2, 4, 2, shape.value_size / 2};
  float x[kMaxHead];
  for (int64_t h = 0; h < a.kv_heads; h++) {
    uint8_t* key = page + (h * shape.subs + sub) * shape.key_sub;
    uint8_t* value = page + shape.values_at + (h * shape.subs + sub) * shape.value_sub;
    read_head(a, a.k, token * a.k_stride + h * a.head_size, a.head_size, shape.key_size, x);
    float scale = a.cache == kCacheInt8 ? int8_scale(x, a.head_size) : 1.f;
    put_numbers(a.cache, key, keys, x, scale);
    if (a.cache == kCacheInt8) reinterpret_cast<float*>(key + shape.key_codes)[lane] = scale;
    if (a.values_in_keys) continue;
    read_head(a, a.v, token * a.v_stride + h * a.value_size, a.value_size, shape.value_size, x);
    scale = a.cache == kCacheInt8 ? int8_scale(x, a.value_size) : 1.f;
    put_numbers(a.cache, value, values, x, scale);
    if (a.cache == kCacheInt8) reinterpret_cast<float*>(value + shape.value_codes)[lane] = scale;
  }
}

// ---- reading -----------------------------------------------------------------------------------------------------------

#if defined(__AVX512BW__)
// A table of magnitudes in registers, and 32 codes of it to bf16.
struct Codes {
  __m512i low0, low1, high0, high1;
  explicit Codes(const Magnitudes& t) {
    low0 = _mm512_load_si512(t.at);
    low1 = _mm512_load_si512(t.at + 32);
    high0 = _mm512_load_si512(t.at + 64);
    high1 = _mm512_load_si512(t.at + 96);
  }
  TC_INLINE __m512i pairs(const uint8_t* p) const {
    const __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p));  // the look-up takes six bits of it
    const __mmask32 high = _mm512_test_epi16_mask(code, _mm512_set1_epi16(64));
    const __m512i low = _mm512_permutex2var_epi16(low0, code, low1);
    const __m512i found = _mm512_mask_mov_epi16(low, high, _mm512_permutex2var_epi16(high0, code, high1));
    // found | (code << 8 & 0x8000)
    return _mm512_ternarylogic_epi32(found, _mm512_slli_epi16(code, 8), _mm512_set1_epi16(short(0x8000)), 0xf8);
  }
};
#endif

// The two halves of each pair, widened, for any cache of pairs.
struct WidePairs {
  int cache;
  const Magnitudes& table;
#if defined(__AVX512BW__)
  Codes codes;
  explicit WidePairs(int c) : cache(c), table(table_of(c)), codes(table) {}
#else
  explicit WidePairs(int c) : cache(c), table(table_of(c)) {}
#endif
  TC_INLINE void at(const uint8_t* from, int64_t pair, vf& even, vf& odd) const {
    if (cache == kCacheBF16) return vpairs(reinterpret_cast<const bf16*>(from) + 2 * pair, even, odd);
    if (cache == kCacheF16) return halves(reinterpret_cast<const uint16_t*>(from) + 2 * pair, even, odd);
    const uint8_t* p = from + 2 * pair;
#if defined(__AVX512BW__)
    const __m512i u = codes.pairs(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32(int(0xffff0000u))));
#else
    alignas(64) float e[kWidth], o[kWidth];
    for (int i = 0; i < kWidth; i++) {
      e[i] = from_code(table, p[2 * i]);
      o[i] = from_code(table, p[2 * i + 1]);
    }
    even = vload(e);
    odd = vload(o);
#endif
  }
  static TC_INLINE void halves(const uint16_t* p, vf& even, vf& odd) {
#if defined(__AVX512F__)
    const __m512i u = _mm512_loadu_si512(p);
    even = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(u));
    odd = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16)));
#else
    alignas(64) float e[kWidth], o[kWidth];
    for (int i = 0; i < kWidth; i++) {
      e[i] = from_f16(p[2 * i]);
      o[i] = from_f16(p[2 * i + 1]);
    }
    even = vload(e);
    odd = vload(o);
#endif
  }
};

// Rows of pairs [rows / 2][columns][2] as float32 [rows][columns]; float32 pages are that already.
static const float* widen(const WidePairs& pairs, const uint8_t* from, int64_t rows, int64_t columns, float* to) {
  if (pairs.cache == kCacheF32) return reinterpret_cast<const float*>(from);
  for (int64_t r = 0; r < rows; r += 2)
    for (int64_t c = 0; c < columns; c += kWidth) {
      vf even, odd;
      pairs.at(from, r / 2 * columns + c, even, odd);
      vstore(to + r * columns + c, even);
      vstore(to + (r + 1) * columns + c, odd);
    }
  return to;
}

// ---- values out of keys ----------------------------------------------------------------------------------------------

// Widened keys [key_size][16] as values [16][value_size]; columns beyond the keys are zero.
static void turn_wide(const float* keys, const PageShape& shape, float* values) {
  for (int64_t c = 0; c < shape.value_size; c++)
    for (int t = 0; t < kSubBlock; t++) values[t * shape.value_size + c] = c < shape.key_size ? keys[c * kSubBlock + t] : 0.f;
}

#if defined(__AVX512BW__)
// Keys of a sub-block [key_size / 2][16 tokens][2] as values [8][value_size][2 tokens], for numbers of 16 bits: within a
// 64-bit lane, two tokens' pairs, the middle ones change places; then 8 x 8 lanes are transposed.
template <typename Pairs>
static void turn_pairs(const Pairs& pairs, const uint8_t* keys, const PageShape& shape, uint8_t* values) {
  const __m512i middle = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  const int64_t rows = shape.key_size / 2, row = shape.value_size * 4;
  for (int64_t d = 0; d < shape.value_size / 2; d += 8, values += 64) {
    __m512i r[8], t[8];
    for (int i = 0; i < 8; i++)
      r[i] = d + i < rows ? _mm512_shuffle_epi8(pairs.at(keys + (d + i) * 2 * kSubBlock * Pairs::kBytes), middle) : _mm512_setzero_si512();
    for (int i = 0; i < 8; i += 2) {  // even lanes of a pair of rows, then odd ones
      t[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
    }
    for (int odd = 0; odd < 2; odd++) {
      const __m512i a = _mm512_shuffle_i64x2(t[odd], t[2 + odd], 0x44), b = _mm512_shuffle_i64x2(t[4 + odd], t[6 + odd], 0x44);
      const __m512i c = _mm512_shuffle_i64x2(t[odd], t[2 + odd], 0xee), e = _mm512_shuffle_i64x2(t[4 + odd], t[6 + odd], 0xee);
      _mm512_storeu_si512(values + (0 + odd) * row, _mm512_shuffle_i64x2(a, b, 0x88));
      _mm512_storeu_si512(values + (2 + odd) * row, _mm512_shuffle_i64x2(a, b, 0xdd));
      _mm512_storeu_si512(values + (4 + odd) * row, _mm512_shuffle_i64x2(c, e, 0x88));
      _mm512_storeu_si512(values + (6 + odd) * row, _mm512_shuffle_i64x2(c, e, 0xdd));
    }
  }
}
#endif
