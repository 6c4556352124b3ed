// Choosing a token of a row without sorting it: maxima of groups bound the best entries, radix selection over the bits of
// the floats finds a threshold, and one uniform number picks from what lies above it, in the order of ids.
//
// A row is one item of one thread, and every sum has a fixed order, so its result depends neither on other rows nor on how
// many threads there are. Order of the filters: min-p, top-k, then top-p over what is left; equal entries stay or go by id,
// lower first. A filtered row is described by a Cut: entries above `key`, and the first `ties` of those equal to it.
//
// A key is a float's bits as an integer that orders as the floats do; -0 and 0 are one key.

constexpr int kGroup = 64;
constexpr int kBlock = 2048;    // weights summed in one go
constexpr int kRadixBits = 11;  // 11 + 11 + 10
constexpr int kRadixBins = 1 << kRadixBits;
constexpr int32_t kKeyInf = 0x7f800000;
constexpr int32_t kKeyMinusInf = int32_t(0x7f800000u ^ 0xffffffffu);

TC_INLINE int32_t key_of(float x) {
  const int32_t u = int32_t(float_to_bits(x + 0.f));
  return u ^ ((u >> 31) & 0x7fffffff);
}
TC_INLINE float of_key(int32_t key) { return bits_to_float(uint32_t(key ^ ((key >> 31) & 0x7fffffff))); }

struct Cut {
  int32_t key;
  int64_t ties;
};
constexpr Cut kEverything = {kKeyMinusInf, 0};

// One row at work, and the memory of its thread.
struct Sampling {
  const float* x;
  int64_t n, groups;
  int32_t top_key, low_key;
  float top;
  double plain_total;  // sum of exp(x - top), 0 while it is not known
  int32_t* maxima;    // [groups]
  float* weights;     // [n]
  int32_t *ids, *keys;  // candidates [n]
  int32_t* spare;     // [2 n]: indices during a selection
  double* sums;       // [blocks]
  double* mass;       // [kRadixBins]
  float *compact, *before;  // a row's allowed entries [n]; values that rules changed [edits]
};

static int64_t sample_layout(Sampling* s, uint8_t* at, int64_t n, int64_t edits) {
  int64_t used = 0;
  auto take = [&](int64_t bytes) {
    uint8_t* p = at + used;
    used += (bytes + 63) & ~int64_t(63);
    return p;
  };
  uint8_t* parts[9];
  const int64_t blocks = n / kBlock + 1;
  const int64_t sizes[9] = {(n / kGroup + 1) * 4, n * 4, n * 4, n * 4, n * 8, blocks * 8, kRadixBins * 8, n * 4, edits * 4};
  for (int i = 0; i < 9; i++) parts[i] = take(sizes[i]);
  if (s) {
    s->maxima = reinterpret_cast<int32_t*>(parts[0]);
    s->weights = reinterpret_cast<float*>(parts[1]);
    s->ids = reinterpret_cast<int32_t*>(parts[2]);
    s->keys = reinterpret_cast<int32_t*>(parts[3]);
    s->spare = reinterpret_cast<int32_t*>(parts[4]);
    s->sums = reinterpret_cast<double*>(parts[5]);
    s->mass = reinterpret_cast<double*>(parts[6]);
    s->compact = reinterpret_cast<float*>(parts[7]);
    s->before = reinterpret_cast<float*>(parts[8]);
  }
  return used;
}

static size_t sample_scratch(const SampleArgs& a) { return size_t(sample_layout(nullptr, nullptr, a.vocab, a.edits)); }

// Group maxima, the largest and the smallest key.
static void look(Sampling& s, const float* x, int64_t n) {
  s.x = x;
  s.n = n;
  s.groups = (n + kGroup - 1) / kGroup;
  int32_t top = INT32_MIN, low = INT32_MAX;
  for (int64_t g = 0; g < s.groups; g++) {
    const float* p = x + g * kGroup;
    const int64_t count = n - g * kGroup < kGroup ? n - g * kGroup : kGroup;
    int32_t hi = INT32_MIN, lo = INT32_MAX;
    if (count == kGroup) {
      for (int i = 0; i < kGroup; i++) {
        const int32_t key = key_of(p[i]);
        hi = key > hi ? key : hi;
        lo = key < lo ? key : lo;
      }
    } else {
      for (int64_t i = 0; i < count; i++) {
        const int32_t key = key_of(p[i]);
        hi = key > hi ? key : hi;
        lo = key < lo ? key : lo;
      }
    }
    s.maxima[g] = hi;
    top = hi > top ? hi : top;
    low = lo < low ? lo : low;
  }
  s.top_key = top;
  s.low_key = low;
  s.top = of_key(top);
  s.plain_total = 0;
}

