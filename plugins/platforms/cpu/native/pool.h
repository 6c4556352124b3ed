// The thread pool of the CPU platform: fork, barrier, join.
//
// Owns the threads and the scratch memory of a call. Knows no kernel.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tc {

// One thread's place in a running job. `count` threads run the job; ids are 0 (the caller) to count - 1.
struct Team {
  int id;
  int count;
  struct Pool* pool;
};

using Job = void (*)(const void* args, Team& team);

// Starts (or restarts) the pool with `threads` threads. Thread i > 0 is pinned to cpus[i % ncpus] if ncpus > 0.
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

// Runs job on `threads` threads (at most the pool's) and returns when all are done. Needs a PoolLock.
void pool_run(Job job, const void* args, int threads);

// All threads of the job meet here.
void team_barrier(Team& team);

// The contiguous share [begin, end) of `total` items that falls to this thread.
inline void team_share(const Team& team, int64_t total, int64_t& begin, int64_t& end) {
  begin = total * team.id / team.count;
  end = total * (team.id + 1) / team.count;
}

}  // namespace tc
