// A mixture's experts over a step's tokens, grouped: tokens sorted by expert, then one product for all gates and ups and
// one for all downs, whose items are a panel of one expert for a block of its rows, and a weighted sum.
//
// Two jobs, `experts_up` and `experts_down`, since a job has four phases. A pair is a token and one of its top_k experts; pairs
// are known by their place in the order of experts, tokens of one in their order. A pair's numbers are a chain of its own,
// and a token's pairs are added in the order of its choice, so who else came is without effect.

// A run of an expert's pairs that are multiplied at a time: their rows stay in the second-level cache.
struct ExpertBlock {
  int64_t first;
  int32_t rows, expert;
};

// How a step's pairs are laid out. It lies apart from scratch: a thread that comes late reads how much work there was.
struct ExpertPlan {
  int64_t up_count, down_count;  // blocks
  int32_t* starts;               // [experts + 1]
  int32_t* order;                // [pairs] token * top_k + number of the choice, by place
  int32_t* place;                // [pairs] and back
  ExpertBlock *up, *down;
};

static int64_t block_rows(const Packed& w) { return chunk_rows(w.k_padded); }

static size_t experts_plan_layout(const ExpertsArgs& a, ExpertPlan* plan) {
  const int64_t pairs = a.rows * a.top_k, least = pairs < a.count ? pairs : a.count;
  size_t used = size_t(align64(int64_t(sizeof(ExpertPlan))));
  auto take = [&](int64_t bytes) {
    const size_t at = used;
    used += size_t(align64(bytes));
    return a.plan ? a.plan + at : nullptr;
  };
  auto* starts = take((a.count + 1) * 4);
  auto* order = take(pairs * 4);
  auto* place = take(pairs * 4);
  auto* up = take((least + pairs / block_rows(*a.experts->up)) * int64_t(sizeof(ExpertBlock)));
  auto* down = take((least + pairs / block_rows(*a.experts->down)) * int64_t(sizeof(ExpertBlock)));
  if (plan) {
    plan->starts = reinterpret_cast<int32_t*>(starts);
    plan->order = reinterpret_cast<int32_t*>(order);
    plan->place = reinterpret_cast<int32_t*>(place);
    plan->up = reinterpret_cast<ExpertBlock*>(up);
    plan->down = reinterpret_cast<ExpertBlock*>(down);
  }
  return used;
}

static size_t experts_plan(const ExpertsArgs& a) { return experts_plan_layout(a, nullptr); }

// A product of `rows` rows; rows of several experts have the same needs, since their weights are packed alike.
static LinearArgs expert_product(const ExpertsArgs& a, const Packed* w, int64_t rows) {
  LinearArgs one{};
  one.w = w;
  one.rows = rows;
  one.element = one.out_element = one.via_element = a.element;
  one.activations = a.activations;
  one.gate = a.gate;
  return one;
}

// Where numbers wait: rows of x as the driver wants them, then results in the same memory; gates and ups where these are
// no whole panels; what has been gated; that as the driver wants it; what threads need.
struct ExpertMemory {
  int64_t width;              // of an expert
  bool fused;                 // gate and up meet in registers
  size_t up_row, down_row;    // bytes of a prepared row
  size_t wide, active, rows, own, own_size;
  explicit ExpertMemory(const ExpertsArgs& a, int64_t pairs) {
    const Packed &up = *a.experts->up, &down = *a.experts->down;
    const size_t element = a.element == kFloat32 ? 4 : 2;
    width = down.k;
    fused = width % kPanel == 0;
    up_row = rows_memory(expert_product(a, &up, 1));
    down_row = rows_memory(expert_product(a, &down, 1));
    const size_t result = size_t(down.n) * 4, before = up_row > result ? up_row : result, count = size_t(pairs);
    wide = size_t(align64(int64_t(count * before)));
    active = wide + (fused ? 0 : size_t(align64(int64_t(count * size_t(up.n) * element))));
    rows = active + size_t(align64(int64_t(count * size_t(width) * element)));
    own = rows + count * down_row;
    const size_t own_up = own_memory(expert_product(a, &up, block_rows(up)));
    const size_t own_down = own_memory(expert_product(a, &down, block_rows(down)));
    own_size = own_up > own_down ? own_up : own_down;
  }
};

static size_t experts_scratch(const ExpertsArgs& a, int threads) {
  const ExpertMemory memory(a, a.rows * a.top_k);
  return memory.own + size_t(threads) * memory.own_size;
}

// Tokens that are computed at a time: an expert's weights are read once for them all, and they must not take much memory.
static int64_t experts_rows(const ExpertsArgs& a) {
  constexpr size_t kMost = size_t(128) << 20;
  const int64_t tokens = int64_t(kMost / ExpertMemory(a, 1).own) / a.top_k;
  return tokens < 16 ? 16 : tokens;
}

static int64_t cut_blocks(const ExpertsArgs& a, const int32_t* starts, int64_t most, ExpertBlock* out) {
  int64_t count = 0;
  for (int64_t e = 0; e < a.count; e++)
    for (int64_t at = starts[e]; at < starts[e + 1]; at += most) {
      const int64_t left = starts[e + 1] - at;
      out[count++] = {at, int32_t(left < most ? left : most), int32_t(e)};
    }
  return count;
}

