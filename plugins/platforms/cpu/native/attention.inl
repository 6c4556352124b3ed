// Paged attention over the pages of kv.inl.
//
// The tokens a row sees are cut into parts of kPart tokens at absolute positions. Within a part a row has its scores, their
// maximum m, the sum l of exp(score - m) and o = sum of exp(score - m) * value; parts are merged in order. So the chain
// of operations of a row depends on its own tokens only: not on the rows in its tile, on the batch, on how a prompt was
// chunked, nor on whether parts were computed one after the other or by several threads.
//
// A tile is some tokens of a request times query heads of one KV head; its rows are computed kRowChunk at a time, part by
// part, so that a part's pages come from memory once for the whole tile.

constexpr int kPart = 256;
constexpr float kMasked = -1e30f;
constexpr float kMaskedBelow = -1e29f;

// One row's running (or one part's) result.
struct Partial {
  float top, sum;
};

struct AttentionTile {
  int64_t request, kv_head, head0, heads;  // query heads head0 .. head0 + heads of the KV head's group
  int64_t token0, tokens;                  // rows of q
  int64_t position0;                       // position of the first of them
  int64_t length;                          // tokens of the request
  int64_t rows() const { return tokens * heads; }
};

#if defined(__AVX512F__)
constexpr int kRowChunk = 12;
#else
constexpr int kRowChunk = 4;
#endif
constexpr int kTileChunks = 4;

TC_INLINE bool narrow_queries(const AttentionArgs& a) {
#if defined(__AVX512BF16__)
  return a.element == kBFloat16 && (a.cache == kCacheBF16 || byte_cache(a.cache));
#else
  (void)a;
  return false;
#endif
}

// Scratch of one thread: queries of a tile, scores and weights of a chunk in a part, a chunk's part result, the rows'
// states, and widened keys or values of a sub-block.
struct AttentionMemory {
  int64_t o_stride;
  size_t query_at, scores_at, weights_at, part_at, state_at, wide_at, own;
  AttentionMemory(const AttentionArgs& a, int64_t tile_rows) {
    const PageShape shape(a);
    o_stride = shape.value_size + 16;  // o, then top and sum
    const int64_t wide = kSubBlock * (shape.key_size > shape.value_size ? shape.key_size : shape.value_size);
    query_at = 0;
    scores_at = query_at + size_t(align64(tile_rows * shape.key_size * 4));
    weights_at = scores_at + size_t(align64(kRowChunk * kPart * 4));
    part_at = weights_at + size_t(align64(kRowChunk * kPart * 2));
    state_at = part_at + size_t(align64(kRowChunk * o_stride * 4));
    wide_at = state_at + size_t(align64(tile_rows * o_stride * 4));
    own = wide_at + size_t(align64(wide * 4));
  }
};

// Rows of a chunk: row r has query `q + r * key_size`, stands at `position` and sees tokens [low[r], high[r]).
struct RowSet {
  int count;
  int64_t low[kRowChunk], high[kRowChunk], position[kRowChunk];
  float slope[kRowChunk];
  int64_t low_min, high_max;
};

// What the kernels of a part share.
struct PartWork {
  const AttentionArgs& a;
  const PageView& view;
  const RowSet& rows;
  int64_t part, begin, stop, end;  // first token; sub-blocks [begin, end); tokens below stop were ever written
  float* scores;                   // [rows][kPart]
  bf16* weights;                   // [rows][kPart], of narrow kernels
  float* wide;
  float* out;  // [rows][o_stride]
  int64_t o_stride;
  PartWork(const AttentionArgs& args, const PageView& pages, const RowSet& set, int64_t first, uint8_t* own, const AttentionMemory& memory, float* to)
      : a(args), view(pages), rows(set), part(first), out(to), o_stride(memory.o_stride) {
    begin = rows.low_min > part ? rows.low_min / kSubBlock * kSubBlock : part;
    stop = rows.high_max < part + kPart ? rows.high_max : part + kPart;
    end = (stop + kSubBlock - 1) / kSubBlock * kSubBlock;
    scores = reinterpret_cast<float*>(own + memory.scores_at);
    weights = reinterpret_cast<bf16*>(own + memory.weights_at);
    wide = reinterpret_cast<float*>(own + memory.wide_at);
  }
};

