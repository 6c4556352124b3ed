// The largest number of a row and where it first is; not-a-number counts as the largest, as in numpy and torch.

static int64_t first_not_a_number(const float* x, int64_t width) {
  for (int64_t i = 0; i < width; i++)
    if (x[i] != x[i]) return i;
  return 0;
}

static int64_t largest_of(const float* x, int64_t width) {
  int odd = 0;
  for (int64_t i = 0; i < width; i++) odd |= x[i] != x[i];
  if (odd) return first_not_a_number(x, width);
  vf most = vset(x[0]);
  int64_t whole = 0;
  for (; whole + kWidth <= width; whole += kWidth) most = vmax(most, vload(x + whole));
  alignas(64) float lane[kWidth];
  vstore(lane, most);
  float best = lane[0];
  for (int i = 1; i < kWidth; i++) best = lane[i] > best ? lane[i] : best;
  for (int64_t i = whole; i < width; i++) best = x[i] > best ? x[i] : best;
  for (int64_t begin = 0;; begin += 256) {  // in runs, each of which is looked through without a branch
    const int64_t end = begin + 256 < width ? begin + 256 : width;
    int here = 0;
    for (int64_t i = begin; i < end; i++) here |= x[i] == best;
    if (!here) continue;
    for (int64_t i = begin;; i++)
      if (x[i] == best) return i;
  }
}

static void argmax(const void* args, Team& team) {
  const auto& a = *static_cast<const ArgmaxArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float* x = a.x + r * a.x_stride;
      a.token[r] = largest_of(x, a.width);
      a.value[r] = x[a.token[r]];
    }
  });
}