static int64_t fault_of(const Sampling& s) {
  if (s.top_key > kKeyInf || s.low_key < kKeyMinusInf) return kNotANumber;
  if (s.top_key == kKeyInf) return kInfinite;
  return s.top_key == kKeyMinusInf ? kAllMinus : kSampled;
}

// Bins of the three passes of a radix selection, best first.
TC_INLINE int radix_bin(int32_t key, int pass) {
  const uint32_t u = ~(uint32_t(key) ^ 0x80000000u);
  return pass == 0 ? int(u >> 21) : pass == 1 ? int((u >> 10) & 2047) : int(u & 1023);
}

// Finds the k-th largest of `keys` [n], 1 <= k <= n, and how many of those equal to it belong to the k best.
static Cut nth_key(Sampling& s, const int32_t* keys, int64_t n, int64_t k) {
  int32_t* found = s.spare;
  int64_t left = k;
  const int32_t* now = keys;
  for (int pass = 0; pass < 3; pass++) {
    auto* count = reinterpret_cast<int64_t*>(s.mass);
    for (int b = 0; b < kRadixBins; b++) count[b] = 0;
    for (int64_t i = 0; i < n; i++) count[radix_bin(now[i], pass)]++;
    int bin = 0;
    while (left > count[bin]) left -= count[bin++];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
      const int32_t key = now[i];
      found[kept] = key;
      kept += radix_bin(key, pass) == bin;
    }
    n = kept;
    now = found;
  }
  return {now[0], left};
}

// A key that at least k entries reach, if there are that many groups.
static int32_t bound(Sampling& s, int64_t k) { return k >= s.groups ? kKeyMinusInf + 1 : nth_key(s, s.maxima, s.groups, k).key; }

// Ids (ascending) and keys of all entries that reach `key`, never minus infinity; how many.
static int64_t gather(Sampling& s, int32_t key) {
  if (key <= kKeyMinusInf) key = kKeyMinusInf + 1;
  int64_t count = 0;
  for (int64_t g = 0; g < s.groups; g++) {
    if (s.maxima[g] < key) continue;
    const int64_t end = (g + 1) * kGroup < s.n ? (g + 1) * kGroup : s.n;
    for (int64_t i = g * kGroup; i < end; i++) {
      const int32_t own = key_of(s.x[i]);
      s.ids[count] = int32_t(i);
      s.keys[count] = own;
      count += own >= key;
    }
  }
  return count;
}

// Keeps what a cut keeps of the candidates, in place; how many.
static int64_t keep(Sampling& s, int64_t n, Cut cut) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    const int32_t key = s.keys[i];
    if (key < cut.key || (key == cut.key && cut.ties-- <= 0)) continue;
    s.ids[count] = s.ids[i];
    s.keys[count++] = key;
  }
  return count;
}

// Weight of an entry: exp((x - top) * inverse); far below the top it is zero.
TC_INLINE vf weigh(vf x, vf top, vf inverse) {
  const vf t = (x - top) * inverse;
  return vabove(t, -87.f, vexp_within(vmax(t, vset(-87.3f))));
}