// Raw scores of 16 tokens from `token` to masked, scaled and capped ones.
static void finish_scores(const PartWork& w, int r, int64_t token, const uint8_t* key, float* s) {
  static const float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const AttentionArgs& a = w.a;
  const auto* scales = a.cache == kCacheInt8 ? reinterpret_cast<const float*>(key + w.view.shape.key_codes) : nullptr;
  for (int i = 0; i < kSubBlock; i += kWidth) {
    vf v = vload(s + i) * vset(a.scale);
    if (scales) v = v * vload(scales + i);
    if (a.softcap != 0.f) v = vset(a.softcap) * vtanh(v / vset(a.softcap));
    if (a.slopes) v = vfma(vset(w.rows.slope[r]), vload(kLanes + i) + vset(float(token - w.rows.position[r])), v);
    vstore(s + i, v);
  }
  if (token >= w.rows.low[r] && token + kSubBlock <= w.rows.high[r]) return;
  for (int i = 0; i < kSubBlock; i++)
    if (token + i < w.rows.low[r] || token + i >= w.rows.high[r]) s[i] = kMasked;
}

// Scores [kPart] of one row to weights in place; masked ones become exactly zero.
static Partial soften(float* s, int64_t begin, int64_t end) {
  vf top = vset(kMasked);
  for (int64_t i = begin; i < end; i += kWidth) top = vmax(top, vload(s + i));
  const float m = vtop(top);
  if (m <= kMaskedBelow) return {kMasked, 0.f};
  vf sum = vset(0.f);
  for (int64_t i = begin; i < end; i += kWidth) {
    const vf v = vload(s + i), e = vabove(v, kMaskedBelow, vexp(v - vset(m)));
    vstore(s + i, e);
    sum = sum + e;
  }
  return {m, vsum(sum)};
}

// Adds a part's result to a row's.
static void merge(float* state, const float* part, int64_t head) {
  float* top = state + head;
  const float* part_top = part + head;
  if (part_top[1] == 0.f) return;
  if (top[1] == 0.f) {
    std::memcpy(state, part, size_t(head + 2) * 4);
    return;
  }
  const float m = top[0] > part_top[0] ? top[0] : part_top[0];
  const float keep = exp1(top[0] - m), add = exp1(part_top[0] - m);
  for (int64_t i = 0; i < head; i += kWidth) vstore(state + i, vfma(vload(part + i), vset(add), vload(state + i) * vset(keep)));
  top[1] = top[1] * keep + part_top[1] * add;
  top[0] = m;
}

// Weights of 16 tokens times the scales of their values. A weight of zero may stand beside memory that nobody wrote.
TC_INLINE vf weigh(const PartWork& w, const uint8_t* value, int i, vf weight) {
  if (w.a.cache != kCacheInt8) return weight;
  return vabove(weight, 0.f, weight * vload(reinterpret_cast<const float*>(value + w.view.shape.value_codes) + i));
}

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

