// The thread pool of the CPU platform: jobs made of phases whose items threads take as they come.
//
// Owns the threads and the scratch memory of a call. Knows no kernel.
//
// Nobody waits for a thread that has not taken anything: a job ends when its items are done, whoever did them, so a
// thread that the system has put aside, or that has not woken up yet, delays nothing. Results cannot depend on who does an
// item, since an item writes only what belongs to it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tc {

constexpr int kPhases = 4;

// Counters of a phase: the epoch they belong to in the upper half, a number of items in the lower. Jobs are numbered in
// the order in which they run, and a phase is used again by later ones without being cleared: counters of an older epoch
// stand for zero, those of a newer one say that the phase is long over.
struct alignas(64) Phase {
  uint64_t next;              // the first item that nobody took
  alignas(64) uint64_t done;  // items finished
};

// One thread's place in a running job: ids are 0 (the caller) to count - 1.
struct Team {
  int id;
  int count;
  Phase* phases;
  uint32_t epoch;
};

using Job = void (*)(const void* args, Team& team);

// Starts (or restarts) the pool with `threads` threads. With four or more, thread i > 0 is pinned to cpus[i % ncpus];
// with fewer, threads may move among the cpus given. No cpus: threads run where the system lets them.
int pool_start(int threads, const int* cpus, int ncpus);
int pool_threads();
int pool_threads_locked();  // the same, for a caller that holds a PoolLock

// Serialises calls into the pool; scratch memory is valid while one is held.
struct PoolLock {
  PoolLock();
  ~PoolLock();
  PoolLock(const PoolLock&) = delete;
  PoolLock& operator=(const PoolLock&) = delete;
};

// 64-byte aligned memory of at least `bytes`, kept from call to call. Needs a PoolLock. Null if there is none.
uint8_t* pool_scratch(size_t bytes);

// Runs job on at most `threads` threads and returns when it is done. Needs a PoolLock.
void pool_run(Job job, const void* args, int threads);

// The same for a job of `steps` jobs that follow one another within it: each must take its place from team_step.
void pool_run_steps(Job job, const void* args, int threads, int steps);

// The team of step `step` of a job that pool_run_steps runs.
Team team_step(const Team& team, int step);

// How far counters are with respect to an epoch: items of it, none if they are older, all that can be if newer.
inline int64_t phase_count(uint64_t word, uint32_t epoch) {
  const int32_t age = int32_t(uint32_t(word >> 32) - epoch);
  return age == 0 ? int64_t(uint32_t(word)) : age < 0 ? 0 : INT64_MAX;
}

// Spins until all `total` items of the phase are finished.
void phase_wait(Phase& phase, uint32_t epoch, int64_t total);

// Takes the next run of items: large at first, single ones at the end. False when there are none.
inline bool phase_take(Phase& phase, uint32_t epoch, int64_t total, int threads, int64_t& begin, int64_t& end) {
  uint64_t word = __atomic_load_n(&phase.next, __ATOMIC_RELAXED);
  int64_t at;
  while ((at = phase_count(word, epoch)) < total) {
    int64_t count = (total - at) / (2 * threads);
    if (count < 1) count = 1;
    const uint64_t taken = uint64_t(epoch) << 32 | uint64_t(at + count);
    if (__atomic_compare_exchange_n(&phase.next, &word, taken, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      begin = at;
      end = at + count;
      return true;
    }
  }
  return false;
}

inline void phase_finish(Phase& phase, uint32_t epoch, int64_t count) {
  uint64_t word = __atomic_load_n(&phase.done, __ATOMIC_RELAXED), done;
  do {
    done = uint64_t(epoch) << 32 | uint64_t(phase_count(word, epoch) + count);
  } while (!__atomic_compare_exchange_n(&phase.done, &word, done, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

// Phase number `phase` of a job: f(begin, end) over all of `total` items (fewer than 2^31), in runs, by whoever comes;
// returns when every item is finished. A thread that comes late finds nothing left and goes on.
template <typename F>
inline void team_for(Team& team, int phase, int64_t total, F f) {
  if (total <= 0) return;
  if (team.count == 1) {
    f(int64_t(0), total);
    return;
  }
  Phase& p = team.phases[phase];
  int64_t begin, end;
  while (phase_take(p, team.epoch, total, team.count, begin, end)) {
    f(begin, end);
    phase_finish(p, team.epoch, end - begin);
  }
  if (phase_count(__atomic_load_n(&p.done, __ATOMIC_ACQUIRE), team.epoch) < total) phase_wait(p, team.epoch, total);
}

}  // namespace tc