// exp((value(i) - top) * inverse) for i in [0, n), kept in `out` if there is one, and the sums of blocks; their sum.
template <typename F>
static double weigh_all(Sampling& s, int64_t n, float inverse, float* out, F value) {
  const vf top = vset(s.top), scale = vset(inverse);
  double total = 0;
  for (int64_t block = 0; block * kBlock < n; block++) {
    const int64_t begin = block * kBlock, end = begin + kBlock < n ? begin + kBlock : n;
    vf sum[4] = {vset(0.f), vset(0.f), vset(0.f), vset(0.f)};
    int64_t i = begin;
    for (; i + 4 * kWidth <= end; i += 4 * kWidth)
      for (int j = 0; j < 4; j++) {
        const vf w = weigh(value(i + j * kWidth, kWidth), top, scale);
        if (out) vstore(out + i + j * kWidth, w);
        sum[j] = sum[j] + w;
      }
    for (; i < end; i += kWidth) {
      const int count = int(end - i < kWidth ? end - i : kWidth);
      const vf w = weigh(value(i, count), top, scale);
      alignas(64) float lane[kWidth];
      vstore(lane, w);
      if (out)
        for (int j = 0; j < count; j++) out[i + j] = lane[j];
      sum[0] = sum[0] + w;
    }
    s.sums[block] = double(vsum(sum[0])) + double(vsum(sum[1])) + double(vsum(sum[2])) + double(vsum(sum[3]));
    total += s.sums[block];
  }
  return total;
}

// The row itself; what is behind its end weighs nothing.
TC_INLINE vf row_values(const float* x, int64_t i, int count) {
  if (count == kWidth) return vload(x + i);
  alignas(64) float lane[kWidth];
  for (int j = 0; j < kWidth; j++) lane[j] = j < count ? x[i + j] : -INFINITY;
  return vload(lane);
}

static double weigh_row(Sampling& s, float inverse, float* out) {
  return weigh_all(s, s.n, inverse, out, [&](int64_t i, int count) { return row_values(s.x, i, count); });
}

static double weigh_candidates(Sampling& s, int64_t n, float inverse) {
  return weigh_all(s, n, inverse, s.weights, [&](int64_t i, int count) {
    alignas(64) float lane[kWidth];
    for (int j = 0; j < kWidth; j++) lane[j] = j < count ? of_key(s.keys[i + j]) : -INFINITY;
    return vload(lane);
  });
}

// The cut that keeps the fewest of the best entries that weigh `target` together; key(i) and s.weights[i] for i < n.
template <typename F>
static Cut nucleus(Sampling& s, int64_t n, double target, F key) {
  int32_t* found = s.spare;
  double before = 0;
  const int32_t* now = nullptr;
  for (int pass = 0; pass < 3; pass++) {
    for (int b = 0; b < kRadixBins; b++) s.mass[b] = 0;
    if (now)
      for (int64_t i = 0; i < n; i++) s.mass[radix_bin(key(now[i]), pass)] += double(s.weights[now[i]]);
    else
      for (int64_t i = 0; i < n; i++) s.mass[radix_bin(key(i), pass)] += double(s.weights[i]);
    int bin = -1, last = 0;
    double above = before;  // of the bins before the last that weighs anything
    for (int b = 0; b < kRadixBins; b++) {
      if (s.mass[b] <= 0) continue;
      last = b;
      above = before;
      before += s.mass[b];
      if (before >= target) {
        bin = b;
        break;
      }
    }
    before = above;
    if (bin < 0) bin = last;  // rounding: all of it is needed
    int64_t kept = 0;
    if (now)
      for (int64_t i = 0; i < n; i++) {
        const int32_t one = now[i];
        found[kept] = one;
        kept += radix_bin(key(one), pass) == bin;
      }
    else
      for (int64_t i = 0; i < n; i++) {
        found[kept] = int32_t(i);
        kept += radix_bin(key(i), pass) == bin;
      }
    n = kept;
    now = found;
  }
  const double each = double(s.weights[now[0]]);
  int64_t ties = 1;
  for (double sum = before + each; ties < n && sum < target; sum += each) ties++;
  return {key(now[0]), ties};
}

// The candidate that u falls on, by its place; weights [n] are s.weights and weigh `total`.
static int64_t draw_candidate(const Sampling& s, int64_t n, double total, double u) {
  const double wanted = u * total;
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < n; i++) {
    const double w = double(s.weights[i]);
    if (w <= 0) continue;
    sum += w;
    last = i;
    if (sum > wanted) return i;
  }
  return last;
}

static double sum_of_weights(const Sampling& s, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += double(s.weights[i]);
  return sum;
}

