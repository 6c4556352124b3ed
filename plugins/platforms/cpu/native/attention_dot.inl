// A part of paged attention on bf16 dot products: pages of bf16, or of bytes that are exact in it.
#if defined(__AVX512BF16__)

TC_INLINE __m512i two_of(const bf16* p) {
  int32_t bits;
  std::memcpy(&bits, p, 4);
  return _mm512_set1_epi32(bits);
}
TC_INLINE __m512 dot_two(__m512 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

// 32 numbers of a page as bf16: as they lie, or codes by their table.
struct PlainPairs {
  static constexpr int64_t kBytes = 2;
  explicit PlainPairs(int) {}
  TC_INLINE __m512i at(const uint8_t* p) const { return _mm512_loadu_si512(p); }
};
struct CodedPairs {
  static constexpr int64_t kBytes = 1;
  Codes codes;
  explicit CodedPairs(int cache) : codes(table_of(cache)) {}
  TC_INLINE __m512i at(const uint8_t* p) const { return codes.pairs(p); }
};

// Lanes of a sub-block that row r sees.
TC_INLINE __mmask16 seen(const PartWork& w, int r, int sub) {
  const int64_t low = w.rows.low[r] - w.token(sub), high = w.rows.high[r] - w.token(sub);
  const uint32_t below = low <= 0 ? 0 : low >= kSubBlock ? 0xffff : (1u << low) - 1;
  const uint32_t within = high <= 0 ? 0 : high >= kSubBlock ? 0xffff : (1u << high) - 1;
  return __mmask16(within & ~below);
}

// Scores of R rows against N sub-blocks from `sub` on, and their maxima by lane. More than one at a time keeps more sums in
// flight, reads a query less often and has more pages on their way; each score is the same chain of operations either way.
template <typename Pairs, int R, int N>
static void dot_scores(const PartWork& w, const Pairs& pairs, const bf16* q, int sub, __m512* tops) {
  const int64_t head = w.shape.key_size;
  const uint8_t *key[N], *value[N];
  __m512 s[N][R];
  for (int n = 0; n < N; n++) {
    key[n] = w.pages.key[sub + n];
    value[n] = w.pages.value[sub + n];
    for (int r = 0; r < R; r++) s[n][r] = _mm512_setzero_ps();
  }
  for (int64_t d = 0; d < head; d += 2) {
    __m512i k[N];
    for (int n = 0; n < N; n++) {
      k[n] = pairs.at(key[n] + d * kSubBlock * Pairs::kBytes);
      if (R <= 6) _mm_prefetch((const char*)(value[n] + d * kSubBlock * Pairs::kBytes), _MM_HINT_T0);  // values are next
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const __m512i b = two_of(q + r * head + d);
      for (int n = 0; n < N; n++) s[n][r] = dot_two(s[n][r], k[n], b);
    }
  }
  for (int n = 0; n < N; n++) {
    float* to = w.scores + (sub + n) * kSubBlock;
    if (w.plain && w.open(sub + n)) {
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) {
        tops[r] = vmax(tops[r], s[n][r]);
        vstore(to + r * kPart, s[n][r]);
      }
      continue;
    }
    for (int r = 0; r < R; r++) {
      __m512 v = s[n][r];
      if (!w.plain) v = finish_score(w, r, sub + n, 0, v);
      v = _mm512_mask_mov_ps(vset(kMasked), seen(w, r, sub + n), v);
      tops[r] = vmax(tops[r], v);
      vstore(to + r * kPart, v);
    }
  }
}

// Scores of a row, whose maxima by lane are `tops`, to weights.
static void dot_weights(const PartWork& w, int r, __m512 tops, PartSums& sums) {
  const float* s = w.scores + r * kPart;
  bf16* weights = w.weights + r * kPart;
  const float m = _mm512_reduce_max_ps(tops), base = m * w.factor;
  sums.top[r] = m <= kMaskedBelow ? kMasked : base;
  sums.sum[r] = 0.f;
  if (m <= kMaskedBelow) {
    std::memset(weights, 0, kPart * 2);
    return;
  }
  __m512 sum = _mm512_setzero_ps();
  for (int sub = w.begin; sub < w.end; sub++) {
    const __m512 e = vexp2<4>(vfma(vload(s + sub * kSubBlock), vset(w.factor), vset(-base)));
    sum = sum + e;
    vstore(weights + sub * kSubBlock, weigh(w, sub, 0, e));
  }
  sums.sum[r] = vsum(sum);
}

