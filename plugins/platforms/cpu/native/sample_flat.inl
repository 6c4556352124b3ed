// Top-p over a row so flat that its nucleus is much of the vocabulary: a sample of the row tells about where the threshold
// lies, one pass adds up what is above and sets aside what is near, and what is near decides.

// An interval of keys that holds the threshold, the weight of what is above it, and what is left within.
struct Narrowed {
  int32_t low, high;
  double above;
  int64_t n;
  float *values, *weights;
};

// Appends those of `count` values (with weights) that lie in [low, high]; up to kWidth more may be overwritten.
TC_INLINE int64_t append_between(vf v, vf w, int count, float low, float high, float* values, float* weights, int64_t n) {
#if defined(__AVX512F__)
  const __mmask16 in = _mm512_cmp_ps_mask(v, vset(low), _CMP_GE_OQ) & _mm512_cmp_ps_mask(v, vset(high), _CMP_LE_OQ) & __mmask16((1u << count) - 1);
  _mm512_storeu_ps(values + n, _mm512_maskz_compress_ps(in, v));
  _mm512_storeu_ps(weights + n, _mm512_maskz_compress_ps(in, w));
  return n + __builtin_popcount(in);
#else
  alignas(64) float value[kWidth], weight[kWidth];
  vstore(value, v);
  vstore(weight, w);
  for (int i = 0; i < count; i++) {
    values[n] = value[i];
    weights[n] = weight[i];
    n += (value[i] >= low) & (value[i] <= high);
  }
  return n;
#endif
}

// Weight of the values above a bound; the values behind the last are overwritten.
static double mass_above(float* values, const float* weights, int64_t n, float bound) {
  for (int64_t i = n; i % kWidth; i++) values[i] = -INFINITY;
  vf sum[4] = {vset(0.f), vset(0.f), vset(0.f), vset(0.f)};
  double total = 0;
  for (int64_t i = 0; i < n; i += kWidth) {
    vf& part = sum[i / kWidth % 4];
    part = part + vabove(vload(values + i), bound, vload(weights + i));
  }
  for (const vf& part : sum) total += double(vsum(part));
  return total;
}

// Halves the interval until few are left in it: of n values with weights, none above `high`.
static Narrowed narrow(Narrowed now, double target, int64_t few, float* values, float* weights) {
  for (bool by_value = true; now.n > few && now.low < now.high; by_value = !by_value) {
    int32_t middle = int32_t((int64_t(now.low) + now.high) >> 1);
    if (by_value) middle = key_of(of_key(now.low) * 0.5f + of_key(now.high) * 0.5f);  // most often the better guess
    if (middle < now.low || middle >= now.high) middle = now.low;
    const double mass = mass_above(now.values, now.weights, now.n, of_key(middle));
    if (now.above + mass >= target) {
      now.low = middle + 1;
    } else {
      now.above += mass;
      now.high = middle;
    }
    const float low = of_key(now.low), high = of_key(now.high);
    int64_t left = 0;
    for (int64_t i = 0; i < now.n; i += kWidth) {
      const int count = int(now.n - i < kWidth ? now.n - i : kWidth);
      left = append_between(vload(now.values + i), vload(now.weights + i), count, low, high, values, weights, left);
    }
    now.n = left;
    now.values = values;
    now.weights = weights;
  }
  return now;
}

// The keys between which the threshold of `share` of all weight lies, most likely. False if a sample does not tell.
static bool guess(Sampling& s, double share, float inverse, int32_t& low, int32_t& high) {
  constexpr int64_t kLookedAt = 128;  // groups
  const int64_t step = s.n / kGroup / kLookedAt;
  if (step < 4) return false;
  auto* values = reinterpret_cast<float*>(s.keys);
  int64_t n = 0;
  for (int64_t g = 0; g < kLookedAt; g++, n += kGroup) std::memcpy(values + n, s.x + g * step * kGroup, kGroup * 4);
  const double total = weigh_block(0, n, vset(s.top), vset(inverse), s.weights, [&](int64_t i, int) { return vload(values + i); });
  vf squares = vset(0.f);
  for (int64_t i = 0; i < n; i += kWidth) squares = vfma(vload(s.weights + i), vload(s.weights + i), squares);
  if (total <= 0) return false;
  // A share seen in as many entries of equal weight would be off by as much, three times in a thousand.
  const double doubt = 0.002 + 3 * sqrt(share * (1 - share) * double(vsum(squares))) / total;
  if (doubt > 0.1) return false;
  float *left = reinterpret_cast<float*>(s.spare), *left_weights = left + s.n + kWidth;
  const float least = s.top - 87.f / inverse;  // what is below weighs nothing
  low = kKeyMinusInf + 1;
  high = s.top_key;
  const Narrowed all = {least > -3e38f ? key_of(least) : low, high, 0, n, values, s.weights};
  if (share + doubt < 1) low = narrow(all, (share + doubt) * total, 16, left, left_weights).low;
  if (share - doubt > 0) high = narrow(all, (share - doubt) * total, 16, left, left_weights).high;
  return low <= high;
}

