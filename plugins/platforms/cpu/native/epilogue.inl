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

// Each thread has a region of a linear's items, so that it reads one long stream; who is done with its own takes from others.
// Beyond kPhases - 1 threads share regions.
struct Regions {
  int count, sharers, home;
  explicit Regions(const Team& team) {
    count = team.count < kPhases - 1 ? team.count : kPhases - 1;
    sharers = (team.count + count - 1) / count;
    home = team.id * count / team.count;
  }
};

// f(begin, end) over all items, as team_for does, in phases from 1 on.
template <typename F>
TC_INLINE void share_items(Team& team, int64_t items, F f) {
  if (team.count == 1) return f(int64_t(0), items);
  const Regions regions(team);
  for (int i = 0; i < regions.count; i++) {
    const int g = (regions.home + i) % regions.count;
    const int64_t first = items * g / regions.count, size = items * (g + 1) / regions.count - first;
    Phase& p = team.phases[1 + g];
    int64_t begin, end;
    while (phase_take(p, team.epoch, size, regions.sharers, begin, end)) {
      f(first + begin, first + end);
      phase_finish(p, team.epoch, end - begin);
    }
  }
  for (int g = 0; g < regions.count; g++) {
    const int64_t size = items * (g + 1) / regions.count - items * g / regions.count;
    Phase& p = team.phases[1 + g];
    if (phase_count(__atomic_load_n(&p.done, __ATOMIC_ACQUIRE), team.epoch) < size) phase_wait(p, team.epoch, size);
  }
}

constexpr int64_t kWarm = 32768;  // bytes of a region that an idle thread fetches while others prepare rows
constexpr int64_t kFewRows = 4;   // up to which a linear waits for memory

// Phase 0: prepare(row) for every row, normalised first if there is a norm. Where rows are few, threads that have none fetch
// what they will read first.
template <typename F>
TC_INLINE void prepare_rows(const LinearArgs& a, const NormArgs* norm, Team& team, F prepare) {
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      if (norm) norm_row(*norm, r);
      prepare(r);
    }
  };
  if (team.count == 1 || a.rows > kFewRows) return team_for(team, 0, a.rows, some);
  Phase& p = team.phases[0];
  const auto left = [&] { return phase_count(__atomic_load_n(&p.done, __ATOMIC_ACQUIRE), team.epoch) < a.rows; };
  bool idle = true;
  int64_t begin, end;
  while (phase_take(p, team.epoch, a.rows, team.count, begin, end)) {
    idle = false;
    some(begin, end);
    phase_finish(p, team.epoch, end - begin);
  }
  const Regions regions(team);
  const int64_t panels = a.epilogue == kGate ? a.w->panels / 2 : a.w->panels;
  const uint8_t* stream = a.w->panel(panels * regions.home / regions.count);
  for (int64_t at = 0; idle && at < kWarm && left(); at += 512)
    for (int64_t line = at; line < at + 512; line += 64) vfetch(stream + line);
  if (left()) phase_wait(p, team.epoch, a.rows);
}

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
