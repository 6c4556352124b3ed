// LayerNorm, plain activations, and what joins or scales rows: float32 inside, element types mix.

static void layer_norm(const void* args, Team& team) {
  const auto& a = *static_cast<const LayerNormArgs*>(args);
  const Row weight(a.weight, a.weight_element, 0), bias(a.bias, a.bias_element, 0);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t run = r / a.inner, place = r % a.inner;
      const Row x(a.x, a.x_element, run * a.x_stride + place * a.x_inner);
      const Row out(a.out, a.out_element, run * a.out_stride + place * a.out_inner);
      vf sum = vset(0.f), squares = vset(0.f);
      each_vector(a.width, [&](int64_t i, int n) { sum = sum + x.load(i, n); });
      const vf mean = vset(vsum(sum) / float(a.width));
      each_vector(a.width, [&](int64_t i, int n) {
        alignas(64) float lane[kWidth];
        vstore(lane, x.load(i, n) - mean);
        for (int j = n; j < kWidth; j++) lane[j] = 0.f;  // the tail's padding is not at a distance from the mean
        const vf d = vload(lane);
        squares = vfma(d, d, squares);
      });
      const vf inverse = vset(1.f / std::sqrt(vsum(squares) / float(a.width) + a.eps));
      each_vector(a.width, [&](int64_t i, int n) {
        vf v = (x.load(i, n) - mean) * inverse;
        if (a.weight) v = v * weight.load(i, n);
        if (a.bias) v = v + bias.load(i, n);
        out.store(i, n, v);
      });
    }
  });
}

TC_INLINE vf pointwise_of(int kind, vf x, vf out, vf factor) {
  switch (kind) {
    case kAdd: return out + x;
    case kScale: return x * factor;
    case kSilu: return silu_of(x);
    case kGeluTanh: return gelu_tanh_of(x);
    case kGelu: return gelu_of(x);
    case kRelu2: {
      const vf positive = vmax(vset(0.f), x);  // in this order not-a-number stays
      return positive * positive;
    }
    default: return x;
  }
}

static void pointwise(const void* args, Team& team) {
  const auto& a = *static_cast<const PointwiseArgs*>(args);
  const vf factor = vset(a.factor);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const Row x(a.x, a.x_element, r * a.x_stride), out(a.out, a.out_element, r * a.out_stride);
      each_vector(a.width, [&](int64_t i, int n) {
        const vf before = a.kind == kAdd ? out.load(i, n) : factor;
        out.store(i, n, pointwise_of(a.kind, x.load(i, n), before, factor));
      });
    }
  });
}
