// What the drivers of linears share: how work is cut, and what becomes of a panel's sums.

// Work is (panel, group of rows); groups only exist where there are few panels for the threads. A gated linear's item is a
// pair of panels, gate and up.
struct Grid {
  int64_t panels, groups, rows;
  Grid(const LinearArgs& a, int threads, int tile) : panels(a.epilogue == kGate ? a.w->panels / 2 : a.w->panels), groups(1), rows(a.rows) {
    const int64_t most = (rows + tile - 1) / tile;
    if (panels < 2 * threads) groups = (4 * threads + panels - 1) / panels;
    if (groups > most) groups = most;
    if (groups < 1) groups = 1;
  }
  int64_t items() const { return panels * groups; }
  void item(int64_t i, int64_t& panel, int64_t& r0, int64_t& r1) const {
    panel = i / groups;
    r0 = rows * (i % groups) / groups;
    r1 = rows * (i % groups + 1) / groups;
  }
};

// v as a tensor of that element type would hold it.
TC_INLINE vf rounded(vf v, int element) {
  if (element == kFloat32) return v;
  alignas(64) bf16 narrow[kWidth];
  vstore(narrow, v);
  return vload(narrow);
}

TC_INLINE int columns_of(const LinearArgs& a, int64_t panel) {
  const int64_t left = a.w->n - panel * kPanel;
  return left < kPanel ? int(left) : kPanel;
}

struct Bias {
  alignas(64) float at[kPanel];
  Bias(const LinearArgs& a, int64_t panel) {
    const int columns = columns_of(a, panel);
    const Row from(a.bias, a.bias_element, panel * kPanel);
    for (int c = 0; c < kPanel; c += kWidth)
      vstore(at + c, c < columns ? from.load(c, columns - c < kWidth ? columns - c : kWidth) : vset(0.f));
  }
};

static void add_bias(const LinearArgs& a, int64_t panel, float* acc, int64_t rows) {
  if (!a.bias) return;
  const Bias bias(a, panel);
  for (int64_t r = 0; r < rows; r++)
    for (int c = 0; c < kPanel; c += kWidth) vstore(acc + r * kPanel + c, vload(acc + r * kPanel + c) + vload(bias.at + c));
}

// Sums acc [rows][32] of a panel go to rows [row0, row0 + rows) of out.
static void write_panel(const LinearArgs& a, int64_t panel, float* acc, int64_t row0, int64_t rows) {
  const int columns = columns_of(a, panel);
  add_bias(a, panel, acc, rows);
  for (int64_t r = 0; r < rows; r++, acc += kPanel) {
    const Row out(a.out, a.out_element, (row0 + r) * a.out_stride + panel * kPanel);
    for (int c = 0; c < columns; c += kWidth) {
      const int n = columns - c < kWidth ? columns - c : kWidth;
      vf v = vload(acc + c);
      if (a.epilogue == kAddTo) v = out.load(c, n) + rounded(v, a.via_element);
      out.store(c, n, v);
    }
  }
}

// The same for panels `panel` (gate) and `panel + panels / 2` (up) of a gated linear.
static void write_gated(const LinearArgs& a, int64_t panel, float* gate, float* up, int64_t row0, int64_t rows) {
  add_bias(a, panel, gate, rows);
  add_bias(a, panel + a.w->panels / 2, up, rows);
  for (int64_t r = 0; r < rows; r++, gate += kPanel, up += kPanel) {
    const Row out(a.out, a.out_element, (row0 + r) * a.out_stride + panel * kPanel);
    for (int c = 0; c < kPanel; c += kWidth)
      out.store(c, kWidth, gate_of(a.gate, rounded(vload(gate + c), a.via_element)) * rounded(vload(up + c), a.via_element));
  }
}

// Rows [r0, r1) of an item: sums(panel, row, rows, acc) computes acc [rows][32] for up to MOST rows at a time.
template <int MOST, typename F>
TC_INLINE void finish_rows(const LinearArgs& a, int64_t panel, int64_t r0, int64_t r1, F sums) {
  alignas(64) float acc[2][MOST * kPanel];
  const int64_t tiles = (r1 - r0 + MOST - 1) / MOST;
  for (int64_t t = 0; t < tiles; t++) {  // tiles of nearly equal height
    const int64_t begin = r0 + (r1 - r0) * t / tiles, height = r0 + (r1 - r0) * (t + 1) / tiles - begin;
    sums(panel, begin, height, t == 0, acc[0]);
    if (a.epilogue == kGate) {
      sums(panel + a.w->panels / 2, begin, height, t == 0, acc[1]);
      write_gated(a, panel, acc[0], acc[1], begin, height);
    } else {
      write_panel(a, panel, acc[0], begin, height);
    }
  }
}