// Sorts pairs by expert, tokens of one in their order.
static void plan_experts(const ExpertsArgs& a, ExpertPlan& plan) {
  const int64_t pairs = a.rows * a.top_k;
  std::memset(plan.starts, 0, size_t(a.count + 1) * 4);
  for (int64_t i = 0; i < pairs; i++) plan.starts[a.ids[i] + 1]++;
  for (int64_t e = 0; e < a.count; e++) plan.starts[e + 1] += plan.starts[e];
  for (int64_t i = 0; i < pairs; i++) {  // each start moves to its expert's end, which is the next one's start
    const int32_t at = plan.starts[a.ids[i]]++;
    plan.order[at] = int32_t(i);
    plan.place[i] = at;
  }
  for (int64_t e = a.count; e > 0; e--) plan.starts[e] = plan.starts[e - 1];
  plan.starts[0] = 0;
  plan.up_count = cut_blocks(a, plan.starts, block_rows(*a.experts->up), plan.up);
  plan.down_count = cut_blocks(a, plan.starts, block_rows(*a.experts->down), plan.down);
}

// Items (block, panel): f's product for the whole panel of each.
template <typename F>
TC_INLINE void multiply_blocks(Team& team, int phase, const ExpertBlock* blocks, int64_t count, int64_t panels, uint8_t* own, F product) {
  team_for(team, phase, count * panels, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const ExpertBlock& block = blocks[i / panels];
      const LinearArgs one = product(block);
      linear_item(driver_of(one), one, i % panels, 0, block.rows, own);
    }
  });
}

static void experts_up(const void* args, Team& team) {
  const auto& a = *static_cast<const ExpertsArgs*>(args);
  auto& plan = *reinterpret_cast<ExpertPlan*>(a.plan);
  team_for(team, 0, 1, [&](int64_t, int64_t) {
    experts_plan_layout(a, &plan);
    plan_experts(a, plan);
  });
  const ExpertMemory memory(a, a.rows * a.top_k);
  const auto product = [&](const ExpertBlock& block) {
    LinearArgs one = expert_product(a, a.experts[block.expert].up, block.rows);
    one.x = a.x;
    one.x_stride = a.x_stride;
    one.epilogue = memory.fused ? kGate : kStore;
    one.out_stride = memory.fused ? memory.width : 2 * memory.width;
    one.out = a.scratch + (memory.fused ? memory.active : memory.wide) + block.first * one.out_stride * (a.element == kFloat32 ? 4 : 2);
    one.scratch = a.scratch + size_t(block.first) * memory.up_row;
    return one;
  };
  team_for(team, 1, plan.up_count, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      const ExpertBlock& block = plan.up[b];
      const LinearArgs one = product(block);
      for (int64_t r = 0; r < block.rows; r++) linear_row(driver_of(one), one, plan.order[block.first + r] / a.top_k, r);
    }
  });
  const int64_t panels = a.experts->up->panels / (memory.fused ? 2 : 1);
  uint8_t* own = a.scratch + memory.own + size_t(team.id) * memory.own_size;
  multiply_blocks(team, 2, plan.up, plan.up_count, panels, own, product);
}

// Gates one pair where gate and up were stored.
static void gate_pair(const ExpertsArgs& a, const ExpertMemory& memory, int64_t pair) {
  const Row up(a.scratch + memory.wide, a.element, pair * 2 * memory.width), out(a.scratch + memory.active, a.element, pair * memory.width);
  each_vector(memory.width, [&](int64_t i, int n) { out.store(i, n, gate_of(a.gate, up.load(i, n)) * up.load(memory.width + i, n)); });
}

// A token's results, weighted and added in the order of its choice.
static void combine_token(const ExpertsArgs& a, const int32_t* place, int64_t token) {
  const int64_t width = a.experts->down->n;
  const float* weights = a.weights + token * a.top_k;
  const Row out(a.out, a.out_element, token * a.out_stride);
  each_vector(width, [&](int64_t i, int n) {
    vf sum = vset(0.f);
    for (int64_t k = 0; k < a.top_k; k++) {
      const Row result(a.scratch, kFloat32, place[token * a.top_k + k] * width);
      const vf part = result.load(i, n) * vset(weights[k]);
      sum = k ? sum + part : part;
    }
    out.store(i, n, sum);
  });
}

static void experts_down(const void* args, Team& team) {
  const auto& a = *static_cast<const ExpertsArgs*>(args);
  const auto& plan = *reinterpret_cast<const ExpertPlan*>(a.plan);
  const ExpertMemory memory(a, a.rows * a.top_k);
  const auto product = [&](const ExpertBlock& block) {
    LinearArgs one = expert_product(a, a.experts[block.expert].down, block.rows);
    one.x = a.scratch + memory.active + block.first * memory.width * (a.element == kFloat32 ? 4 : 2);
    one.x_stride = memory.width;
    one.out = reinterpret_cast<float*>(a.scratch) + block.first * one.w->n;
    one.out_stride = one.w->n;
    one.out_element = kFloat32;
    one.scratch = a.scratch + memory.rows + size_t(block.first) * memory.down_row;
    return one;
  };
  team_for(team, 0, plan.down_count, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      const LinearArgs one = product(plan.down[b]);
      for (int64_t r = 0; r < one.rows; r++) {
        if (!memory.fused) gate_pair(a, memory, plan.down[b].first + r);
        linear_row(driver_of(one), one, r, r);
      }
    }
  });
  uint8_t* own = a.scratch + memory.own + size_t(team.id) * memory.own_size;
  multiply_blocks(team, 1, plan.down, plan.down_count, a.experts->down->panels, own, product);
  team_for(team, 2, a.rows, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; token++) combine_token(a, plan.place, token);
  });
}