// The entry of the whole row that u falls on, of those that `cut` keeps; s.sums are what it keeps of each block, `total`
// all of it, and weigh(begin, end) sees to it that s.weights holds the weights of a block.
template <typename F>
static int64_t draw_row(Sampling& s, Cut cut, double total, double u, F weigh) {
  const double wanted = u * total;
  double sum = 0, start = 0;
  int64_t block = 0, ties = 0, start_ties = 0;
  for (int64_t b = 0; b * kBlock < s.n; b++) {
    if (s.sums[b] > 0) {  // rounding may leave `wanted` beyond the last one
      block = b;
      start = sum;
      start_ties = ties;
    }
    sum += s.sums[b];
    if (sum > wanted && block == b) break;
    if (cut.ties)
      for (int64_t i = b * kBlock; i < (b + 1) * kBlock && i < s.n; i++) ties += key_of(s.x[i]) == cut.key;
  }
  const int64_t begin = block * kBlock, end = begin + kBlock < s.n ? begin + kBlock : s.n;
  weigh(begin, end);
  int64_t last = begin;
  sum = start;
  ties = start_ties;
  for (int64_t i = begin; i < end; i++) {
    const int32_t key = key_of(s.x[i]);
    if (key < cut.key || (key == cut.key && ties++ >= cut.ties) || s.weights[i] <= 0) continue;
    sum += double(s.weights[i]);
    last = i;
    if (sum > wanted) break;
  }
  return last;
}

// Sums of blocks over what the cut keeps of s.weights; their sum.
static double sums_above(Sampling& s, Cut cut) {
  double total = 0;
  int64_t ties = cut.ties;
  const float equal = of_key(cut.key);
  for (int64_t b = 0; b * kBlock < s.n; b++) {
    const int64_t begin = b * kBlock, end = begin + kBlock < s.n ? begin + kBlock : s.n;
    vf part[4] = {vset(0.f), vset(0.f), vset(0.f), vset(0.f)};
    double sum = 0;
    int64_t same = 0, i = begin;
    for (; i + 4 * kWidth <= end; i += 4 * kWidth)
      for (int j = 0; j < 4; j++)
        part[j] = part[j] + vabove(vload(s.x + i + j * kWidth), equal, vload(s.weights + i + j * kWidth));
    for (; i < end; i++) sum += s.x[i] > equal ? double(s.weights[i]) : 0.0;
    for (i = begin; i < end; i++) same += s.x[i] == equal;
    for (int j = 0; j < 4; j++) sum += double(vsum(part[j]));
    if (same > 0 && ties > 0) {
      int64_t first = begin;
      while (s.x[first] != equal) first++;
      sum += double(same < ties ? same : ties) * double(s.weights[first]);
    }
    ties -= same;
    s.sums[b] = sum;
    total += sum;
  }
  return total;
}

// The least key whose entry is at least min_p times as likely as the best.
static int32_t likely_key(const Sampling& s, double min_p, double temperature) {
  const double ratio = log(min_p);
  auto likely = [&](int32_t key) { return (double(of_key(key)) - double(s.top)) / temperature >= ratio; };
  const double least = double(s.top) + temperature * ratio;
  int32_t key = key_of(least < -3e38 ? -3e38f : float(least));
  if (key > s.top_key) key = s.top_key;
  while (key > kKeyMinusInf + 1 && likely(key - 1)) key--;
  while (key < s.top_key && !likely(key)) key++;
  return key;
}

static int64_t first_best(const Sampling& s) {
  for (int64_t g = 0; g < s.groups; g++) {
    if (s.maxima[g] != s.top_key) continue;
    for (int64_t i = g * kGroup; i < s.n; i++)
      if (key_of(s.x[i]) == s.top_key) return i;
  }
  return 0;
}

// A token from candidates: those filters have left, with or without top-p.
static int64_t choose_candidate(Sampling& s, const SampleRow& row, int64_t n, float inverse) {
  double total = weigh_candidates(s, n, inverse);
  if (row.top_p < 1.0) {
    const Cut cut = nucleus(s, n, row.top_p * total, [&](int64_t i) { return s.keys[i]; });
    n = keep(s, n, cut);
    total = weigh_candidates(s, n, inverse);
  }
  return s.ids[draw_candidate(s, n, sum_of_weights(s, n), row.uniform)];
}

