// Recording and replaying of forwards.
#include "program.h"

#include "profile.h"

#include <algorithm>
#include <new>
#include <vector>

namespace tc {
namespace {

// One KV group's geometry in a step (see AttentionArgs).
struct Geometry {
  const int32_t* query_start;
  const int32_t* seq_lens;
  const int32_t* block_table;
  const int64_t* slots;
  int64_t table_stride, batch;
};

// What differs from step to step.
struct Inputs {
  const int64_t* ids;
  const int64_t* positions;
  const Geometry* groups;
  int64_t group_count, tokens;
};

// What one kernel call of a replay does; small ones in a row are done by one thread.
struct Unit {
  Job job;
  const void* args;
  bool small;
  Op op;
};

// A replay's work; `timed`: every call by itself, its time counted.
struct Replay {
  const std::vector<Unit>* units;
  bool timed;
};

struct Program {
  std::vector<Step> steps;
  std::vector<Unit> units;
  std::vector<NormedLinearArgs> linears;
  std::vector<ExpertsArgs> experts;
  std::vector<bool> normed;  // steps that the linear behind them does
  const char* fault = nullptr;
};

constexpr int64_t kSmall = 16384;         // values: below this a fork costs more than it saves
constexpr int64_t kSmallProduct = 65536;  // the same for products

struct Recording {
  Program* program = nullptr;
  Inputs inputs{};
  std::vector<Geometry> groups;
};

Recording& recording() {
  static thread_local Recording one;
  return one;
}

int64_t& rows_of(Step& step) {
  AnyArgs& a = step.args;
  switch (step.op) {
    case Op::kLinear: return a.linear.rows;
    case Op::kRows: return a.rows.rows;
    case Op::kEmbedding: return a.embedding.rows;
    case Op::kNorm: return a.norm.rows;
    case Op::kLayerNorm: return a.layer_norm.rows;
    case Op::kRotary: return a.rotary.rows;
    case Op::kGated: return a.gated.rows;
    case Op::kPointwise: return a.pointwise.rows;
    case Op::kSoftcap: return a.softcap.count;
    case Op::kArgmax: return a.argmax.rows;
    case Op::kRoute: return a.route.rows;
    case Op::kAddGated: return a.add_gated.rows;
    case Op::kExperts: return a.experts.rows;
    default: return a.attention.tokens;
  }
}

int group_of(const AttentionArgs& a, const Recording& now) {
  for (size_t g = 0; g < now.groups.size(); g++) {
    const Geometry& have = now.groups[g];
    if (a.query_start == have.query_start && a.seq_lens == have.seq_lens && a.block_table == have.block_table && a.slots == have.slots)
      return int(g);
  }
  return -1;
}

// Binds a step to its inputs; what is wrong with it, or null.
const char* bind_fault(Step& step, const Recording& now) {
  const int64_t rows = rows_of(step), tokens = now.inputs.tokens;
  if (rows % tokens) return "an op's rows are no multiple of the step's tokens";
  step.per_token = rows / tokens;
  switch (step.op) {
    case Op::kRows: return step.args.rows.ids == now.inputs.ids ? nullptr : "an op looks up other ids than the step's";
    case Op::kEmbedding: return step.args.embedding.ids == now.inputs.ids ? nullptr : "an op looks up other ids than the step's";
    case Op::kRotary: return step.args.rotary.positions == now.inputs.positions ? nullptr : "an op uses other positions than the step's";
    case Op::kAttention: step.group = group_of(step.args.attention, now); return step.group >= 0 ? nullptr : "attention over a geometry that is not the step's";
    default: return nullptr;
  }
}

// Puts a step's inputs and sizes into an op; false if an id is beyond the vocabulary.
bool bind(Step& step, const Inputs& in) {
  rows_of(step) = step.per_token * in.tokens;
  AnyArgs& a = step.args;
  switch (step.op) {
    case Op::kRows: a.rows.ids = in.ids; return ids_within(in.ids, a.rows.rows, a.rows.w->n);
    case Op::kEmbedding: a.embedding.ids = in.ids; return ids_within(in.ids, a.embedding.rows, a.embedding.entries);
    case Op::kRotary: a.rotary.positions = in.positions; return true;
    case Op::kAttention: {
      const Geometry& g = in.groups[step.group];
      a.attention.query_start = g.query_start;
      a.attention.seq_lens = g.seq_lens;
      a.attention.block_table = g.block_table;
      a.attention.slots = g.slots;
      a.attention.table_stride = g.table_stride;
      a.attention.batch = g.batch;
      return true;
    }
    default: return true;
  }
}

// Kernel calls of a mixture's experts. Plans lie behind one another, not in scratch: `plans` is what they take so far.
void lay_out_experts(Program& program, const Step& step, const Kernels& kernels, size_t& scratch, size_t& plans) {
  const ExpertsArgs& all = step.args.experts;
  const int64_t chunk = kernels.experts_rows(all);
  for (int64_t begin = 0; begin < all.rows; begin += chunk) {
    program.experts.push_back(tokens_from(all, begin, chunk));
    ExpertsArgs& part = program.experts.back();
    scratch = std::max(scratch, kernels.experts_scratch(part, pool_threads_locked()));
    part.plan = nullptr;
    plans += kernels.experts_plan(part);
    const bool alone = small(Step(part));
    program.units.push_back({kernels.experts_up, &part, alone, Op::kExperts});
    program.units.push_back({kernels.experts_down, &part, alone, Op::kExperts});
  }
}

// Cuts the steps into kernel calls. Needs a PoolLock. 0, or the code of what is wrong.
int lay_out(Program& program, const Inputs& in, int64_t first, int64_t last) {
  const Kernels& kernels = active_kernels();
  const int threads = pool_threads_locked();
  size_t scratch = 64, linears = 0, experts = 0, plans = 0;
  for (int64_t i = first; i < last; i++) {
    Step& step = program.steps[size_t(i)];
    if (!bind(step, in)) return -1;
    if (step.op == Op::kAttention) scratch = std::max(scratch, kernels.attention_scratch(step.args.attention, threads));
    if (step.op == Op::kExperts) experts += size_t(step.args.experts.rows / kernels.experts_rows(step.args.experts) + 1);
    if (step.op == Op::kLinear) linears += size_t(step.args.linear.rows / chunk_rows(step.args.linear.w->k_padded) + 1);
  }
  program.units.clear();
  program.linears.clear();
  program.linears.reserve(linears);  // units point into it
  program.experts.clear();
  program.experts.reserve(experts);
  for (int64_t i = first; i < last; i++) {
    const NormArgs* norm = i + 1 < last && program.normed[size_t(i)] ? &program.steps[size_t(i++)].args.norm : nullptr;
    Step& step = program.steps[size_t(i)];
    if (step.op == Op::kExperts) {
      lay_out_experts(program, step, kernels, scratch, plans);
      continue;
    }
    if (step.op != Op::kLinear) {
      program.units.push_back({job_of(step.op, kernels), &step.args, step.op != Op::kAttention && small(step), step.op});
      continue;
    }
    const LinearArgs& all = step.args.linear;
    const int64_t chunk = chunk_rows(all.w->k_padded);
    for (int64_t begin = 0; begin < all.rows; begin += chunk) {
      program.linears.push_back({rows_from(all, begin, chunk), norm ? norm_rows_from(*norm, begin, chunk) : NormArgs{}});
      const LinearArgs& part = program.linears.back().linear;
      scratch = std::max(scratch, kernels.linear_scratch(part, threads));
      program.units.push_back({norm ? kernels.normed_linear : kernels.linear, &part, small(Step(part)), Op::kLinear});
    }
  }
  scratch = (scratch + 63) & ~size_t(63);
  uint8_t* memory = pool_scratch(scratch + plans);
  if (!memory) return -2;
  uint8_t* plan = memory + scratch;
  for (ExpertsArgs& a : program.experts) {
    a.scratch = memory;
    a.plan = nullptr;
    const size_t size = kernels.experts_plan(a);
    a.plan = plan;
    plan += size;
  }
  for (NormedLinearArgs& a : program.linears) a.linear.scratch = memory;
  for (int64_t i = first; i < last; i++)
    if (program.steps[size_t(i)].op == Op::kAttention) program.steps[size_t(i)].args.attention.scratch = memory;
  return 0;
}

// One call of a replay by one thread.
void alone(const Unit& unit) {
  Team one{0, 1, nullptr, 0};
  unit.job(unit.args, one);
}

// The same as `replay` below, small calls one by one; the caller, who is there from first to last, holds the clock.
void replay_timed(const std::vector<Unit>& units, Team& whole) {
  for (size_t i = 0; i < units.size(); i++) {
    const Unit& unit = units[i];
    Team team = team_step(whole, int(i));
    const int64_t began = profile_clock();
    if (unit.small) {
      team_for(team, 0, 1, [&](int64_t, int64_t) { alone(unit); });
    } else {
      unit.job(unit.args, team);
    }
    if (whole.id == 0) profile_add(unit.op, unit.args, began);
  }
}

// What every thread of a replay does: one kernel after another; nobody starts one before its predecessor is finished.
void replay(const void* args, Team& whole) {
  const auto& work = *static_cast<const Replay*>(args);
  const std::vector<Unit>& units = *work.units;
  if (work.timed) return replay_timed(units, whole);
  for (size_t i = 0; i < units.size();) {
    Team team = team_step(whole, int(i));
    if (!units[i].small) {
      units[i].job(units[i].args, team);
      i++;
      continue;
    }
    size_t end = i + 1;
    while (end < units.size() && units[end].small) end++;
    team_for(team, 0, 1, [&](int64_t, int64_t) {
      for (size_t k = i; k < end; k++) alone(units[k]);
    });
    i = end;
  }
}

}  // namespace

Job job_of(Op op, const Kernels& kernels) {
  switch (op) {
    case Op::kLinear: return kernels.linear;
    case Op::kRows: return kernels.rows;
    case Op::kEmbedding: return kernels.embedding;
    case Op::kNorm: return kernels.norm;
    case Op::kLayerNorm: return kernels.layer_norm;
    case Op::kRotary: return kernels.rotary;
    case Op::kGated: return kernels.gated;
    case Op::kPointwise: return kernels.pointwise;
    case Op::kSoftcap: return kernels.softcap;
    case Op::kArgmax: return kernels.argmax;
    case Op::kRoute: return kernels.route;
    case Op::kAddGated: return kernels.add_gated;
    default: return kernels.attention;
  }
}

bool small(const Step& step) {
  const AnyArgs& a = step.args;
  switch (step.op) {
    case Op::kLinear: return a.linear.rows * a.linear.w->k * a.linear.w->n < kSmallProduct;
    case Op::kRows: return a.rows.rows * a.rows.w->k * 4 < kSmall;
    case Op::kEmbedding: return a.embedding.rows * a.embedding.width < kSmall;
    case Op::kNorm: return a.norm.rows * a.norm.width < kSmall;
    case Op::kLayerNorm: return a.layer_norm.rows * a.layer_norm.width < kSmall;
    case Op::kRotary: return a.rotary.rows * (a.rotary.q_heads + a.rotary.k_heads) * a.rotary.rotary_dim < kSmall;
    case Op::kGated: return a.gated.rows * a.gated.width * 2 < kSmall;
    case Op::kPointwise: return a.pointwise.rows * a.pointwise.width < kSmall;
    case Op::kSoftcap: return a.softcap.count < kSmall;
    case Op::kArgmax: return a.argmax.rows * a.argmax.width < kSmall;
    case Op::kRoute: return a.route.rows * a.route.experts * a.route.top_k < kSmall;
    case Op::kAddGated: return a.add_gated.rows * a.add_gated.width < kSmall;
    case Op::kExperts: return a.experts.rows * a.experts.top_k * a.experts.experts->up->n * a.experts.experts->up->k < kSmallProduct;
    default: return false;
  }
}

int64_t chunk_rows(int64_t k) {
  const int64_t rows = (int64_t(192) << 10) / k / 12 * 12;
  return rows < 24 ? 24 : rows > 192 ? 192 : rows;
}

LinearArgs rows_from(const LinearArgs& all, int64_t begin, int64_t count) {
  LinearArgs a = all;
  a.rows = all.rows - begin < count ? all.rows - begin : count;
  a.x = static_cast<const char*>(all.x) + begin * all.x_stride * (all.element == kFloat32 ? 4 : 2);
  a.out = static_cast<char*>(all.out) + begin * all.out_stride * (all.out_element == kFloat32 ? 4 : 2);
  return a;
}

ExpertsArgs tokens_from(const ExpertsArgs& all, int64_t begin, int64_t count) {
  ExpertsArgs a = all;
  a.rows = all.rows - begin < count ? all.rows - begin : count;
  a.x = static_cast<const char*>(all.x) + begin * all.x_stride * (all.element == kFloat32 ? 4 : 2);
  a.out = static_cast<char*>(all.out) + begin * all.out_stride * (all.out_element == kFloat32 ? 4 : 2);
  a.weights = all.weights + begin * all.top_k;
  a.ids = all.ids + begin * all.top_k;
  return a;
}

NormArgs norm_rows_from(const NormArgs& all, int64_t begin, int64_t count) {
  const auto moved = [&](const void* p, int64_t stride, int element) {
    return static_cast<char*>(const_cast<void*>(p)) + begin * stride * (element == kFloat32 ? 4 : 2);
  };
  NormArgs a = all;
  a.rows = all.rows - begin < count ? all.rows - begin : count;
  a.x = moved(all.x, all.x_stride, all.x_element);
  a.out = moved(all.out, all.out_stride, all.out_element);
  if (all.residual) a.residual = moved(all.residual, all.residual_stride, all.residual_element);
  return a;
}

bool ids_within(const int64_t* ids, int64_t count, int64_t entries) {
  for (int64_t i = 0; i < count; i++)
    if (ids[i] < 0 || ids[i] >= entries) return false;
  return true;
}

void record(const Step& step) {
  Recording& now = recording();
  if (!now.program) return;
  Step bound = step;
  const char* fault = bind_fault(bound, now);
  if (fault && !now.program->fault) now.program->fault = fault;
  now.program->steps.push_back(bound);
  now.program->normed.push_back(false);
}

}  // namespace tc

