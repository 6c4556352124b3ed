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

struct alignas(64) Phase {
  int64_t next;               // the first item that nobody took
  alignas(64) int64_t done;   // items finished
};

// One thread's place in a running job: ids are 0 (the caller) to count - 1.
struct Team {
  int id;
  int count;
  Phase* phases;
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

// Spins until all `total` items of the phase are finished.
void phase_wait(Phase& phase, int64_t total);

// Takes the next run of items: large at first, single ones at the end. False when there are none.
inline bool phase_take(Phase& phase, int64_t total, int threads, int64_t& begin, int64_t& end) {
  int64_t at = __atomic_load_n(&phase.next, __ATOMIC_RELAXED);
  while (at < total) {
    int64_t count = (total - at) / (2 * threads);
    if (count < 1) count = 1;
    if (__atomic_compare_exchange_n(&phase.next, &at, at + count, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      begin = at;
      end = at + count;
      return true;
    }
  }
  return false;
}

// Phase number `phase` of a job: f(begin, end) over all of `total` items, in runs, by whoever comes; returns when every
// item is finished. A thread that comes late finds nothing left and goes on.
template <typename F>
inline void team_for(Team& team, int phase, int64_t total, F f) {
  if (team.count == 1) {
    if (total > 0) f(int64_t(0), total);
    return;
  }
  Phase& p = team.phases[phase];
  int64_t begin, end;
  while (phase_take(p, total, team.count, begin, end)) {
    f(begin, end);
    __atomic_fetch_add(&p.done, end - begin, __ATOMIC_RELEASE);
  }
  if (__atomic_load_n(&p.done, __ATOMIC_ACQUIRE) < total) phase_wait(p, total);
}

}  // namespace tc
