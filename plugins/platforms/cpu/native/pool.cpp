// Threads that spin briefly for the next job and then sleep on a futex, so that an idle process uses no CPU.
#include "pool.h"

#include <cstdlib>
#include <new>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace tc {
namespace {

constexpr int kSpinsBeforeSleep = 4000;  // about 100 microseconds: longer than the gap between two ops of a step
constexpr int kSpinsBeforeYield = 500;  // whoever holds the last item may be waiting for this very core

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
#else
  if (word.load(std::memory_order_acquire) == seen) std::this_thread::yield();
#endif
}

void wake_all(std::atomic<uint32_t>& word) {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
#endif
}

void confine(std::thread& thread, const std::vector<int>& cpus) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);  // refusal leaves the thread where it may run
#endif
}

void relax(int& spins) {
  if (++spins < kSpinsBeforeYield) {
    pause_cpu();
  } else {
    sched_yield();
    spins = 0;
  }
}

}  // namespace

struct Pool {
  explicit Pool(int threads, std::vector<int> cpus) : count(threads), cpus(std::move(cpus)) {
    for (int i = 1; i < count; i++) {
      workers.emplace_back([this, i] { work(i); });
      place(i);
    }
  }

  ~Pool() {
    stop.store(true, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_seq_cst);
    wake_all(generation);
    for (auto& worker : workers) worker.join();
    std::free(scratch);
  }

  // Many threads stay where their caches are; a few may move aside for whatever else runs here.
  void place(int i) {
    if (cpus.empty()) return;
    std::vector<int> own = count >= 4 ? std::vector<int>{cpus[size_t(i) % cpus.size()]} : cpus;
    confine(workers.back(), own);
  }

  void run(Job next, const void* next_args, int threads, int steps) {
    if (threads > count) threads = count;
    Team team{0, threads, phases, 0};
    if (threads <= 1) {
      team.count = 1;
      next(next_args, team);
      return;
    }
    job = next;
    args = next_args;
    active = threads;
    if (epoch > 1u << 30) {  // before a counter could be taken for a newer one
      for (Phase& phase : phases) phase.next = phase.done = 0;
      epoch = 0;
    }
    first = epoch + 1;
    epoch += uint32_t(steps);
    team = step_of(team, 0);
    gate.store(kOpen, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) wake_all(generation);
    next(next_args, team);
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spins = 0; gate.load(std::memory_order_acquire) != 0;) relax(spins);
  }

  // Steps share a ring of phases. A thread may still look at a phase that later steps use already; it sees by the epoch
  // that its own step is over.
  Team step_of(const Team& team, int step) {
    const uint32_t number = first + uint32_t(step);
    return {team.id, team.count, phases + number % kRing * kPhases, number};
  }

  // Whether this worker is in the current job: it then holds the gate, and the job cannot end without it.
  bool enter() {
    uint32_t state = gate.load(std::memory_order_relaxed);
    while (state & kOpen)
      if (gate.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    return false;
  }

  void work(int id) {
    uint32_t seen = 0;
    for (;;) {
      uint32_t now;
      for (int spins = 0; (now = generation.load(std::memory_order_acquire)) == seen;) {
        if (++spins < kSpinsBeforeSleep) {
          pause_cpu();
          continue;
        }
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        sleep_while(generation, seen);
        sleepers.fetch_sub(1, std::memory_order_relaxed);
        spins = 0;
      }
      seen = now;
      if (stop.load(std::memory_order_relaxed)) return;
      if (!enter()) continue;
      if (id < active) {
        Team team = step_of({id, active, phases, 0}, 0);
        job(args, team);
      }
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  static constexpr uint32_t kRing = 8;
  static constexpr uint32_t kOpen = 1u << 31;  // the lower bits count the workers within
  const int count;
  const std::vector<int> cpus;
  std::vector<std::thread> workers;
  Job job = nullptr;
  const void* args = nullptr;
  int active = 0;
  uint8_t* scratch = nullptr;
  size_t scratch_bytes = 0;
  std::atomic<bool> stop{false};
  uint32_t first = 0, epoch = 0;  // numbers of the running job's first step, and of the last step of all
  Phase phases[kRing * kPhases] = {};
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<uint32_t> gate{0};
  alignas(64) std::atomic<int> sleepers{0};
};

namespace {

struct State {
  std::mutex mutex;
  Pool* pool = nullptr;
};

State& state() {
  static State* one = [] {
    // A forked child has the memory but not the threads: it starts afresh at its first call.
    pthread_atfork(nullptr, nullptr, [] {
      State& s = state();
      new (&s.mutex) std::mutex;
      s.pool = nullptr;
    });
    return new State;
  }();
  return *one;
}

Pool& pool() {
  State& s = state();
  if (!s.pool) s.pool = new Pool(1, {});
  return *s.pool;
}

}  // namespace

int pool_start(int threads, const int* cpus, int ncpus) {
  if (threads < 1 || threads > 1024) return -1;
  PoolLock lock;
  State& s = state();
  std::vector<int> wanted(cpus, cpus + (ncpus > 0 ? ncpus : 0));
  if (s.pool && s.pool->count == threads && s.pool->cpus == wanted) return 0;
  delete s.pool;
  s.pool = new Pool(threads, wanted);
  return 0;
}

int pool_threads() {
  PoolLock lock;
  return pool().count;
}

int pool_threads_locked() { return pool().count; }

PoolLock::PoolLock() { state().mutex.lock(); }
PoolLock::~PoolLock() { state().mutex.unlock(); }

uint8_t* pool_scratch(size_t bytes) {
  Pool& p = pool();
  if (bytes > p.scratch_bytes) {
    std::free(p.scratch);
    p.scratch_bytes = (bytes + (bytes >> 2) + 4095) & ~size_t(4095);
    p.scratch = static_cast<uint8_t*>(std::aligned_alloc(4096, p.scratch_bytes));
    if (!p.scratch) p.scratch_bytes = 0;
  }
  return p.scratch;
}

void pool_run(Job job, const void* args, int threads) { pool().run(job, args, threads, 1); }
void pool_run_steps(Job job, const void* args, int threads, int steps) { pool().run(job, args, threads, steps); }

Team team_step(const Team& team, int step) { return team.count == 1 ? team : pool().step_of(team, step); }

void phase_wait(Phase& phase, uint32_t epoch, int64_t total) {
  for (int spins = 0; phase_count(__atomic_load_n(&phase.done, __ATOMIC_ACQUIRE), epoch) < total;) relax(spins);
}

}  // namespace tc
