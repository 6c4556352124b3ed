// Paged attention over the pages of kv.inl.
//
// The tokens a row sees are cut into parts of kPart tokens at absolute positions. A part by itself gives a row the maximum
// of its scores, the sum of its weights and its weighted values; parts are added in order. So the chain of operations of a
// row depends on its own tokens only: not on the rows in its tile, on the batch, on how a prompt was chunked, nor on
// whether parts were computed one after the other or by several threads.
//
// A tile is some tokens of a request times query heads of one KV head; its rows are computed up to kRowChunk at a time, part
// by part, so that a part's pages come from memory once for the whole tile.

struct AttentionTile {
  int64_t request, kv_head, head0, heads;  // query heads head0 .. head0 + heads of the KV head's group
  int64_t token0, tokens;                  // rows of q
  int64_t position0;                       // position of the first of them
  int64_t length;                          // tokens of the request
  int64_t rows() const { return tokens * heads; }
};

constexpr int kTileChunks = 4;

// Chunks of a tile: as many as needed, of equal size.
struct Chunking {
  int count, size;
  explicit Chunking(int64_t rows) : count(int((rows + kRowChunk - 1) / kRowChunk)), size(int((rows + count - 1) / count)) {}
};

TC_INLINE bool narrow_queries(const AttentionArgs& a) {
#if defined(__AVX512BF16__)
  return a.element == kBFloat16 && (a.cache == kCacheBF16 || byte_cache(a.cache));
#else
  (void)a;
  return false;
#endif
}

// Scratch of one thread: queries of a tile, scores and weights of a chunk in a part, a chunk's values of a part, the chunks'
// results, widened keys or values of a sub-block, and values that were turned out of keys, of a part (narrow) or a sub-block.
struct AttentionMemory {
  int64_t results;  // floats of a chunk's results
  size_t query_at, scores_at, weights_at, part_at, results_at, wide_at, turned_at, own;
  AttentionMemory(const AttentionArgs& a, int64_t tile_rows) {
    const PageShape shape(a);
    results = Results::floats(shape.value_size);
    const int64_t wide = kSubBlock * (shape.key_size > shape.value_size ? shape.key_size : shape.value_size);
    query_at = 0;
    scores_at = query_at + size_t(align64(tile_rows * shape.key_size * 4));
    weights_at = scores_at + size_t(align64(kRowChunk * kPart * 4));
    part_at = weights_at + size_t(align64(kRowChunk * kPart * 2));
    results_at = part_at + size_t(align64(kRowChunk * shape.value_size * 4));
    wide_at = results_at + size_t(align64(kTileChunks * results * 4));
    turned_at = wide_at + size_t(align64(wide * 4));
    own = turned_at + (!a.values_in_keys ? 0 : size_t(shape.value_size) * (narrow_queries(a) ? kPart * 2 : kSubBlock * 4));
  }
};

// Rows [first, first + count) of a tile.
static RowSet row_set(const AttentionArgs& a, const AttentionTile& t, int64_t first, int64_t count) {
  RowSet rows;
  rows.count = int(count);
  rows.low_min = rows.high_min = INT64_MAX;
  rows.low_max = rows.high_max = 0;
  for (int r = 0; r < rows.count; r++) {
    const int64_t at = t.position0 + (first + r) / t.heads;
    const int64_t low = a.window > 0 && at + 1 > a.window ? at + 1 - a.window : 0;
    const int64_t high = !a.bidirectional ? at + 1 : a.window > 0 && at + a.window < t.length ? at + a.window : t.length;
    rows.position[r] = at;
    rows.slope[r] = a.slopes ? a.slopes[t.head0 + (first + r) % t.heads] : 0.f;
    rows.low[r] = low;
    rows.high[r] = high;
    rows.low_min = low < rows.low_min ? low : rows.low_min;
    rows.low_max = low > rows.low_max ? low : rows.low_max;
    rows.high_min = high < rows.high_min ? high : rows.high_min;
    rows.high_max = high > rows.high_max ? high : rows.high_max;
  }
  return rows;
}

