// Paged attention.
//
// A page holds `block_size` tokens of all KV heads: [2][Hkv][block_size/16] sub-blocks of 16 tokens, first all keys, then
// all values. Within a sub-block, for bf16 the layout is the pairs that a bf16 dot product takes:
//   keys [D/2][16][2], values [8][D][2];   for float32: keys [D][16], values [16][D].
//
// The tokens a row sees are cut into parts of kPart tokens at absolute positions. Within a part a row has its scores, their
// maximum m, the sum l of exp(score - m) and o = sum of exp(score - m) * value; parts are merged in order. So the chain
// of operations of a row depends on its own tokens only: not on the rows in its tile, on the batch, on how a prompt was
// chunked, nor on whether parts were computed one after the other or by several threads.

constexpr int kPart = 256;
constexpr int kSubBlock = 16;
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
};

#if defined(__AVX512F__)
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 4;
#endif

struct AttentionMemory {
  int64_t rows, head, o_stride;
  size_t query_at, scores_at, part_at, state_at, own;
  explicit AttentionMemory(const AttentionArgs& a) {
    rows = kTileRows;
    head = a.head_size;
    o_stride = head + 16;  // o, then top and sum
    query_at = 0;
    scores_at = query_at + size_t(align64(rows * head * 4));
    part_at = scores_at + size_t(align64(rows * kPart * 4));
    state_at = part_at + size_t(align64(rows * o_stride * 4));
    own = state_at + size_t(align64(rows * o_stride * 4));
  }
};

// What one tile's kernels share: row r has query `q + r * head`, sees tokens [low[r], high[r]).
struct RowSet {
  int count;
  int64_t low[kTileRows], high[kTileRows];
  int64_t low_min, high_max;
};

template <typename T>
struct PageView {
  const T* kv;
  const int32_t* table;
  int64_t block_size, page, keys, sub, head;  // elements
  PageView(const AttentionArgs& a, int64_t request, int64_t kv_head) {
    head = a.head_size;
    block_size = a.block_size;
    sub = kSubBlock * head;
    const int64_t per_head = block_size * head;
    keys = kv_head * per_head;
    page = 2 * a.kv_heads * per_head;
    kv = static_cast<const T*>(a.kv) + keys;
    table = a.block_table + request * a.table_stride;
  }
  const T* key(int64_t token) const {
    return kv + table[token / block_size] * page + token % block_size / kSubBlock * sub;
  }
  const T* value(int64_t token, int64_t kv_heads) const { return key(token) + kv_heads * block_size * head; }
};

template <typename T>
static void write_token(const AttentionArgs& a, int64_t token) {
  const int64_t d = a.head_size, slot = a.slots[token];
  if (slot < 0) return;
  const int64_t page = slot / a.block_size, offset = slot % a.block_size, lane = offset % kSubBlock;
  T* base = static_cast<T*>(a.kv) + page * 2 * a.kv_heads * a.block_size * d + offset / kSubBlock * kSubBlock * d;
  for (int64_t h = 0; h < a.kv_heads; h++) {
    const T* k = static_cast<const T*>(a.k) + token * a.k_stride + h * d;
    const T* v = static_cast<const T*>(a.v) + token * a.v_stride + h * d;
    T* keys = base + h * a.block_size * d;
    T* values = keys + a.kv_heads * a.block_size * d;
    if (sizeof(T) == 2) {
      for (int64_t i = 0; i < d; i++) {
        keys[(i / 2 * kSubBlock + lane) * 2 + i % 2] = k[i];
        values[(lane / 2 * d + i) * 2 + lane % 2] = v[i];
      }
    } else {
      for (int64_t i = 0; i < d; i++) keys[i * kSubBlock + lane] = k[i];
      std::memcpy(values + lane * d, v, size_t(d) * sizeof(T));
    }
  }
}

