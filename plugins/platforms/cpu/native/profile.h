// Time by kernel, counted while somebody has asked for it; else it costs one look at a flag for each call.
//
// Owns the counters. They belong to the process, like the pool; whoever holds a PoolLock writes them.
#pragma once
#include "program.h"

namespace tc {

// What one kind of call took; a linear's calls are told apart by the shape and the format of its weight.
struct ProfileRow {
  char op[16];
  int64_t n, k;           // of a linear's weight
  int64_t block_type;     // ggml's number of its format; -1: plain
  int64_t bits;           // a value
  int64_t calls, ns;
  int64_t rows;           // of all calls
  int64_t weight_bytes;   // of all calls: what they read of weights
};

bool profiling();
int64_t profile_clock();  // nanoseconds
void profile_add(Op op, const void* args, int64_t began);

// Runs f, and counts its time if somebody has asked.
template <typename F>
inline void profiled(Op op, const void* args, F f) {
  if (!profiling()) return f();
  const int64_t began = profile_clock();
  f();
  profile_add(op, args, began);
}

}  // namespace tc
