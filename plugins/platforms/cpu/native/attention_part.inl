// One part of paged attention: up to kRowChunk rows against at most kPart tokens, added to the rows' results.
//
// Scores are kept in units of log2: exp(x) is 2^(x log2 e), and the factor goes into the scale. A part's weights are
// 2^(score - its own maximum); `add_part` says what that is worth beside what the rows have already.

constexpr float kMasked = -1e30f;
constexpr float kMaskedBelow = -1e29f;
constexpr float kLog2e = 1.44269504088896341f;

#if defined(__AVX512F__)
constexpr int kRowChunk = 12;
#else
constexpr int kRowChunk = 4;
#endif
constexpr int kRowLanes = 16;  // a chunk's rows as lanes of vectors

// 2^x by a polynomial of degree 6 (2e-9, below float32's rounding) or 4 (3e-6, far below that of bf16 weights), with 2^0
// exactly 1. From -126 down it goes to zero or stays at 2^-126; a NaN stays one.
template <int kDegree>
TC_INLINE vf vexp2(vf x) {
#if defined(__AVX512F__)
  const vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  x = vmax(vset(-126.f), x);
  const vi whole = vint(x);
  const vf n = vfloat(whole);
#endif
  const vf r = x - n;
  vf p;
  if (kDegree == 6) {
    p = vfma(vset(0.00015353362062750617f), r, vset(0.001339887455719594f));
    p = vfma(p, r, vset(0.00961843735823387f));
    p = vfma(p, r, vset(0.05550332470783318f));
    p = vfma(p, r, vset(0.240226479136156f));
    p = vfma(p, r, vset(0.6931472028552114f));
  } else {
    p = vfma(vset(0.009582853235504377f), r, vset(0.05590642594240501f));
    p = vfma(p, r, vset(0.24024098615742287f));
    p = vfma(p, r, vset(0.6931241932597003f));
  }
  p = vfma(p, r, vset(1.f));
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  return p * vpow2(whole);
#endif
}

// Results of a chunk's rows so far: o[kRowChunk][value_size] = sum of 2^(score - top) * value, and the sum of the factors.
struct Results {
  float *o, *top, *sum;
  static int64_t floats(int64_t value_size) { return kRowChunk * value_size + 2 * kRowLanes; }
  Results(float* at, int64_t value_size) : o(at), top(at + kRowChunk * value_size), sum(top + kRowLanes) {}
  void clear() const {
    std::memset(o, 0, size_t(top - o) * 4);
    for (int r = 0; r < kRowLanes; r++) {
      top[r] = kMasked;
      sum[r] = 0.f;
    }
  }
};

// Maximum and sum of a part by row; then what the rows' results and the part's are multiplied by.
struct PartSums {
  alignas(64) float top[kRowLanes], sum[kRowLanes], keep[kRowLanes], add[kRowLanes];
};

// The rows' new maxima and sums. Its caller owes o = o * keep + part * add.
static void add_part(const Results& to, PartSums& part) {
  for (int r = 0; r < kRowLanes; r += kWidth) {
    const vf old = vload(to.top + r), now = vload(part.top + r), top = vmax(old, now);
    const vf keep = vexp2<6>(old - top), add = vexp2<6>(now - top);
    vstore(part.keep + r, keep);
    vstore(part.add + r, add);
    vstore(to.sum + r, vfma(vload(part.sum + r), add, vload(to.sum + r) * keep));
    vstore(to.top + r, top);
  }
}

TC_INLINE void add_values(float* o, vf part, float add, float keep) { vstore(o, vfma(part, vset(add), vload(o) * vset(keep))); }

// Rows of a chunk: row r has query `q + r * key_size`, stands at `position` and sees tokens [low[r], high[r]).
struct RowSet {
  int count;
  int64_t low[kRowChunk], high[kRowChunk], position[kRowChunk];
  float slope[kRowChunk];
  int64_t low_min, low_max, high_min, high_max;
};

// What the kernels of a part share.
struct PartWork {
  const AttentionArgs& a;
  const PageShape& shape;
  const PartPages& pages;
  const RowSet& rows;
  int64_t part, stop;  // first token; tokens below stop were ever written
  int begin, end;      // sub-blocks of the part
  bool plain;          // scores are products times `factor`, which multiplies them as they become weights
  float factor;
  float* scores;  // [rows][kPart]
  bf16* weights;  // [rows][kPart], of narrow kernels
  float* wide;    // a sub-block of float32
  float* turned;  // values out of keys, of wide kernels
  float* part_o;  // [rows][value_size], of wide kernels
  Results to;

  int64_t token(int sub) const { return part + sub * kSubBlock; }
  // Whether all rows see all tokens of a sub-block.
  bool open(int sub) const { return token(sub) >= rows.low_max && token(sub) + kSubBlock <= rows.high_min; }
  // Tokens of a sub-block that were ever written.
  int written(int sub) const { return stop - token(sub) < kSubBlock ? int(stop - token(sub)) : kSubBlock; }
};

// A product of row r with lanes `lane`.. of a sub-block, scaled and capped.
TC_INLINE vf finish_score(const PartWork& w, int r, int sub, int lane, vf v) {
  static const float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const AttentionArgs& a = w.a;
  v = v * vset(a.scale);
  if (a.cache == kCacheInt8) v = v * vload(w.pages.key_scale[sub] + lane);
  if (a.softcap != 0.f) v = vset(a.softcap) * vtanh(v / vset(a.softcap));
  if (a.slopes) v = vfma(vset(w.rows.slope[r]), vload(kLanes + lane) + vset(float(w.token(sub) - w.rows.position[r])), v);
  return v * vset(kLog2e);
}