// Raw scores to masked, scaled and capped ones. `base` is the position of lane 0.
static void finish_scores(const AttentionArgs& a, const RowSet& rows, int r, int64_t base, float* s) {
  if (a.softcap != 0.f) {
    for (int i = 0; i < kSubBlock; i += kWidth)
      vstore(s + i, vset(a.softcap) * vtanh(vload(s + i) * vset(a.scale) / vset(a.softcap)));
  } else {
    for (int i = 0; i < kSubBlock; i += kWidth) vstore(s + i, vload(s + i) * vset(a.scale));
  }
  if (base >= rows.low[r] && base + kSubBlock <= rows.high[r]) return;
  for (int i = 0; i < kSubBlock; i++)
    if (base + i < rows.low[r] || base + i >= rows.high[r]) s[i] = kMasked;
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

#if defined(__AVX512BF16__)

// Scores of R rows against N sub-blocks from `token` on. More than one at a time keeps more sums in flight and more pages
// on their way; each score is the same chain of operations either way.
template <int R, int N>
static void dot_scores(const AttentionArgs& a, const PageView<bf16>& view, const bf16* q, const RowSet& rows, int64_t part, int64_t token, float* scores) {
  const int64_t head = view.head;
  const bf16 *key[N], *value[N];
  __m512 s[N][R];
  for (int n = 0; n < N; n++) {
    key[n] = view.key(token + n * kSubBlock);
    value[n] = view.value(token + n * kSubBlock, a.kv_heads);
    for (int r = 0; r < R; r++) s[n][r] = _mm512_setzero_ps();
  }
  for (int64_t d = 0; d < head; d += 2) {
    __m512i k[N];
    for (int n = 0; n < N; n++) {
      k[n] = _mm512_loadu_si512(key[n] + d * kSubBlock);
      if (R <= 6) _mm_prefetch((const char*)(value[n] + d * kSubBlock), _MM_HINT_T0);  // values are next
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const __m512i b = pair_of(q + r * head + d);
      for (int n = 0; n < N; n++) s[n][r] = dot(s[n][r], k[n], b);
    }
  }
  for (int n = 0; n < N; n++)
    for (int r = 0; r < R; r++) {
      float* to = scores + r * kPart + (token - part) + n * kSubBlock;
      _mm512_storeu_ps(to, s[n][r]);
      finish_scores(a, rows, r, token + n * kSubBlock, to);
    }
}

// out[R][head columns c .. c + 16 * C] = weights . values over tokens [begin, end).
template <int R, int C>
static void dot_values(const PageView<bf16>& view, int64_t kv_heads, const bf16* weights, int64_t part, int64_t begin, int64_t end, int64_t stop, int64_t column, float* out, int64_t out_stride) {
  __m512 o[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) o[r][c] = _mm512_setzero_ps();
  for (int64_t token = begin; token < end; token += kSubBlock) {
    const bf16* value = view.value(token, kv_heads) + column * 2;
    const int64_t left = stop - token < kSubBlock ? stop - token : kSubBlock;  // tokens that were ever written
    for (int64_t t = 0; 2 * t < left; t++, value += view.head * 2) {
      // The second token of the last pair may be memory that nobody wrote: its bits must not enter, not even times zero.
      const __m512i used = _mm512_set1_epi32(2 * t + 1 < left ? -1 : 0xffff);
      __m512i v[C];
      for (int c = 0; c < C; c++) v[c] = _mm512_and_si512(used, _mm512_loadu_si512(value + 32 * c));
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) {
        const __m512i p = pair_of(weights + r * kPart + (token - part) + 2 * t);
        for (int c = 0; c < C; c++) o[r][c] = dot(o[r][c], v[c], p);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) _mm512_storeu_ps(out + r * out_stride + column + 16 * c, o[r][c]);
}

template <int R>
static void dot_part(const AttentionArgs& a, const PageView<bf16>& view, const void* query, const RowSet& rows, int64_t part, float* scores, float* out, int64_t out_stride) {
  const int64_t head = view.head;
  int64_t begin = rows.low_min > part ? rows.low_min / kSubBlock * kSubBlock : part;
  int64_t stop = rows.high_max < part + kPart ? rows.high_max : part + kPart;
  const int64_t end = (stop + kSubBlock - 1) / kSubBlock * kSubBlock;
  constexpr int N = R <= 3 ? 4 : R <= 6 ? 2 : 1;
  const auto* q = static_cast<const bf16*>(query);
  int64_t token = begin;
  for (; token + N * kSubBlock <= end; token += N * kSubBlock) dot_scores<R, N>(a, view, q, rows, part, token, scores);
  for (; token < end; token += kSubBlock) dot_scores<R, 1>(a, view, q, rows, part, token, scores);
  auto* weights = reinterpret_cast<bf16*>(scores);
  for (int r = 0; r < R; r++) {
    float* s = scores + r * kPart;
    const Partial p = soften(s, begin - part, end - part);
    out[r * out_stride + head] = p.top;
    out[r * out_stride + head + 1] = p.sum;
    alignas(64) bf16 narrow[kPart];
    if (p.sum == 0.f) std::memset(narrow, 0, sizeof(narrow));
    else for (int64_t i = begin - part; i < end - part; i += kWidth) vstore(narrow + i, vload(s + i));
    std::memcpy(weights + r * kPart + (begin - part), narrow + (begin - part), size_t(end - begin) * 2);
  }
  constexpr int C = R <= 3 ? 4 : R <= 6 ? 4 : 2;
  int64_t column = 0;
  for (; column + 16 * C <= head; column += 16 * C) dot_values<R, C>(view, a.kv_heads, weights, part, begin, end, stop, column, out, out_stride);
  for (; column < head; column += 16) dot_values<R, 1>(view, a.kv_heads, weights, part, begin, end, stop, column, out, out_stride);
}
#endif

// The same in float32 multiply-add, for either cache type.
TC_INLINE void wide_keys(const float* key, const float* q, int64_t head, vf* s) {
  for (int64_t d = 0; d < head; d++, key += kSubBlock)
    for (int i = 0; i < kSubBlock / kWidth; i++) s[i] = vfma(vload(key + i * kWidth), vset(q[d]), s[i]);
}
TC_INLINE void wide_keys(const bf16* key, const float* q, int64_t head, vf* s) {
  for (int64_t d = 0; d < head; d += 2, key += 2 * kSubBlock)
    for (int i = 0; i < kSubBlock / kWidth; i++) {
      vf even, odd;
      vpairs(key + 2 * i * kWidth, even, odd);
      s[i] = vfma(even, vset(q[d]), s[i]);
      s[i] = vfma(odd, vset(q[d + 1]), s[i]);
    }
}
TC_INLINE vf wide_value(const float* value, int64_t token, int64_t head, int64_t column) { return vload(value + token * head + column); }
TC_INLINE vf wide_value(const bf16* value, int64_t token, int64_t head, int64_t column) {
  vf even, odd;
  vpairs(value + (token / 2 * head + column) * 2, even, odd);
  return token % 2 ? odd : even;
}

template <typename T>
static void wide_part(const AttentionArgs& a, const PageView<T>& view, const float* q, const RowSet& rows, int64_t part, float* scores, float* out, int64_t out_stride) {
  const int64_t head = view.head;
  const int64_t begin = rows.low_min > part ? rows.low_min / kSubBlock * kSubBlock : part;
  const int64_t stop = rows.high_max < part + kPart ? rows.high_max : part + kPart;
  const int64_t end = (stop + kSubBlock - 1) / kSubBlock * kSubBlock;
  for (int64_t token = begin; token < end; token += kSubBlock) {
    const T* key = view.key(token);
    for (int r = 0; r < rows.count; r++) {
      vf s[kSubBlock / kWidth];
      for (auto& v : s) v = vset(0.f);
      wide_keys(key, q + r * head, head, s);
      float* to = scores + r * kPart + (token - part);
      for (int i = 0; i < kSubBlock / kWidth; i++) vstore(to + i * kWidth, s[i]);
      finish_scores(a, rows, r, token, to);
    }
  }
  for (int r = 0; r < rows.count; r++) {
    float* o = out + r * out_stride;
    float* s = scores + r * kPart;
    const Partial p = soften(s, begin - part, end - part);
    o[head] = p.top;
    o[head + 1] = p.sum;
    std::memset(o, 0, size_t(head) * 4);
    if (p.sum == 0.f) continue;
    for (int64_t token = begin; token < end; token += kSubBlock) {
      const T* value = view.value(token, a.kv_heads);
      const int64_t left = stop - token < kSubBlock ? stop - token : kSubBlock;
      for (int64_t c = 0; c < head; c += kWidth) {
        vf sum = vload(o + c);
        for (int64_t t = 0; t < left; t++) sum = vfma(wide_value(value, t, head, c), vset(s[token - part + t]), sum);
        vstore(o + c, sum);
      }
    }
  }
}

// ---- tiles -----------------------------------------------------------------------------------------------------------

TC_INLINE bool narrow_queries(const AttentionArgs& a) {
#if defined(__AVX512BF16__)
  return a.element == kBFloat16;
#else
  (void)a;
  return false;
#endif
}

static RowSet row_set(const AttentionArgs& a, const AttentionTile& t) {
  RowSet rows;
  rows.count = int(t.tokens * t.heads);
  rows.low_min = INT64_MAX;
  rows.high_max = 0;
  for (int r = 0; r < rows.count; r++) {
    rows.high[r] = t.position0 + r / t.heads + 1;
    rows.low[r] = a.window > 0 && rows.high[r] > a.window ? rows.high[r] - a.window : 0;
    if (rows.low[r] < rows.low_min) rows.low_min = rows.low[r];
    if (rows.high[r] > rows.high_max) rows.high_max = rows.high[r];
  }
  return rows;
}

static void gather_queries(const AttentionArgs& a, const AttentionTile& t, void* to) {
  const int64_t d = a.head_size;
  for (int64_t r = 0; r < t.tokens * t.heads; r++) {
    const int64_t at = (t.token0 + r / t.heads) * a.q_stride + (t.head0 + r % t.heads) * d;
    if (a.element == kFloat32) {
      std::memcpy(static_cast<float*>(to) + r * d, static_cast<const float*>(a.q) + at, size_t(d) * 4);
    } else if (narrow_queries(a)) {
      std::memcpy(static_cast<bf16*>(to) + r * d, static_cast<const bf16*>(a.q) + at, size_t(d) * 2);
    } else {
      for (int64_t i = 0; i < d; i++) static_cast<float*>(to)[r * d + i] = from_bf16(static_cast<const bf16*>(a.q)[at + i]);
    }
  }
}

static void one_part(const AttentionArgs& a, const AttentionTile& t, const RowSet& rows, const void* q, int64_t part, float* scores, float* out, int64_t out_stride) {
  if (a.element == kFloat32) return wide_part(a, PageView<float>(a, t.request, t.kv_head), static_cast<const float*>(q), rows, part, scores, out, out_stride);
  const PageView<bf16> view(a, t.request, t.kv_head);
#if defined(__AVX512BF16__)
  switch (rows.count) {
#define TC_CASE(n) case n: return dot_part<n>(a, view, q, rows, part, scores, out, out_stride);
    TC_CASE(1) TC_CASE(2) TC_CASE(3) TC_CASE(4) TC_CASE(5) TC_CASE(6)
    TC_CASE(7) TC_CASE(8) TC_CASE(9) TC_CASE(10) TC_CASE(11) TC_CASE(12)
#undef TC_CASE
    default: return;
  }
#else
  wide_part(a, view, static_cast<const float*>(q), rows, part, scores, out, out_stride);
#endif
}

static void write_out(const AttentionArgs& a, const AttentionTile& t, const float* state, int64_t stride) {
  const int64_t d = a.head_size;
  for (int64_t r = 0; r < t.tokens * t.heads; r++, state += stride) {
    const int64_t head = t.head0 + r % t.heads, at = (t.token0 + r / t.heads) * a.out_stride + head * d;
    float top = state[d], sum = state[d + 1], keep = 1.f;
    if (a.sinks) {  // a sink joins the denominator and brings no value
      const float m = top > a.sinks[head] ? top : a.sinks[head];
      keep = exp1(top - m);
      sum = sum * keep + exp1(a.sinks[head] - m);
    }
    const vf scale = vset(sum > 0.f ? keep / sum : 0.f);
    for (int64_t i = 0; i < d; i += kWidth) {
      const vf v = vload(state + i) * scale;
      if (a.element == kFloat32) vstore(static_cast<float*>(a.out) + at + i, v);
      else vstore(static_cast<bf16*>(a.out) + at + i, v);
    }
  }
}

// Enumerates tiles without storing them: tile i of a request is tokens [n * i, n * (i + 1)).
struct Tiling {
  int64_t heads_per_tile, head_groups, tokens_per_tile, group;
  explicit Tiling(const AttentionArgs& a) {
    group = a.heads / a.kv_heads;
    head_groups = (group + kTileRows - 1) / kTileRows;
    heads_per_tile = (group + head_groups - 1) / head_groups;
    head_groups = (group + heads_per_tile - 1) / heads_per_tile;
    tokens_per_tile = kTileRows / heads_per_tile;
    if (tokens_per_tile < 1) tokens_per_tile = 1;
  }
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
    t.position0 = a.seq_lens[request] - count + start;
    return t;
  }
};

// Few tiles over a long context (one stream decoding): parts are shared out, then merged in order.
struct SplitPlan {
  bool split;
  int64_t parts, slots;  // parts of the longest context; partial results kept
  SplitPlan(const AttentionArgs& a, int threads) {
    int64_t longest = 0;
    for (int64_t b = 0; b < a.batch; b++)
      if (a.seq_lens[b] > longest) longest = a.seq_lens[b];
    parts = (longest + kPart - 1) / kPart;
    const Tiling tiling(a);
    const int64_t tiles = tiling.total(a);
    split = threads > 1 && parts > 1 && tiles < 4 * threads;
    slots = split ? tiles * parts : 0;
  }
};

static size_t attention_scratch(const AttentionArgs& a, int threads) {
  const AttentionMemory memory(a);
  const SplitPlan plan(a, threads);
  return 64 + size_t(threads) * memory.own + size_t(plan.slots) * size_t(align64(memory.rows * memory.o_stride * 4));
}

static void clear_state(float* state, int64_t head) {
  std::memset(state, 0, size_t(head) * 4);
  state[head] = kMasked;
  state[head + 1] = 0.f;
}

static void whole_tile(const AttentionArgs& a, const AttentionTile& t, const AttentionMemory& memory, uint8_t* own) {
  const RowSet rows = row_set(a, t);
  auto* scores = reinterpret_cast<float*>(own + memory.scores_at);
  auto* part_out = reinterpret_cast<float*>(own + memory.part_at);
  auto* state = reinterpret_cast<float*>(own + memory.state_at);
  gather_queries(a, t, own + memory.query_at);
  for (int r = 0; r < rows.count; r++) clear_state(state + r * memory.o_stride, memory.head);
  for (int64_t part = rows.low_min / kPart * kPart; part < rows.high_max; part += kPart) {
    one_part(a, t, rows, own + memory.query_at, part, scores, part_out, memory.o_stride);
    for (int r = 0; r < rows.count; r++) merge(state + r * memory.o_stride, part_out + r * memory.o_stride, memory.head);
  }
  write_out(a, t, state, memory.o_stride);
}

// Parts of few tiles, shared out: first every (tile, part), then every tile's merge.
static void split_tiles(const AttentionArgs& a, Team& team, const AttentionMemory& memory, const SplitPlan& plan, uint8_t* own) {
  const Tiling tiling(a);
  const int64_t tiles = tiling.total(a), slot = align64(memory.rows * memory.o_stride * 4);
  uint8_t* slots = a.scratch + 64 + size_t(team.count) * memory.own;
  team_for(team, 1, tiles * plan.parts, [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    for (int64_t item = begin; item < end; item++) {
      const AttentionTile t = walk.at(item / plan.parts);
      const RowSet rows = row_set(a, t);
      const int64_t part = item % plan.parts * kPart;
      if (part + kPart <= rows.low_min || part >= rows.high_max) continue;
      gather_queries(a, t, own + memory.query_at);
      one_part(a, t, rows, own + memory.query_at, part, reinterpret_cast<float*>(own + memory.scores_at),
               reinterpret_cast<float*>(slots + item * slot), memory.o_stride);
    }
  });
  team_for(team, 2, tiles, [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    auto* state = reinterpret_cast<float*>(own + memory.state_at);
    for (int64_t i = begin; i < end; i++) {
      const AttentionTile t = walk.at(i);
      const RowSet rows = row_set(a, t);
      for (int r = 0; r < rows.count; r++) {
        float* to = state + r * memory.o_stride;
        clear_state(to, memory.head);
        for (int64_t p = rows.low_min / kPart; p * kPart < rows.high_max; p++)
          merge(to, reinterpret_cast<float*>(slots + (i * plan.parts + p) * slot) + r * memory.o_stride, memory.head);
      }
      write_out(a, t, state, memory.o_stride);
    }
  });
}

static void attention(const void* args, Team& team) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  team_for(team, 0, a.tokens, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      if (a.element == kFloat32) write_token<float>(a, t);
      else write_token<bf16>(a, t);
    }
  });
  const AttentionMemory memory(a);
  const SplitPlan plan(a, team.count);
  uint8_t* own = a.scratch + 64 + size_t(team.id) * memory.own;
  if (plan.split) return split_tiles(a, team, memory, plan, own);
  const Tiling tiling(a);
  team_for(team, 1, tiling.total(a), [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    for (int64_t i = begin; i < end; i++) whole_tile(a, walk.at(i), memory, own);
  });
}