// Sums of blocks above an interval to s.sums[0]; values within it and their weights to s.keys and s.weights, with
// s.starts saying where those of a block begin. How many.
static int64_t set_aside(Sampling& s, float low, float high, float inverse) {
  auto* values = reinterpret_cast<float*>(s.keys);
  int64_t n = 0;
  for (int64_t b = 0; b * kBlock < s.n; b++) {
    const int64_t begin = b * kBlock, end = begin + kBlock < s.n ? begin + kBlock : s.n;
    vf sum[2] = {vset(0.f), vset(0.f)};
    s.starts[b] = n;
    for (int64_t i = begin; i < end; i += kWidth) {
      const int count = int(end - i < kWidth ? end - i : kWidth);
      __builtin_prefetch(s.x + i + kBlock / 2);
      const vf v = row_values(s.x, i, count), w = weigh(v, vset(s.top), vset(inverse));
      vf& part = sum[i / kWidth % 2];
      part = part + vabove(v, high, w);
      n = append_between(v, w, count, low, high, values, s.weights, n);
    }
    s.sums[0][b] = double(vsum(sum[0])) + double(vsum(sum[1]));
    s.starts[b + 1] = n;
  }
  return n;
}

// The cut within an interval that `above` outweighs by what is missing to the target.
static Cut cut_within(Sampling& s, Narrowed all, double target) {
  float* left = reinterpret_cast<float*>(s.spare);
  const Narrowed few = narrow(all, target, 32, left, left + s.n + kWidth);
  // Ranks few enough for a plain selection: the largest first, by what they weigh.
  double sum = few.above;
  int32_t key = few.high;
  for (int64_t seen = 0; seen < few.n;) {
    int32_t best = INT32_MIN;
    for (int64_t i = 0; i < few.n; i++) {
      const int32_t own = key_of(few.values[i]);
      best = own <= key && own > best ? own : best;
    }
    if (best == INT32_MIN) break;
    int64_t ties = 0;
    float each = 0;
    for (int64_t i = 0; i < few.n; i++)
      if (key_of(few.values[i]) == best) {
        each = few.weights[i];
        ties++;
      }
    seen += ties;
    for (int64_t t = 1; t <= ties; t++)
      if ((sum += double(each)) >= target || (seen == few.n && t == ties)) return {best, t};
    key = best - 1;
  }
  return {few.low, 1};
}

// Adds to the sums of blocks what the cut keeps of what was set aside; s.starts then says how many of a block equal its key.
// All that is kept.
static double add_kept(Sampling& s, Cut cut, const float* values) {
  const float equal = of_key(cut.key);
  int64_t ties = cut.ties;
  double total = 0;
  for (int64_t b = 0; b * kBlock < s.n; b++) {
    const int64_t begin = s.starts[b], end = s.starts[b + 1];
    vf sum = vset(0.f);
    for (int64_t i = begin; i < end; i += kWidth) {
      const int count = int(end - i < kWidth ? end - i : kWidth);
      sum = sum + vabove(row_values(values, i, count), equal, vload(s.weights + i));
    }
    s.sums[0][b] += double(vsum(sum));
    int64_t same = 0, first = begin;
    for (int64_t i = begin; i < end; i++) same += values[i] == equal;
    if (same > 0 && ties > 0) {
      while (values[first] != equal) first++;
      s.sums[0][b] += double(same < ties ? same : ties) * double(s.weights[first]);
    }
    ties -= same;
    s.starts[b] = same;
    total += s.sums[0][b];
  }
  return total;
}

// The token, or -1 where the sample misled.
static int64_t choose_flat(Sampling& s, const SampleRow& row, float inverse, double target) {
  int32_t low, high;
  if (!guess(s, row.top_p, inverse, low, high)) return -1;
  const int64_t n = set_aside(s, of_key(low), of_key(high), inverse);
  auto* values = reinterpret_cast<float*>(s.keys);
  double above = 0;
  for (int64_t b = 0; b * kBlock < s.n; b++) above += s.sums[0][b];
  if (n == 0 || above >= target || above + mass_above(values, s.weights, n, -INFINITY) < target) return -1;
  const Cut cut = cut_within(s, {low, high, above, n, values, s.weights}, target);
  const double total = add_kept(s, cut, values);
  return draw_row(s, cut, s.sums[0], total, row.uniform, inverse, [&](int64_t b) { return s.starts[b]; });
}
