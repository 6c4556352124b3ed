// Choosing a token of a row: rules, filters, one uniform number that picks from what is left in the order of ids, and
// log-probabilities of the row as it was.
//
// A row is one item of one thread, and every sum has a fixed order, so its result depends neither on other rows nor on how
// many threads there are. Order of the filters: min-p, top-k, then top-p over what is left; equal entries stay or go by id,
// lower first.

#include "sample_find.inl"
#include "sample_weights.inl"
#include "sample_flat.inl"

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
    s.sums[0][b] = sum;
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

// The nucleus by a selection over the whole row.
static int64_t choose_wide(Sampling& s, const SampleRow& row, float inverse, double target) {
  for (int64_t begin = 0; begin < s.n; begin += kBlock) {
    const int64_t end = begin + kBlock < s.n ? begin + kBlock : s.n;
    weigh_block(begin, end, vset(s.top), vset(inverse), s.weights, [&](int64_t i, int count) { return row_values(s.x, i, count); });
  }
  const Cut cut = nucleus(s, s.n, target, [&](int64_t i) { return key_of(s.x[i]); });
  const double total = sums_above(s, cut);
  return draw_row(s, cut, s.sums[0], total, row.uniform, inverse, [&](int64_t b) {
    int64_t ties = 0;
    for (int64_t i = b * kBlock; i < (b + 1) * kBlock && i < s.n; i++) ties += key_of(s.x[i]) == cut.key;
    return ties;
  });
}

static int64_t choose_top_p(Sampling& s, const SampleRow& row, float inverse, double whole) {
  const double target = row.top_p * whole;
  constexpr int64_t kNarrow[2] = {32, 256};  // groups looked at first: a nucleus mostly lies there
  for (const int64_t narrow : kNarrow) {
    if (narrow >= s.groups) break;
    int64_t n = gather(s, bound(s, narrow));
    if (weigh_candidates(s, n, inverse) >= target) {
      n = keep(s, n, nucleus(s, n, target, [&](int64_t i) { return s.keys[i]; }));
      weigh_candidates(s, n, inverse);
      return s.ids[draw_candidate(s, n, sum_of_weights(s, n), row.uniform)];
    }
    const int64_t token = narrow == kNarrow[0] ? choose_flat(s, row, inverse, target) : -1;
    if (token >= 0) return token;
  }
  return choose_wide(s, row, inverse, target);
}

static float inverse_of(const SampleRow& row) {
  const double scale = 1.0 / row.temperature;
  return scale < 3e38 ? float(scale) : 3e38f;
}

// Whether a token is drawn by the weights of the whole row.
static bool weighs_all(const SampleRow& row) { return row.temperature > 0 && row.top_k <= 0 && row.min_p <= 0; }

// The token of a row that `look` has seen; of its totals, number `own` is that of the row's temperature.
static int64_t choose(Sampling& s, const SampleRow& row, int own) {
  if (row.temperature <= 0) return first_best(s);
  const float inverse = inverse_of(row);
  if (!weighs_all(row)) {
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
  if (row.top_p < 1.0) return choose_top_p(s, row, inverse, s.total[own]);
  return draw_row(s, kEverything, s.sums[own], s.total[own], row.uniform, inverse, [](int64_t) { return int64_t(0); });
}

// Log-probabilities of the row as `look` has seen it; the token is known.
static void report(Sampling& s, SampleRow& row) {
  const double shift = row.shift;
  const int32_t own = key_of(s.x[row.token]);
  row.rank = count_above(s, own) + 1;
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

// The token under a row's rules, which are in force meanwhile; `s` goes on knowing the row without them.
static void choose_ruled(const Sampling& s, SampleRow& row, int64_t vocab) {
  Sampling ruled = s;
  ruled.maxima = s.others;
  apply_rules(ruled, row);
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
  const float inverse = weighs_all(row) ? inverse_of(row) : 1.f;
  look(ruled, x, n, &inverse, weighs_all(row) ? 1 : 0);
  row.fault = fault_of(ruled);
  if (row.fault == kAllMinus) row.fault = kNothingLeft;
  if (row.fault == kSampled) {
    const int64_t chosen = choose(ruled, row, 0);
    row.token = row.allowed_count > 0 ? row.allowed[chosen] : chosen;
  }
  undo_rules(s, row);
}

// The same without having looked at the row before, where nothing but the token is asked for. False, and nothing is
// settled, if there is a fault: it may be the row's or the rules'.
static bool choose_ruled_only(Sampling& s, SampleRow& row, int64_t vocab) {
  apply_rules(s, row);
  const int64_t edits = row.banned_count + row.bias_count + row.seen_count;
  bool sound = true;
  for (int64_t i = 0; i < edits; i++) sound &= s.before[i] < INFINITY;  // not-a-number is not
  const float inverse = weighs_all(row) ? inverse_of(row) : 1.f;
  look(s, row.x, vocab, &inverse, weighs_all(row) ? 1 : 0);
  sound &= fault_of(s) == kSampled;
  if (sound) row.token = choose(s, row, 0);
  undo_rules(s, row);
  return sound;
}

static void sample_row(Sampling& s, SampleRow& row, int64_t vocab) {
  const bool chosen = row.allowed_count > 0 || row.mask;  // tokens that may come
  const bool ruled = chosen || row.banned_count + row.bias_count + row.seen_count > 0;
  const bool reported = row.best_count >= 0;
  row.fault = kSampled;
  if (ruled && !reported && !chosen && choose_ruled_only(s, row, vocab)) return;
  float inverses[2];
  int totals = 0;
  if (reported && row.normalize) inverses[totals++] = 1.f;
  if (!ruled && weighs_all(row) && (totals == 0 || inverse_of(row) != 1.f)) inverses[totals++] = inverse_of(row);
  look(s, row.x, vocab, inverses, totals);
  row.fault = fault_of(s);
  if (row.fault != kSampled) return;
  row.shift = reported && row.normalize ? double(s.top) + log(s.total[0]) : 0.0;
  if (ruled) choose_ruled(s, row, vocab);
  else row.token = choose(s, row, totals - 1);
  if (row.fault == kSampled && reported) report(s, row);
}

static void sample(const void* args, Team& team) {
  const auto& a = *static_cast<const SampleArgs*>(args);
  Sampling s;
  sample_layout(&s, a.scratch + team.id * a.scratch_bytes, a.vocab, a.edits);
  team_for(team, 0, a.count, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) sample_row(s, a.rows[r], a.vocab);
  });
}