// Weights of tokens times the scales of their values. A weight of zero may stand beside memory that nobody wrote.
TC_INLINE vf weigh(const PartWork& w, int sub, int lane, vf weight) {
  if (w.a.cache != kCacheInt8) return weight;
  return vabove(weight, 0.f, weight * vload(w.pages.value_scale[sub] + lane));
}

// ---- float32 multiply-add, for any cache -------------------------------------------------------------------------------

// s[R][16 tokens] = keys of a sub-block . R queries, to scores of rows `first`...
template <int R>
static void wide_scores(const PartWork& w, const float* keys, const float* q, int first, int sub) {
  const int64_t head = w.shape.key_size;
  for (int i = 0; i < kSubBlock; i += kWidth) {
    vf s[R];
    for (vf& v : s) v = vset(0.f);
    for (int64_t d = 0; d < head; d++) {
      const vf k = vload(keys + d * kSubBlock + i);
      for (int r = 0; r < R; r++) s[r] = vfma(k, vset(q[(first + r) * head + d]), s[r]);
    }
    for (int r = 0; r < R; r++)
      vstore(w.scores + (first + r) * kPart + sub * kSubBlock + i, w.plain ? s[r] : finish_score(w, first + r, sub, i, s[r]));
  }
  if (w.open(sub)) return;
  for (int r = first; r < first + R; r++)
    for (int i = 0; i < kSubBlock; i++)
      if (w.token(sub) + i < w.rows.low[r] || w.token(sub) + i >= w.rows.high[r]) w.scores[r * kPart + sub * kSubBlock + i] = kMasked;
}

// Scores of one row to weights in place; masked ones become exactly zero.
static void wide_weights(const PartWork& w, int r, PartSums& sums) {
  float* s = w.scores + r * kPart;
  vf top = vset(kMasked);
  for (int i = w.begin * kSubBlock; i < w.end * kSubBlock; i += kWidth) top = vmax(top, vload(s + i));
  const float m = vtop(top), base = m * w.factor;
  sums.top[r] = m <= kMaskedBelow ? kMasked : base;
  sums.sum[r] = 0.f;
  if (m <= kMaskedBelow) return;
  vf sum = vset(0.f);
  for (int sub = w.begin; sub < w.end; sub++)
    for (int i = 0; i < kSubBlock; i += kWidth) {
      float* at = s + sub * kSubBlock + i;
      const vf v = vload(at), e = vabove(v, kMaskedBelow, vexp2<6>(vfma(v, vset(w.factor), vset(-base))));
      sum = sum + e;
      vstore(at, weigh(w, sub, i, e));
    }
  sums.sum[r] = vsum(sum);
}

// part_o[R rows from `first` on] += weights . values of a sub-block, token by token.
template <int R>
static void wide_values(const PartWork& w, const float* values, int first, int sub) {
  const int64_t width = w.shape.value_size;
  const int left = w.written(sub);
  const float* s = w.scores + first * kPart + sub * kSubBlock;
  for (int64_t c = 0; c < width; c += kWidth) {
    vf o[R];
    for (int r = 0; r < R; r++) o[r] = vload(w.part_o + (first + r) * width + c);
    for (int t = 0; t < left; t++) {
      const vf v = vload(values + t * width + c);
      for (int r = 0; r < R; r++) o[r] = vfma(v, vset(s[r * kPart + t]), o[r]);
    }
    for (int r = 0; r < R; r++) vstore(w.part_o + (first + r) * width + c, o[r]);
  }
}

static void wide_part(const PartWork& w, const float* q) {
  constexpr int R = 4;
  const WidePairs pairs(w.a.cache);
  const int64_t head = w.shape.key_size, width = w.shape.value_size;
  const int count = w.rows.count;
  for (int sub = w.begin; sub < w.end; sub++) {
    const float* keys = widen(pairs, w.pages.key[sub], head, kSubBlock, w.wide);
    int r = 0;
    for (; r + R <= count; r += R) wide_scores<R>(w, keys, q, r, sub);
    for (; r < count; r++) wide_scores<1>(w, keys, q, r, sub);
  }
  PartSums sums;
  for (int r = 0; r < kRowLanes; r++) {
    sums.top[r] = kMasked;
    sums.sum[r] = 0.f;
  }
  for (int r = 0; r < count; r++) {
    wide_weights(w, r, sums);
    std::memset(w.part_o + r * width, 0, size_t(width) * 4);
    if (sums.sum[r] == 0.f)
      for (int i = w.begin * kSubBlock; i < w.end * kSubBlock; i++) w.scores[r * kPart + i] = 0.f;
  }
  add_part(w.to, sums);
  for (int sub = w.begin; sub < w.end; sub++) {
    const float* values = w.turned;
    if (w.a.values_in_keys) turn_wide(widen(pairs, w.pages.key[sub], head, kSubBlock, w.wide), w.shape, w.turned);
    else values = widen(pairs, w.pages.value[sub], kSubBlock, width, w.wide);
    int r = 0;
    for (; r + R <= count; r += R) wide_values<R>(w, values, r, sub);
    for (; r < count; r++) wide_values<1>(w, values, r, sub);
  }
  for (int r = 0; r < count; r++)
    for (int64_t c = 0; c < width; c += kWidth) add_values(w.to.o + r * width + c, vload(w.part_o + r * width + c), sums.add[r], sums.keep[r]);
}