// o[R][columns `column` .. column + 16 * C], plus weights . values.
template <typename Pairs, int R, int C>
static void dot_values(const PartWork& w, const Pairs& pairs, int64_t column, const PartSums& sums) {
  const int64_t width = w.shape.value_size, step = width * 2 * Pairs::kBytes;
  __m512 o[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) o[r][c] = _mm512_setzero_ps();
  for (int sub = w.begin; sub < w.end; sub++) {
    const uint8_t* value = w.pages.value[sub] + column * 2 * Pairs::kBytes;
    const bf16* weights = w.weights + sub * kSubBlock;
    const int left = w.written(sub);
    for (int t = 0; t + 1 < left; t += 2, value += step) {
      __m512i v[C];
      for (int c = 0; c < C; c++) v[c] = pairs.at(value + 32 * c * Pairs::kBytes);
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) {
        const __m512i p = two_of(weights + r * kPart + t);
        for (int c = 0; c < C; c++) o[r][c] = dot_two(o[r][c], v[c], p);
      }
    }
    if (left % 2 == 0) continue;
    // The second token of the last pair may be memory that nobody wrote: its bits must not enter, not even times zero.
    for (int c = 0; c < C; c++) {
      const __m512i v = _mm512_and_si512(_mm512_set1_epi32(0xffff), pairs.at(value + 32 * c * Pairs::kBytes));
      for (int r = 0; r < R; r++) o[r][c] = dot_two(o[r][c], v, two_of(weights + r * kPart + left - 1));
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) add_values(w.to.o + r * width + column + 16 * c, o[r][c], sums.add[r], sums.keep[r]);
}

template <typename Pairs, int R>
static void all_values(const PartWork& w, const Pairs& pairs, const PartSums& sums) {
  constexpr int C = R <= 6 ? 4 : 2;
  int64_t column = 0;
  for (; column + 16 * C <= w.shape.value_size; column += 16 * C) dot_values<Pairs, R, C>(w, pairs, column, sums);
  for (; column < w.shape.value_size; column += 16) dot_values<Pairs, R, 1>(w, pairs, column, sums);
}

template <typename Pairs, int R>
static void dot_part(const PartWork& w, const bf16* q) {
  const Pairs pairs(w.a.cache);
  constexpr int N = R <= 3 ? 4 : 2;
  __m512 tops[R];
  for (int r = 0; r < R; r++) tops[r] = vset(kMasked);
  int sub = w.begin;
  for (; sub + N <= w.end; sub += N) dot_scores<Pairs, R, N>(w, pairs, q, sub, tops);
  for (; sub < w.end; sub++) dot_scores<Pairs, R, 1>(w, pairs, q, sub, tops);
  PartSums sums;
  for (int r = 0; r < kRowLanes; r++) {
    sums.top[r] = kMasked;
    sums.sum[r] = 0.f;
  }
  for (int r = 0; r < R; r++) dot_weights(w, r, tops[r], sums);
  add_part(w.to, sums);
  if (w.a.values_in_keys) return all_values<PlainPairs, R>(w, PlainPairs(w.a.cache), sums);  // turned, and bf16 by now
  all_values<Pairs, R>(w, pairs, sums);
}

template <typename Pairs>
static void narrow_part(const PartWork& w, const bf16* q) {
  switch (w.rows.count) {
#define TC_CASE(n) case n: return dot_part<Pairs, n>(w, q);
    TC_CASE(1) TC_CASE(2) TC_CASE(3) TC_CASE(4) TC_CASE(5) TC_CASE(6)
    TC_CASE(7) TC_CASE(8) TC_CASE(9) TC_CASE(10) TC_CASE(11) TC_CASE(12)
#undef TC_CASE
    default: return;
  }
}
#endif
