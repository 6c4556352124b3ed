// The router of a mixture of experts, and the gate of its shared expert. A row's result depends on its own numbers only.

TC_INLINE vf sigmoid_of(vf x) { return vset(1.f) / (vset(1.f) + vexp(vset(0.f) - x)); }

// Scores of one row to `s`, padded with kMaxExperts' worth of room behind.
static void expert_scores(const RouteArgs& a, const float* logits, float* s) {
  const int64_t padded = (a.experts + kWidth - 1) / kWidth * kWidth;
  std::memcpy(s, logits, size_t(a.experts) * 4);
  for (int64_t i = a.experts; i < padded; i++) s[i] = -3e38f;
  if (a.sigmoid) {
    for (int64_t i = 0; i < padded; i += kWidth) vstore(s + i, sigmoid_of(vload(s + i)));
    return;
  }
  vf top = vset(-3e38f);
  for (int64_t i = 0; i < padded; i += kWidth) top = vmax(top, vload(s + i));
  const float m = vtop(top);
  vf sum = vset(0.f);
  for (int64_t i = 0; i < padded; i += kWidth) {
    const vf e = vabove(vload(s + i), -2.9e38f, vexp(vload(s + i) - vset(m)));
    vstore(s + i, e);
    sum = sum + e;
  }
  const float total = vsum(sum);
  for (int64_t i = 0; i < padded; i += kWidth) vstore(s + i, vload(s + i) / vset(total));
}

static void route(const void* args, Team& team) {
  const auto& a = *static_cast<const RouteArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    alignas(64) float score[kMaxExperts + 16], rank[kMaxExperts];
    for (int64_t r = begin; r < end; r++) {
      expert_scores(a, a.logits + r * a.experts, score);
      for (int64_t e = 0; e < a.experts; e++) rank[e] = a.bias ? score[e] + a.bias[e] : score[e];
      float* weights = a.weights + r * a.top_k;
      int64_t* ids = a.ids + r * a.top_k;
      float total = 0.f;
      for (int64_t k = 0; k < a.top_k; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < a.experts; e++)
          if (rank[e] > -2.9e38f && (best < 0 || rank[e] > rank[best])) best = e;
        if (best < 0) best = k;  // no numbers at all
        ids[k] = best;
        weights[k] = score[best];
        rank[best] = -3e38f;
        total += score[best];
      }
      const float factor = a.renormalise ? a.scale / total : a.scale;
      for (int64_t k = 0; k < a.top_k; k++) weights[k] *= factor;
    }
  });
}

// x += sigmoid(gate of the row) * y
static void add_gated(const void* args, Team& team) {
  const auto& a = *static_cast<const AddGatedArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      alignas(64) float lane[kWidth];
      vstore(lane, sigmoid_of(vset(a.gate[r * a.gate_stride])));
      const vf gate = vset(lane[0]);
      const Row x(a.x, a.x_element, r * a.x_stride), y(a.y, a.y_element, r * a.y_stride);
      each_vector(a.width, [&](int64_t i, int n) { x.store(i, n, vfma(y.load(i, n), gate, x.load(i, n))); });
    }
  });
}