// Scores of R rows against N sub-blocks from `token` on. More than one at a time keeps more sums in flight and more pages
// on their way; each score is the same chain of operations either way.
template <typename Pairs, int R, int N>
static void dot_scores(const PartWork& w, const Pairs& pairs, const bf16* q, int64_t token) {
  const int64_t head = w.view.shape.key_size;
  const uint8_t *key[N], *value[N];
  __m512 s[N][R];
  for (int n = 0; n < N; n++) {
    key[n] = w.view.key(token + n * kSubBlock);
    value[n] = w.view.value(token + n * kSubBlock);
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
  for (int n = 0; n < N; n++)
    for (int r = 0; r < R; r++) {
      float* to = w.scores + r * kPart + (token - w.part) + n * kSubBlock;
      _mm512_storeu_ps(to, s[n][r]);
      finish_scores(w, r, token + n * kSubBlock, key[n], to);
    }
}

// out[R][columns `column` .. column + 16 * C] = weights . values.
template <typename Pairs, int R, int C>
static void dot_values(const PartWork& w, const Pairs& pairs, int64_t column) {
  const int64_t step = w.view.shape.value_size * 2 * Pairs::kBytes;
  __m512 o[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) o[r][c] = _mm512_setzero_ps();
  for (int64_t token = w.begin; token < w.end; token += kSubBlock) {
    const uint8_t* value = w.view.value(token) + column * 2 * Pairs::kBytes;
    const int64_t left = w.stop - token < kSubBlock ? w.stop - token : kSubBlock;  // tokens that were ever written
    for (int64_t t = 0; 2 * t < left; t++, value += step) {
      // The second token of the last pair may be memory that nobody wrote: its bits must not enter, not even times zero.
      const __m512i used = _mm512_set1_epi32(2 * t + 1 < left ? -1 : 0xffff);
      __m512i v[C];
      for (int c = 0; c < C; c++) v[c] = _mm512_and_si512(used, pairs.at(value + 32 * c * Pairs::kBytes));
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) {
        const __m512i p = two_of(w.weights + r * kPart + (token - w.part) + 2 * t);
        for (int c = 0; c < C; c++) o[r][c] = dot_two(o[r][c], v[c], p);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) _mm512_storeu_ps(w.out + r * w.o_stride + column + 16 * c, o[r][c]);
}

template <typename Pairs, int R>
static void dot_part(const PartWork& w, const bf16* q) {
  const Pairs pairs(w.a.cache);
  const int64_t head = w.view.shape.value_size;
  constexpr int N = R <= 3 ? 4 : R <= 6 ? 2 : 1;
  int64_t token = w.begin;
  for (; token + N * kSubBlock <= w.end; token += N * kSubBlock) dot_scores<Pairs, R, N>(w, pairs, q, token);
  for (; token < w.end; token += kSubBlock) dot_scores<Pairs, R, 1>(w, pairs, q, token);
  for (int r = 0; r < R; r++) {
    float* s = w.scores + r * kPart;
    const Partial p = soften(s, w.begin - w.part, w.end - w.part);
    w.out[r * w.o_stride + head] = p.top;
    w.out[r * w.o_stride + head + 1] = p.sum;
    bf16* weights = w.weights + r * kPart;
    if (p.sum == 0.f) {
      std::memset(weights, 0, kPart * 2);
      continue;
    }
    for (token = w.begin; token < w.end; token += kSubBlock)
      vstore(weights + (token - w.part), weigh(w, w.view.value(token), 0, vload(s + (token - w.part))));
  }
  constexpr int C = R <= 3 ? 4 : R <= 6 ? 4 : 2;
  int64_t column = 0;
  for (; column + 16 * C <= head; column += 16 * C) dot_values<Pairs, R, C>(w, pairs, column);
  for (; column < head; column += 16) dot_values<Pairs, R, 1>(w, pairs, column);
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

// The same in float32 multiply-add, for any cache.
static void wide_part(const PartWork& w, const float* q) {
  const WidePairs pairs(w.a.cache);
  const int64_t head = w.view.shape.key_size, width = w.view.shape.value_size;
  for (int64_t token = w.begin; token < w.end; token += kSubBlock) {
    const uint8_t* page = w.view.key(token);
    const float* keys = widen(pairs, page, head, kSubBlock, w.wide);
    for (int r = 0; r < w.rows.count; r++) {
      vf s[kSubBlock / kWidth];
      for (auto& v : s) v = vset(0.f);
      for (int64_t d = 0; d < head; d++)
        for (int i = 0; i < kSubBlock / kWidth; i++) s[i] = vfma(vload(keys + d * kSubBlock + i * kWidth), vset(q[r * head + d]), s[i]);
      float* to = w.scores + r * kPart + (token - w.part);
      for (int i = 0; i < kSubBlock / kWidth; i++) vstore(to + i * kWidth, s[i]);
      finish_scores(w, r, token, page, to);
    }
  }
  for (int r = 0; r < w.rows.count; r++) {
    float* o = w.out + r * w.o_stride;
    const Partial p = soften(w.scores + r * kPart, w.begin - w.part, w.end - w.part);
    o[width] = p.top;
    o[width + 1] = p.sum;
    std::memset(o, 0, size_t(width) * 4);
  }
  for (int64_t token = w.begin; token < w.end; token += kSubBlock) {
    const uint8_t* page = w.view.value(token);
    const float* values = widen(pairs, page, kSubBlock, width, w.wide);
    const int64_t left = w.stop - token < kSubBlock ? w.stop - token : kSubBlock;
    for (int r = 0; r < w.rows.count; r++) {
      float* o = w.out + r * w.o_stride;
      if (o[width + 1] == 0.f) continue;
      float* s = w.scores + r * kPart + (token - w.part);
      for (int i = 0; i < kSubBlock; i += kWidth) vstore(s + i, weigh(w, page, i, vload(s + i)));
      for (int64_t c = 0; c < width; c += kWidth) {
        vf sum = vload(o + c);
        for (int64_t t = 0; t < left; t++) sum = vfma(vload(values + t * width + c), vset(s[t]), sum);
        vstore(o + c, sum);
      }
    }
  }
}

// ---- tiles -----------------------------------------------------------------------------------------------------------

// Rows [first, first + kRowChunk) of a tile.
static RowSet row_set(const AttentionArgs& a, const AttentionTile& t, int64_t first) {
  RowSet rows;
  rows.count = int(t.rows() - first < kRowChunk ? t.rows() - first : kRowChunk);
  rows.low_min = INT64_MAX;
  rows.high_max = 0;
  for (int r = 0; r < rows.count; r++) {
    const int64_t at = t.position0 + (first + r) / t.heads;
    rows.position[r] = at;
    rows.slope[r] = a.slopes ? a.slopes[t.head0 + (first + r) % t.heads] : 0.f;
    rows.high[r] = !a.bidirectional ? at + 1 : a.window > 0 && at + a.window < t.length ? at + a.window : t.length;
    rows.low[r] = a.window > 0 && at + 1 > a.window ? at + 1 - a.window : 0;
    if (rows.low[r] < rows.low_min) rows.low_min = rows.low[r];
    if (rows.high[r] > rows.high_max) rows.high_max = rows.high[r];
  }
  return rows;
}

static void gather_queries(const AttentionArgs& a, const AttentionTile& t, void* to) {
  const int64_t d = a.head_size, padded = PageShape(a).key_size;
  for (int64_t r = 0; r < t.rows(); r++) {
    const int64_t at = (t.token0 + r / t.heads) * a.q_stride + (t.head0 + r % t.heads) * d;
    if (narrow_queries(a)) {
      bf16* q = static_cast<bf16*>(to) + r * padded;
      std::memcpy(q, static_cast<const bf16*>(a.q) + at, size_t(d) * 2);
      for (int64_t i = d; i < padded; i++) q[i] = 0;
    } else {
      read_head(a, a.q, at, d, padded, static_cast<float*>(to) + r * padded);
    }
  }
}

// Part `part` of the rows from `first` on; `queries` are the tile's.
static void one_part(const PartWork& w, const void* queries, int64_t first) {
  const int64_t at = first * w.view.shape.key_size;
#if defined(__AVX512BF16__)
  if (narrow_queries(w.a)) {
    const auto* q = static_cast<const bf16*>(queries) + at;
    return w.a.cache == kCacheBF16 ? narrow_part<PlainPairs>(w, q) : narrow_part<CodedPairs>(w, q);
  }
#endif
  wide_part(w, static_cast<const float*>(queries) + at);
}

static void write_out(const AttentionArgs& a, const AttentionTile& t, const float* state, int64_t stride) {
  const int64_t d = a.value_size, top_at = stride - 16;
  for (int64_t r = 0; r < t.rows(); r++, state += stride) {
    const int64_t head = t.head0 + r % t.heads, at = (t.token0 + r / t.heads) * a.out_stride + head * d;
    float top = state[top_at], sum = state[top_at + 1], keep = 1.f;
    if (a.sinks) {  // a sink joins the denominator and brings no value
      const float m = top > a.sinks[head] ? top : a.sinks[head];
      keep = exp1(top - m);
      sum = sum * keep + exp1(a.sinks[head] - m);
    }
    const float scale = sum > 0.f ? keep / sum : 0.f;
    int64_t i = 0;
    for (; i + kWidth <= d; i += kWidth) {
      const vf v = vload(state + i) * vset(scale);
      if (a.element == kFloat32) vstore(static_cast<float*>(a.out) + at + i, v);
      else vstore(static_cast<bf16*>(a.out) + at + i, v);
    }
    for (; i < d; i++) {
      if (a.element == kFloat32) static_cast<float*>(a.out)[at + i] = state[i] * scale;
      else static_cast<bf16*>(a.out)[at + i] = to_bf16(state[i] * scale);
    }
  }
}

// Enumerates tiles without storing them: tile i of a request is tokens [n * i, n * (i + 1)). Tiles are small where there
// would be too few for the threads; no result depends on it.
struct Tiling {
  int64_t heads_per_tile, head_groups, tokens_per_tile, group;
  Tiling(const AttentionArgs& a, int threads) {
    group = a.heads / a.kv_heads;
    for (int chunks = kTileChunks; chunks > 0; chunks /= 2) {
      cut(chunks * kRowChunk);
      if (total(a) >= 4 * threads) break;
    }
  }
  void cut(int64_t rows) {
    head_groups = (group + rows - 1) / rows;
    heads_per_tile = (group + head_groups - 1) / head_groups;
    head_groups = (group + heads_per_tile - 1) / heads_per_tile;
    tokens_per_tile = rows / heads_per_tile;
    if (tokens_per_tile < 1) tokens_per_tile = 1;
  }
  int64_t rows() const { return tokens_per_tile * heads_per_tile; }
  int64_t tiles_of(int64_t tokens) const { return (tokens + tokens_per_tile - 1) / tokens_per_tile; }
  int64_t total(const AttentionArgs& a) const {
    int64_t n = 0;
    for (int64_t b = 0; b < a.batch; b++) n += tiles_of(a.query_start[b + 1] - a.query_start[b]);
    return n * a.kv_heads * head_groups;
  }
};

// Walks tiles in order; `seek` only goes forward.
struct TileWalk {
  const AttentionArgs& a;
  const Tiling& tiling;
  int64_t request = 0, before = 0;
  AttentionTile at(int64_t item) {
    const int64_t columns = a.kv_heads * tiling.head_groups, tile = item / columns, column = item % columns;
    int64_t here;
    while (tile >= before + (here = tiling.tiles_of(a.query_start[request + 1] - a.query_start[request]))) {
      before += here;
      request++;
    }
    const int64_t first = a.query_start[request], count = a.query_start[request + 1] - first;
    AttentionTile t;
    t.request = request;
    t.kv_head = column / tiling.head_groups;
    const int64_t offset = column % tiling.head_groups * tiling.heads_per_tile;
    t.head0 = t.kv_head * tiling.group + offset;
    t.heads = tiling.group - offset < tiling.heads_per_tile ? tiling.group - offset : tiling.heads_per_tile;
    const int64_t start = (tile - before) * tiling.tokens_per_tile;
    t.tokens = count - start < tiling.tokens_per_tile ? count - start : tiling.tokens_per_tile;
    t.token0 = first + start;
    t.length = a.seq_lens[request];
    t.position0 = t.length - count + start;
    return t;
  }
};

// Few tiles over a long context (one stream decoding): parts are shared out, then merged in order.
struct SplitPlan {
  bool split;
  int64_t parts, tiles, slot;  // parts of the longest context; bytes of a tile's partial results
  SplitPlan(const AttentionArgs& a, const Tiling& tiling, const AttentionMemory& memory, int threads) {
    int64_t longest = 0;
    for (int64_t b = 0; b < a.batch; b++)
      if (a.seq_lens[b] > longest) longest = a.seq_lens[b];
    parts = (longest + kPart - 1) / kPart;
    tiles = tiling.total(a);
    slot = align64(tiling.rows() * memory.o_stride * 4);
    split = threads > 1 && parts > 1 && tiles < 4 * threads && bytes() < size_t(256) << 20;
  }
  size_t bytes() const { return size_t(tiles * parts) * size_t(slot); }
};

static size_t attention_scratch(const AttentionArgs& a, int threads) {
  const Tiling tiling(a, threads);
  const AttentionMemory memory(a, tiling.rows());
  const SplitPlan plan(a, tiling, memory, threads);
  return 64 + size_t(threads) * memory.own + (plan.split ? plan.bytes() : 0);
}

static void clear_state(float* state, int64_t head) {
  std::memset(state, 0, size_t(head) * 4);
  state[head] = kMasked;
  state[head + 1] = 0.f;
}

static void whole_tile(const AttentionArgs& a, const AttentionTile& t, const AttentionMemory& memory, uint8_t* own) {
  const PageView view(a, t.request, t.kv_head);
  const int64_t head = view.shape.value_size, stride = memory.o_stride;
  auto* part_out = reinterpret_cast<float*>(own + memory.part_at);
  auto* state = reinterpret_cast<float*>(own + memory.state_at);
  gather_queries(a, t, own + memory.query_at);
  for (int64_t r = 0; r < t.rows(); r++) clear_state(state + r * stride, head);
  RowSet chunks[kTileChunks];
  int64_t low = INT64_MAX, high = 0;
  for (int64_t first = 0; first < t.rows(); first += kRowChunk) {
    RowSet& rows = chunks[first / kRowChunk] = row_set(a, t, first);
    if (rows.low_min < low) low = rows.low_min;
    if (rows.high_max > high) high = rows.high_max;
  }
  for (int64_t part = low / kPart * kPart; part < high; part += kPart)
    for (int64_t first = 0; first < t.rows(); first += kRowChunk) {
      const RowSet& rows = chunks[first / kRowChunk];
      if (part + kPart <= rows.low_min || part >= rows.high_max) continue;
      one_part(PartWork(a, view, rows, part, own, memory, part_out), own + memory.query_at, first);
      for (int r = 0; r < rows.count; r++) merge(state + (first + r) * stride, part_out + r * stride, head);
    }
  write_out(a, t, state, stride);
}

// Parts of few tiles, shared out: first every (tile, part), then every tile's merge.
static void split_tiles(const AttentionArgs& a, Team& team, const Tiling& tiling, const SplitPlan& plan, const AttentionMemory& memory) {
  const int64_t stride = memory.o_stride, head = stride - 16;
  uint8_t* own = a.scratch + 64 + size_t(team.id) * memory.own;
  uint8_t* slots = a.scratch + 64 + size_t(team.count) * memory.own;
  team_for(team, 1, plan.tiles * plan.parts, [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    for (int64_t item = begin; item < end; item++) {
      const AttentionTile t = walk.at(item / plan.parts);
      const PageView view(a, t.request, t.kv_head);
      const int64_t part = item % plan.parts * kPart;
      gather_queries(a, t, own + memory.query_at);
      for (int64_t first = 0; first < t.rows(); first += kRowChunk) {
        const RowSet rows = row_set(a, t, first);
        if (part + kPart <= rows.low_min || part >= rows.high_max) continue;
        float* to = reinterpret_cast<float*>(slots + item * plan.slot) + first * stride;
        one_part(PartWork(a, view, rows, part, own, memory, to), own + memory.query_at, first);
      }
    }
  });
  team_for(team, 2, plan.tiles, [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    auto* state = reinterpret_cast<float*>(own + memory.state_at);
    for (int64_t i = begin; i < end; i++) {
      const AttentionTile t = walk.at(i);
      for (int64_t first = 0; first < t.rows(); first += kRowChunk) {
        const RowSet rows = row_set(a, t, first);
        for (int r = 0; r < rows.count; r++) {
          float* to = state + (first + r) * stride;
          clear_state(to, head);
          for (int64_t p = rows.low_min / kPart; p * kPart < rows.high_max; p++)
            merge(to, reinterpret_cast<float*>(slots + (i * plan.parts + p) * plan.slot) + (first + r) * stride, head);
        }
      }
      write_out(a, t, state, stride);
    }
  });
}

static void attention(const void* args, Team& team) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  const PageShape shape(a);
  team_for(team, 0, a.tokens, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) write_token(a, shape, t);
  });
  const Tiling tiling(a, team.count);
  const AttentionMemory memory(a, tiling.rows());
  const SplitPlan plan(a, tiling, memory, team.count);
  if (plan.split) return split_tiles(a, team, tiling, plan, memory);
  uint8_t* own = a.scratch + 64 + size_t(team.id) * memory.own;
  team_for(team, 1, tiling.total(a), [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    for (int64_t i = begin; i < end; i++) whole_tile(a, walk.at(i), memory, own);
  });
}
