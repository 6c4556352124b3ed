// Jobs of many steps on the pool, more threads than cores: each step adds one to every cell and then checks every cell.
// Built by test_pool.py, with and without a sanitizer. Exit status 1 when a step began before its predecessor was done.
#include <cstdio>
#include <vector>

#include "pool.h"

using namespace tc;

namespace {

constexpr int kArrays = 5;

struct Plan {
  std::vector<std::vector<int64_t>> arrays;
  int steps;
};

int wrong = 0;

void add_and_check(std::vector<int64_t>& cells, int64_t before, Team& team) {
  const int64_t total = int64_t(cells.size());
  team_for(team, 0, total, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) cells[size_t(i)] += 1;
  });
  team_for(team, 1, total, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      if (cells[size_t(total - 1 - i)] != before + 1) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
  });
}

void job(const void* args, Team& whole) {
  auto& plan = *static_cast<Plan*>(const_cast<void*>(args));
  for (int step = 0; step < plan.steps; step++) {
    Team team = team_step(whole, step);
    auto& cells = plan.arrays[size_t(step % kArrays)];
    const int64_t before = step / kArrays;
    if (step % 3 != 2) {
      add_and_check(cells, before, team);
      continue;
    }
    team_for(team, 0, 1, [&](int64_t, int64_t) {  // as one thread does small ops of a replay
      Team alone{0, 1, nullptr, 0};
      add_and_check(cells, before, alone);
    });
  }
}

}  // namespace

int main() {
  for (int threads = 1; threads <= 5; threads++) {
    pool_start(threads, nullptr, 0);
    for (int round = 0; round < 400; round++) {
      Plan plan{{}, 40 + round % 7};
      for (int i = 0; i < kArrays; i++) plan.arrays.emplace_back(size_t(1 + (round * 7 + i * 13) % 90), 0);
      PoolLock lock;
      pool_run_steps(job, &plan, 1 << 30, plan.steps);
      for (int i = 0; i < kArrays; i++)
        for (int64_t cell : plan.arrays[size_t(i)])
          if (cell != plan.steps / kArrays + (i < plan.steps % kArrays)) wrong++;
    }
  }
  std::printf("%d wrong\n", wrong);
  return wrong != 0;
}