using namespace tc;

#define TC_API extern "C" __attribute__((visibility("default")))

TC_API void* tc_program_new() { return new (std::nothrow) Program; }
TC_API void tc_program_free(void* program) { delete static_cast<Program*>(program); }
TC_API int64_t tc_program_steps(const void* program) { return int64_t(static_cast<const Program*>(program)->steps.size()); }

// Why the program cannot be replayed; null if it can.
TC_API const char* tc_program_fault(const void* program) { return static_cast<const Program*>(program)->fault; }

// From here to tc_record_stop every op of this thread is also appended to the program, which takes the step that runs
// meanwhile for `inputs`.
TC_API int tc_record_start(void* program, const Inputs* inputs) {
  Recording& now = recording();
  if (now.program || inputs->tokens < 1) return -1;
  now.inputs = *inputs;
  now.groups.assign(inputs->groups, inputs->groups + inputs->group_count);
  now.program = static_cast<Program*>(program);
  return 0;
}
TC_API void tc_record_stop() { recording().program = nullptr; }

// A whole program is recorded that runs from first to last: its steps may be joined (fuse.cpp).
TC_API void tc_program_fuse(void* handle) {
  auto& program = *static_cast<Program*>(handle);
  fuse(program.steps);
  program.normed.assign(program.steps.size(), false);
  for (size_t i = 0; i + 1 < program.steps.size(); i++) program.normed[i] = normalises_for(program.steps[i], program.steps[i + 1]);
}

// Runs steps [first, last) for other inputs, with as many groups as were recorded.
TC_API int tc_replay(void* handle, const Inputs* inputs, int64_t first, int64_t last) {
  auto& program = *static_cast<Program*>(handle);
  if (program.fault || inputs->tokens < 1 || first < 0 || last > int64_t(program.steps.size())) return -1;
  PoolLock lock;
  const int code = lay_out(program, *inputs, first, last);
  if (code) return code;
  const Replay work{&program.units, profiling()};
  pool_run_steps(replay, &work, 1 << 30, int(program.units.size()));
  return 0;
}