// A tile's queries, and its rows in chunks.
struct TileRows {
  const void* queries;
  Chunking cut;
  RowSet chunk[kTileChunks];
  int64_t low, high;  // tokens that any row sees
  TileRows(const AttentionArgs& a, const AttentionTile& t, void* memory) : queries(memory), cut(t.rows()), low(INT64_MAX), high(0) {
    const int64_t d = a.head_size, padded = PageShape(a).key_size, rows = t.rows();
    for (int64_t r = 0; r < rows; r++) {
      const int64_t at = (t.token0 + r / t.heads) * a.q_stride + (t.head0 + r % t.heads) * d;
      if (narrow_queries(a)) {
        bf16* q = static_cast<bf16*>(memory) + r * padded;
        std::memcpy(q, static_cast<const bf16*>(a.q) + at, size_t(d) * 2);
        for (int64_t i = d; i < padded; i++) q[i] = 0;
      } else {
        read_head(a, a.q, at, d, padded, static_cast<float*>(memory) + r * padded);
      }
    }
    for (int c = 0; c < cut.count; c++) {
      const int64_t first = int64_t(c) * cut.size;
      chunk[c] = row_set(a, t, first, rows - first < cut.size ? rows - first : cut.size);
      if (chunk[c].low_min < low) low = chunk[c].low_min;
      if (chunk[c].high_max > high) high = chunk[c].high_max;
    }
  }
};

// Values of a part out of its keys, once for all rows of a tile.
static void turn_part(const AttentionArgs& a, const PageShape& shape, int64_t part, const TileRows& rows, PartPages& pages, uint8_t* to) {
#if defined(__AVX512BF16__)
  const int64_t high = rows.high < part + kPart ? rows.high - part : kPart;
  for (int64_t i = rows.low > part ? (rows.low - part) / kSubBlock : 0; i * kSubBlock < high; i++) {
    uint8_t* values = to + i * kSubBlock * shape.value_size * 2;
    if (a.cache == kCacheBF16) turn_pairs(PlainPairs(a.cache), pages.key[i], shape, values);
    else turn_pairs(CodedPairs(a.cache), pages.key[i], shape, values);
    pages.value[i] = values;
  }
#else
  (void)a, (void)shape, (void)part, (void)rows, (void)pages, (void)to;
#endif
}

// Part `part` (its first token) of all rows of a tile, added to the results of its chunks, which lie at `results`.
static void tile_part(const AttentionArgs& a, const PageView& view, const TileRows& rows, int64_t part, uint8_t* own, const AttentionMemory& memory, float* results) {
  const PageShape& shape = view.shape;
  PartPages pages;
  view.part(part, rows.low, rows.high, pages);
  if (a.values_in_keys && narrow_queries(a)) turn_part(a, shape, part, rows, pages, own + memory.turned_at);
  const bool plain = a.softcap == 0.f && !a.slopes && a.cache != kCacheInt8;
  for (int c = 0; c < rows.cut.count; c++) {
    const RowSet& set = rows.chunk[c];
    if (part + kPart <= set.low_min || part >= set.high_max) continue;
    const int64_t stop = set.high_max < part + kPart ? set.high_max : part + kPart;
    const PartWork w{
        a, shape, pages, set, part, stop,
        set.low_min > part ? int((set.low_min - part) / kSubBlock) : 0, int((stop - part + kSubBlock - 1) / kSubBlock),
        plain, plain ? a.scale * kLog2e : 1.f,
        reinterpret_cast<float*>(own + memory.scores_at), reinterpret_cast<bf16*>(own + memory.weights_at),
        reinterpret_cast<float*>(own + memory.wide_at), reinterpret_cast<float*>(own + memory.turned_at),
        reinterpret_cast<float*>(own + memory.part_at),
        Results(results + c * memory.results, shape.value_size)};
    const int64_t at = int64_t(c) * rows.cut.size * shape.key_size;
#if defined(__AVX512BF16__)
    if (narrow_queries(a)) {
      const auto* q = static_cast<const bf16*>(rows.queries) + at;
      if (a.cache == kCacheBF16) narrow_part<PlainPairs>(w, q);
      else narrow_part<CodedPairs>(w, q);
      continue;
    }
#endif
    wide_part(w, static_cast<const float*>(rows.queries) + at);
  }
}

static float exp2_1(float x) {
  alignas(64) float lane[kWidth];
  vstore(lane, vexp2<6>(vset(x)));
  return lane[0];
}