static int64_t choose_top_p(Sampling& s, const SampleRow& row, float inverse) {
  const bool known = s.plain_total > 0 && inverse == 1.f;
  double target = row.top_p * (known ? s.plain_total : weigh_row(s, inverse, nullptr));
  constexpr int64_t kNarrow[2] = {32, 256};  // groups looked at first: a nucleus mostly lies there
  for (const int64_t narrow : kNarrow) {
    if (narrow >= s.groups) break;
    int64_t n = gather(s, bound(s, narrow));
    if (weigh_candidates(s, n, inverse) < target) continue;
    n = keep(s, n, nucleus(s, n, target, [&](int64_t i) { return s.keys[i]; }));
    weigh_candidates(s, n, inverse);
    return s.ids[draw_candidate(s, n, sum_of_weights(s, n), row.uniform)];
  }
  weigh_row(s, inverse, s.weights);
  const Cut cut = nucleus(s, s.n, target, [&](int64_t i) { return key_of(s.x[i]); });
  const double total = sums_above(s, cut);
  return draw_row(s, cut, total, row.uniform, [](int64_t, int64_t) {});
}

// The token of a row that `look` has seen.
static int64_t choose(Sampling& s, const SampleRow& row) {
  if (row.temperature <= 0) return first_best(s);
  const double scale = 1.0 / row.temperature;
  const float inverse = scale < 3e38 ? float(scale) : 3e38f;
  if (row.top_k > 0 || row.min_p > 0) {
    int32_t least = row.min_p > 0 ? likely_key(s, row.min_p, row.temperature) : kKeyMinusInf + 1;
    const bool some = row.top_k > 0 && row.top_k < s.n;
    if (some) {
      const int32_t reached = bound(s, row.top_k);
      least = reached > least ? reached : least;
    }
    int64_t n = gather(s, least);
    if (some && n > row.top_k) n = keep(s, n, nth_key(s, s.keys, n, row.top_k));
    return choose_candidate(s, row, n, inverse);
  }
  if (row.top_p < 1.0) return choose_top_p(s, row, inverse);
  const double total = weigh_row(s, inverse, nullptr);
  return draw_row(s, kEverything, total, row.uniform, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kWidth) {
      const int count = int(end - i < kWidth ? end - i : kWidth);
      alignas(64) float lane[kWidth];
      vstore(lane, weigh(row_values(s.x, i, count), vset(s.top), vset(inverse)));
      for (int j = 0; j < count; j++) s.weights[i + j] = lane[j];
    }
  });
}

// Puts (key, id) of candidate i in order, best first: a heap whose root is the worst.
static void sort_candidates(Sampling& s, int64_t n) {
  auto worse = [&](int64_t a, int64_t b) { return s.keys[a] < s.keys[b] || (s.keys[a] == s.keys[b] && s.ids[a] > s.ids[b]); };
  auto swap = [&](int64_t a, int64_t b) {
    const int32_t id = s.ids[a], key = s.keys[a];
    s.ids[a] = s.ids[b], s.keys[a] = s.keys[b];
    s.ids[b] = id, s.keys[b] = key;
  };
  auto sink = [&](int64_t at, int64_t end) {
    for (int64_t child; (child = 2 * at + 1) < end; at = child) {
      if (child + 1 < end && worse(child + 1, child)) child++;
      if (!worse(child, at)) return;
      swap(child, at);
    }
  };
  for (int64_t i = n / 2; i-- > 0;) sink(i, n);
  for (int64_t end = n; end-- > 1;) {
    swap(0, end);
    sink(0, end);
  }
}

// Log-probabilities of the row as `look` has seen it; the token is known.
static void report(Sampling& s, SampleRow& row) {
  const double shift = row.shift;
  const int32_t own = key_of(s.x[row.token]);
  int64_t above = 0;
  for (int64_t i = 0; i < s.n; i++) above += key_of(s.x[i]) > own;
  row.rank = above + 1;
  row.value = double(s.x[row.token]) - shift;
  row.best_found = 0;
  if (row.best_count <= 0) return;
  int64_t n = gather(s, bound(s, row.best_count));
  if (n > row.best_count) n = keep(s, n, nth_key(s, s.keys, n, row.best_count));
  sort_candidates(s, n);
  for (int64_t i = 0; i < n; i++) {
    row.best_ids[i] = s.ids[i];
    row.best_values[i] = double(of_key(s.keys[i])) - shift;
  }
  row.best_found = n;
}

