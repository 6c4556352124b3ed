// Norms, rotary, gated activations, softcap and the plain embedding: one pass over rows, float32 inside.

template <typename T> TC_INLINE float load_one(const T* p);
template <> TC_INLINE float load_one(const float* p) { return *p; }
template <> TC_INLINE float load_one(const bf16* p) { return from_bf16(*p); }
TC_INLINE void store_one(float* p, float v) { *p = v; }
TC_INLINE void store_one(bf16* p, float v) { *p = to_bf16(v); }

// Applies f to vectors of a row of `width` values. The tail goes through a padded vector, so that each value is computed
// by the same instructions wherever it stands.
template <typename F>
TC_INLINE void each_vector(int64_t width, F f) {
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) f(i, kWidth);
  if (i < width) f(i, int(width - i));
}
template <typename T>
TC_INLINE vf load_some(const T* p, int count) {
  if (count == kWidth) return vload(p);
  T padded[kWidth] = {};
  std::memcpy(padded, p, size_t(count) * sizeof(T));
  return vload(padded);
}
template <typename T>
TC_INLINE void store_some(T* p, int count, vf v) {
  if (count == kWidth) return vstore(p, v);
  T padded[kWidth];
  vstore(padded, v);
  std::memcpy(p, padded, size_t(count) * sizeof(T));
}

// A row of either element type; norms mix them: a bf16 branch joins a float32 residual and leaves in bf16.
struct Row {
  void* data;
  bool wide;
  Row(const void* base, int element, int64_t offset)
      : data(static_cast<char*>(const_cast<void*>(base)) + offset * (element == kFloat32 ? 4 : 2)), wide(element == kFloat32) {}
  TC_INLINE vf load(int64_t i, int n) const {
    return wide ? load_some(static_cast<const float*>(data) + i, n) : load_some(static_cast<const bf16*>(data) + i, n);
  }
  TC_INLINE void store(int64_t i, int n, vf v) const {
    if (wide) store_some(static_cast<float*>(data) + i, n, v);
    else store_some(static_cast<bf16*>(data) + i, n, v);
  }
};

static void norm_row(const NormArgs& a, int64_t r) {
  const int64_t run = r / a.inner, place = r % a.inner;
  const Row weight(a.weight, a.weight_element, 0);
  const Row x(a.x, a.x_element, run * a.x_stride + place * a.x_inner);
  const Row out(a.out, a.out_element, run * a.out_stride + place * a.out_inner);
  const Row residual(a.residual, a.residual_element, a.residual ? r * a.residual_stride : 0);
  const Row& from = a.residual ? residual : x;
  vf squares = vset(0.f);
  each_vector(a.width, [&](int64_t i, int n) {
    vf v = x.load(i, n);
    if (a.residual) {  // what is normalised is the residual as stored
      residual.store(i, n, v + residual.load(i, n));
      v = residual.load(i, n);
    }
    squares = vfma(v, v, squares);
  });
  const vf inverse = vset(1.f / std::sqrt(vsum(squares) / float(a.width) + a.eps)), offset = vset(a.offset);
  each_vector(a.width, [&](int64_t i, int n) { out.store(i, n, from.load(i, n) * inverse * (offset + weight.load(i, n))); });
}

static void norm(const void* args, Team& team) {
  const auto& a = *static_cast<const NormArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) norm_row(a, r);
  });
}

template <typename T>
static void rotate_head(T* head, const float* cos, const float* sin, int64_t half, bool interleaved) {
  if (interleaved) {
    for (int64_t i = 0; i < half; i++) {
      const float a = load_one(head + 2 * i), b = load_one(head + 2 * i + 1);
      store_one(head + 2 * i, a * cos[i] - b * sin[i]);
      store_one(head + 2 * i + 1, b * cos[i] + a * sin[i]);
    }
    return;
  }
  each_vector(half, [&](int64_t i, int n) {
    const vf a = load_some(head + i, n), b = load_some(head + half + i, n), c = load_some(cos + i, n), s = load_some(sin + i, n);
    store_some(head + i, n, a * c - b * s);
    store_some(head + half + i, n, b * c + a * s);
  });
}