// Results of a tile's chunks, divided by their sums, as the op's output.
static void write_out(const AttentionArgs& a, const AttentionTile& t, const float* results, const AttentionMemory& memory) {
  const int64_t d = a.value_size, width = PageShape(a).value_size;
  const Chunking cut(t.rows());
  for (int64_t r = 0; r < t.rows(); r++) {
    const Results from(const_cast<float*>(results) + r / cut.size * memory.results, width);
    const int64_t row = r % cut.size, head = t.head0 + r % t.heads, at = (t.token0 + r / t.heads) * a.out_stride + head * d;
    float sum = from.sum[row], keep = 1.f;
    if (a.sinks) {  // a sink joins the denominator and brings no value
      const float sink = a.sinks[head] * kLog2e, top = from.top[row] > sink ? from.top[row] : sink;
      keep = exp2_1(from.top[row] - top);
      sum = sum * keep + exp2_1(sink - top);
    }
    const float scale = sum > 0.f ? keep / sum : 0.f, *o = from.o + row * width;
    int64_t i = 0;
    for (; i + kWidth <= d; i += kWidth) {
      const vf v = vload(o + i) * vset(scale);
      if (a.element == kFloat32) vstore(static_cast<float*>(a.out) + at + i, v);
      else vstore(static_cast<bf16*>(a.out) + at + i, v);
    }
    for (; i < d; i++) {
      if (a.element == kFloat32) static_cast<float*>(a.out)[at + i] = o[i] * scale;
      else static_cast<bf16*>(a.out)[at + i] = to_bf16(o[i] * scale);
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

// Few tiles over a long context (one stream decoding): parts are shared out, then added in order.
struct SplitPlan {
  bool split;
  int64_t parts, tiles, slot;  // parts of the longest context; floats of a tile's results
  SplitPlan(const AttentionArgs& a, const Tiling& tiling, const AttentionMemory& memory, int threads) {
    int64_t longest = 0;
    for (int64_t b = 0; b < a.batch; b++)
      if (a.seq_lens[b] > longest) longest = a.seq_lens[b];
    parts = (longest + kPart - 1) / kPart;
    tiles = tiling.total(a);
    slot = Chunking(tiling.rows()).count * memory.results;
    split = threads > 1 && parts > 1 && tiles < 4 * threads && bytes() < size_t(256) << 20;
  }
  size_t bytes() const { return size_t(tiles * parts * slot) * 4; }
};

static size_t attention_scratch(const AttentionArgs& a, int threads) {
  const Tiling tiling(a, threads);
  const AttentionMemory memory(a, tiling.rows());
  const SplitPlan plan(a, tiling, memory, threads);
  return 64 + size_t(threads) * memory.own + (plan.split ? plan.bytes() : 0);
}

static void whole_tile(const AttentionArgs& a, const AttentionTile& t, const AttentionMemory& memory, uint8_t* own) {
  const PageView view(a, t.request, t.kv_head);
  const TileRows rows(a, t, own + memory.query_at);
  auto* results = reinterpret_cast<float*>(own + memory.results_at);
  for (int c = 0; c < rows.cut.count; c++) Results(results + c * memory.results, view.shape.value_size).clear();
  for (int64_t part = rows.low / kPart * kPart; part < rows.high; part += kPart) tile_part(a, view, rows, part, own, memory, results);
  write_out(a, t, results, memory);
}

// Adds a chunk's results of one part to those of the parts before it.
static void add_results(const Results& to, const Results& part, int64_t width) {
  PartSums sums;
  std::memcpy(sums.top, part.top, sizeof(sums.top));
  std::memcpy(sums.sum, part.sum, sizeof(sums.sum));
  add_part(to, sums);
  for (int r = 0; r < kRowChunk; r++)
    for (int64_t c = r * width; c < (r + 1) * width; c += kWidth) add_values(to.o + c, vload(part.o + c), sums.add[r], sums.keep[r]);
}

// Parts of few tiles, shared out: first every (tile, part), then every tile's sum.
static void split_tiles(const AttentionArgs& a, Team& team, const Tiling& tiling, const SplitPlan& plan, const AttentionMemory& memory) {
  const int64_t width = PageShape(a).value_size;
  uint8_t* own = a.scratch + 64 + size_t(team.id) * memory.own;
  auto* slots = reinterpret_cast<float*>(a.scratch + 64 + size_t(team.count) * memory.own);
  team_for(team, 1, plan.tiles * plan.parts, [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    for (int64_t item = begin; item < end; item++) {
      const AttentionTile t = walk.at(item / plan.parts);
      const int64_t part = item % plan.parts * kPart;
      const TileRows rows(a, t, own + memory.query_at);
      float* results = slots + item * plan.slot;
      for (int c = 0; c < rows.cut.count; c++) Results(results + c * memory.results, width).clear();
      if (part < rows.high && part + kPart > rows.low) tile_part(a, PageView(a, t.request, t.kv_head), rows, part, own, memory, results);
    }
  });
  team_for(team, 2, plan.tiles, [&](int64_t begin, int64_t end) {
    TileWalk walk{a, tiling};
    auto* results = reinterpret_cast<float*>(own + memory.results_at);
    for (int64_t i = begin; i < end; i++) {
      const AttentionTile t = walk.at(i);
      const Chunking cut(t.rows());
      for (int c = 0; c < cut.count; c++) {
        const Results to(results + c * memory.results, width);
        to.clear();
        for (int64_t p = 0; p * kPart < t.length; p++) add_results(to, Results(slots + (i * plan.parts + p) * plan.slot + c * memory.results, width), width);
      }
      write_out(a, t, results, memory);
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
