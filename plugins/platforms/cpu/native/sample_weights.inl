// Weights of entries, their sums, and the token that a uniform number falls on.
//
// Every sum has a fixed order. A row is read once for its maxima and the sums of its weights together: weights are
// relative to the largest entry so far, and a block's sum is put in proportion to the largest of all at the end.

// Weight of an entry: exp((x - top) * inverse); far below the top it is zero.
TC_INLINE vf weigh(vf x, vf top, vf inverse) {
  const vf t = (x - top) * inverse;
  return vabove(t, -87.f, vexp_within(vmax(t, vset(-87.3f))));
}

// Sum of exp((value(i) - top) * inverse) for i in [begin, end), which are kept in `out` if there is one.
template <typename F>
TC_INLINE double weigh_block(int64_t begin, int64_t end, vf top, vf inverse, float* out, F value) {
  vf sum[4] = {vset(0.f), vset(0.f), vset(0.f), vset(0.f)};
  int64_t i = begin;
  for (; i + 4 * kWidth <= end; i += 4 * kWidth)
    for (int j = 0; j < 4; j++) {
      const vf w = weigh(value(i + j * kWidth, kWidth), top, inverse);
      if (out) vstore(out + i + j * kWidth, w);
      sum[j] = sum[j] + w;
    }
  for (; i < end; i += kWidth) {
    const int count = int(end - i < kWidth ? end - i : kWidth);
    const vf w = weigh(value(i, count), top, inverse);
    alignas(64) float lane[kWidth];
    vstore(lane, w);
    if (out)
      for (int j = 0; j < count; j++) out[i + j] = lane[j];
    sum[0] = sum[0] + w;
  }
  return double(vsum(sum[0])) + double(vsum(sum[1])) + double(vsum(sum[2])) + double(vsum(sum[3]));
}

// The row itself; what is behind its end weighs nothing.
TC_INLINE vf row_values(const float* x, int64_t i, int count) {
  if (count == kWidth) return vload(x + i);
  alignas(64) float lane[kWidth];
  for (int j = 0; j < kWidth; j++) lane[j] = j < count ? x[i + j] : -INFINITY;
  return vload(lane);
}

// Maxima of the groups in [begin, end) and their largest and smallest key.
static void look_at_groups(Sampling& s, int64_t begin, int64_t end, int32_t& top, int32_t& low) {
  for (int64_t g = begin; g < end; g++) {
    const float* p = s.x + g * kGroup;
    const int64_t count = s.n - g * kGroup < kGroup ? s.n - g * kGroup : kGroup;
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
}

// Reads a row: group maxima, the largest and the smallest key, and up to two totals with the sums of their blocks.
static void look(Sampling& s, const float* x, int64_t n, const float* inverses, int totals) {
  s.x = x;
  s.n = n;
  s.groups = (n + kGroup - 1) / kGroup;
  int32_t top = INT32_MIN, low = INT32_MAX;
  for (int64_t b = 0; b * kBlock < n; b++) {
    const int64_t begin = b * kBlock, end = begin + kBlock < n ? begin + kBlock : n;
    look_at_groups(s, begin / kGroup, (end + kGroup - 1) / kGroup, top, low);
    s.tops[b] = of_key(top);
    const bool some = top > kKeyMinusInf && top < kKeyInf;
    for (int t = 0; t < totals; t++)
      s.sums[t][b] = some ? weigh_block(begin, end, vset(s.tops[b]), vset(inverses[t]), nullptr, [&](int64_t i, int count) {
        __builtin_prefetch(x + i + kBlock);  // memory works while weights are made
        return row_values(x, i, count);
      }) : 0.0;
  }
  s.top_key = top;
  s.low_key = low;
  s.top = of_key(top);
  for (int t = 0; t < totals; t++) {
    s.total[t] = 0;
    for (int64_t b = 0; b * kBlock < n; b++) {
      if (s.sums[t][b] > 0 && s.tops[b] < s.top) s.sums[t][b] *= exp((double(s.tops[b]) - double(s.top)) * double(inverses[t]));
      s.total[t] += s.sums[t][b];
    }
  }
}

static double weigh_candidates(Sampling& s, int64_t n, float inverse) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    total += weigh_block(begin, end, vset(s.top), vset(inverse), s.weights, [&](int64_t i, int count) {
      alignas(64) float lane[kWidth];
      for (int j = 0; j < kWidth; j++) lane[j] = j < count ? of_key(s.keys[i + j]) : -INFINITY;
      return vload(lane);
    });
  }
  return total;
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

// The entry of the whole row that u falls on, of those that `cut` keeps: `sums` are what it keeps of each block, `total` all
// of it, and ties(block) how many entries equal to its key there are in a block.
template <typename F>
static int64_t draw_row(Sampling& s, Cut cut, const double* sums, double total, double u, float inverse, F ties) {
  const double wanted = u * total;
  double sum = 0, start = 0;
  int64_t block = 0, before = 0, equal = 0;
  for (int64_t b = 0; b * kBlock < s.n; b++) {
    if (sums[b] > 0) {  // rounding may leave `wanted` beyond the last one
      block = b;
      start = sum;
      equal = before;
    }
    sum += sums[b];
    if (sum > wanted && block == b) break;
    before += ties(b);
  }
  const int64_t begin = block * kBlock, end = begin + kBlock < s.n ? begin + kBlock : s.n;
  weigh_block(begin, end, vset(s.top), vset(inverse), s.weights, [&](int64_t i, int count) { return row_values(s.x, i, count); });
  int64_t last = begin;
  sum = start;
  for (int64_t i = begin; i < end; i++) {
    const int32_t key = key_of(s.x[i]);
    if (key < cut.key || (key == cut.key && equal++ >= cut.ties) || s.weights[i] <= 0) continue;
    sum += double(s.weights[i]);
    last = i;
    if (sum > wanted) break;
  }
  return last;
}