// Applies a row's rules but for `allowed`, in their order; what was there before goes to s.before.
static void apply_rules(Sampling& s, const SampleRow& row) {
  float* old = s.before;
  for (int64_t i = 0; i < row.banned_count; i++) {
    *old++ = row.x[row.banned[i]];
    row.x[row.banned[i]] = -INFINITY;
  }
  for (int64_t i = 0; i < row.bias_count; i++) {
    *old++ = row.x[row.bias_ids[i]];
    row.x[row.bias_ids[i]] += row.bias[i];
  }
  for (int64_t i = 0; i < row.seen_count; i++) {
    float& x = row.x[row.seen[i]];
    *old++ = x;
    double v = double(x);
    if (row.repetition != 1.0) v = v > 0 ? v / row.repetition : v * row.repetition;
    v -= (row.counts[i] > 0 ? row.presence : 0.0) + row.frequency * row.counts[i];
    x = float(v);
  }
}

static void undo_rules(const Sampling& s, const SampleRow& row) {
  const float* old = s.before + row.banned_count + row.bias_count + row.seen_count;
  for (int64_t i = row.seen_count; i-- > 0;) row.x[row.seen[i]] = *--old;
  for (int64_t i = row.bias_count; i-- > 0;) row.x[row.bias_ids[i]] = *--old;
  for (int64_t i = row.banned_count; i-- > 0;) row.x[row.banned[i]] = *--old;
}

// The row with what `mask` leaves out at minus infinity.
static void masked_row(float* out, const float* x, int64_t n, const uint32_t* mask) {
  for (int64_t begin = 0; begin < n; begin += 32) {
    const uint32_t word = mask[begin >> 5];
    const int count = int(n - begin < 32 ? n - begin : 32);
    if (count == 32 && word == 0xffffffffu) {
      memcpy(out + begin, x + begin, 32 * sizeof(float));
      continue;
    }
    for (int i = 0; i < count; i++) out[begin + i] = -INFINITY;
    for (uint32_t left = count == 32 ? word : word & ((1u << count) - 1); left; left &= left - 1) {
      const int i = __builtin_ctz(left);
      out[begin + i] = x[begin + i];
    }
  }
}

static void choose_ruled(Sampling& s, SampleRow& row, int64_t vocab) {
  apply_rules(s, row);
  const float* x = row.x;
  int64_t n = vocab;
  if (row.allowed_count > 0) {
    n = row.allowed_count;
    for (int64_t i = 0; i < n; i++) {
      const int64_t id = row.allowed[i];
      const bool stays = !row.mask || (row.mask[id >> 5] >> (id & 31) & 1);
      s.compact[i] = stays ? row.x[id] : -INFINITY;
    }
    x = s.compact;
  } else if (row.mask) {
    masked_row(s.compact, row.x, n, row.mask);
    x = s.compact;
  }
  look(s, x, n);
  row.fault = fault_of(s);
  if (row.fault == kAllMinus) row.fault = kNothingLeft;
  if (row.fault == kSampled) {
    const int64_t chosen = choose(s, row);
    row.token = row.allowed_count > 0 ? row.allowed[chosen] : chosen;
  }
  undo_rules(s, row);
}

static void sample_row(Sampling& s, SampleRow& row, int64_t vocab) {
  const bool ruled = row.mask || row.allowed_count + row.banned_count + row.bias_count + row.seen_count > 0;
  const bool reported = row.best_count >= 0;
  look(s, row.x, vocab);
  row.fault = fault_of(s);
  if (row.fault != kSampled) return;
  row.shift = 0;
  if (reported && row.normalize) {
    s.plain_total = weigh_row(s, 1.f, nullptr);
    row.shift = double(s.top) + log(s.plain_total);
  }
  if (!ruled) {
    row.token = choose(s, row);
  } else {
    choose_ruled(s, row, vocab);
    if (row.fault != kSampled) return;
    if (reported) look(s, row.x, vocab);
  }
  if (reported) report(s, row);
}

static void sample(const void* args, Team& team) {
  const auto& a = *static_cast<const SampleArgs*>(args);
  Sampling s;
  sample_layout(&s, a.scratch + team.id * a.scratch_bytes, a.vocab, a.edits);
  team_for(team, 0, a.count, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) sample_row(s, a.rows[r], a.vocab);
  });
}