template <typename T>
static void rotary_rows(const RotaryArgs& a, int64_t begin, int64_t end) {
  const int64_t half = a.rotary_dim / 2;
  for (int64_t r = begin; r < end; r++) {
    const float* cos = a.cos_sin + a.positions[r] * a.rotary_dim;
    for (int64_t h = 0; h < a.q_heads; h++)
      rotate_head(static_cast<T*>(a.q) + r * a.q_stride + h * a.q_head_stride, cos, cos + half, half, a.interleaved != 0);
    for (int64_t h = 0; h < a.k_heads; h++)
      rotate_head(static_cast<T*>(a.k) + r * a.k_stride + h * a.k_head_stride, cos, cos + half, half, a.interleaved != 0);
  }
}

static void rotary(const void* args, Team& team) {
  const auto& a = *static_cast<const RotaryArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    if (a.element == kFloat32) rotary_rows<float>(a, begin, end);
    else rotary_rows<bf16>(a, begin, end);
  });
}

TC_INLINE vf silu_of(vf x) { return x / (vset(1.f) + vexp(vset(0.f) - x)); }
TC_INLINE vf gelu_tanh_of(vf x) {
  const vf inner = vset(0.7978845608028654f) * x * vfma(vset(0.044715f) * x, x, vset(1.f));
  return vset(0.5f) * x * (vset(1.f) + vtanh(inner));
}
TC_INLINE vf gelu_of(vf x) {
  alignas(64) float lane[kWidth];
  vstore(lane, x);
  for (int j = 0; j < kWidth; j++) lane[j] = 0.5f * (1.f + ::erff(lane[j] * 0.7071067811865476f));
  return x * vload(lane);
}

TC_INLINE vf gate_of(int kind, vf x) { return kind == 0 ? silu_of(x) : kind == 1 ? gelu_tanh_of(x) : gelu_of(x); }

template <typename T>
static void gated_rows(const GatedArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const T* gate = static_cast<const T*>(a.x) + r * a.x_stride;
    const T* up = gate + a.width;
    T* out = static_cast<T*>(a.out) + r * a.out_stride;
    each_vector(a.width, [&](int64_t i, int n) {
      const vf g = load_some(gate + i, n), u = load_some(up + i, n);
      store_some(out + i, n, gate_of(a.kind, g) * u);
    });
  }
}

static void gated(const void* args, Team& team) {
  const auto& a = *static_cast<const GatedArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    if (a.element == kFloat32) gated_rows<float>(a, begin, end);
    else gated_rows<bf16>(a, begin, end);
  });
}

template <typename T>
static void softcap_span(const SoftcapArgs& a, int64_t begin, int64_t end) {
  T* x = static_cast<T*>(a.x) + begin;
  each_vector(end - begin, [&](int64_t i, int n) {
    store_some(x + i, n, vset(a.cap) * vtanh(load_some(x + i, n) / vset(a.cap)));
  });
}

static void softcap(const void* args, Team& team) {
  const auto& a = *static_cast<const SoftcapArgs*>(args);
  team_for(team, 0, a.count, [&](int64_t begin, int64_t end) {
    if (a.element == kFloat32) softcap_span<float>(a, begin, end);
    else softcap_span<bf16>(a, begin, end);
  });
}

static void embedding(const void* args, Team& team) {
  const auto& a = *static_cast<const EmbeddingArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const Row from(a.table, a.element, a.ids[r] * a.width), out(a.out, a.out_element, r * a.width);
      each_vector(a.width, [&](int64_t i, int n) {
        const vf v = from.load(i, n);
        out.store(i, n, a.scale == 1.f ? v : v * vset(a.scale));
      });
    }
  });
}
