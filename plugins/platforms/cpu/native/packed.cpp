// Memory of packed weights, and plain rows into panels. Runs once per weight, at load.
#include "packing.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "pool.h"

namespace tc {
namespace {

// Many weights are small; one arena chunk holds several, so that huge pages serve them all. A chunk goes when its last
// weight does.
struct Arena {
  uint8_t* base;
  size_t size, used;
  int live;
};

constexpr size_t kHuge = size_t(2) << 20;
constexpr size_t kArena = 16 * kHuge;

struct Arenas {
  std::mutex mutex;
  Arena* current = nullptr;
};

Arenas& arenas() {
  static Arenas one;
  return one;
}

void drop(Arena* arena) {
  std::free(arena->base);
  delete arena;
}

uint8_t* allocate(size_t bytes, void** owner) {
  bytes = (bytes + 127) & ~size_t(127);
  Arenas& all = arenas();
  std::lock_guard<std::mutex> guard(all.mutex);
  Arena* arena = all.current;
  if (!arena || arena->size - arena->used < bytes) {
    const size_t size = bytes > kArena / 2 ? (bytes + kHuge - 1) & ~(kHuge - 1) : kArena;
    auto* base = static_cast<uint8_t*>(std::aligned_alloc(kHuge, size));
    if (!base) return nullptr;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(base, size, MADV_HUGEPAGE);  // refusal costs speed only
#endif
    arena = new Arena{base, size, 0, 0};
    if (size == kArena) {
      if (all.current && all.current->live == 0) drop(all.current);
      all.current = arena;
    }
  }
  uint8_t* p = arena->base + arena->used;
  arena->used += bytes;
  arena->live++;
  *owner = arena;
  return p;
}

void let_go(void* owner) {
  Arenas& all = arenas();
  std::lock_guard<std::mutex> guard(all.mutex);
  auto* arena = static_cast<Arena*>(owner);
  if (--arena->live == 0) {
    if (arena == all.current) all.current = nullptr;
    drop(arena);
  }
}

struct PlainJob {
  Packed* packed;
  const uint8_t* rows;
  int64_t stride;
};

void plain_job(const void* args, Team& team) {
  const auto& job = *static_cast<const PlainJob*>(args);
  const Packed& w = *job.packed;
  team_for(team, 0, w.panels, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      uint8_t* panel = w.data + p * w.panel_bytes;
      std::memset(panel, 0, size_t(w.panel_bytes));
      for (int c = 0; c < kPanel && p * kPanel + c < w.n; c++) {
        const int64_t row = (p * kPanel + c) * job.stride;
        if (w.kind == kF32) {
          for (int64_t k = 0; k < w.k; k++) std::memcpy(panel + (k * kPanel + c) * 4, job.rows + (row + k) * 4, 4);
        } else {
          for (int64_t k = 0; k < w.k; k++)
            std::memcpy(panel + ((k / 2 * kPanel + c) * 2 + k % 2) * 2, job.rows + (row + k) * 2, 2);
        }
      }
    }
  });
}

}  // namespace

bool place(Packed& w) {
  w.panels = (w.n + kPanel - 1) / kPanel;
  w.bytes = size_t(w.panels) * size_t(w.panel_bytes) + (w.has_order ? size_t(w.k) * 4 : 0);
  w.data = allocate(w.bytes + kChunk, &w.arena);  // kernels prefetch a little past the end
  return w.data != nullptr;
}

void release(Packed& w) { let_go(w.arena); }

void put_codes(const Packed& w, uint8_t* unit, int column, const uint8_t* code) {
  for (int first = 0; first < w.unit; first += 32, code += 32) {
    uint8_t* run = unit + w.code_offset() + first / 32 * w.run_bytes() + 4 * column;
    for (int k = 0; k < 32; k++) {
      const int quad = k / 4, i = quad_place(k % 4);
      if (w.code_bits == 8) {
        run[quad * 128 + i] = code[k];
        continue;
      }
      run[quad % 4 * 128 + i] = uint8_t(run[quad % 4 * 128 + i] | (code[k] & 15) << (quad / 4 * 4));
      uint8_t& high = run[512 + (w.code_bits == 6 ? quad / 4 * 128 : 0) + i];
      if (w.code_bits == 5) high = uint8_t(high | (code[k] >> 4 & 1) << quad);
      if (w.code_bits == 6) high = uint8_t(high | (code[k] >> 4 & 3) << (2 * (quad % 4)));
    }
  }
}

Packed* pack_plain(int element, const void* rows, int64_t stride, int64_t n, int64_t k) {
  if (n < 1 || k < 1 || element < 0 || element > 2) return nullptr;
  auto* w = new Packed{};
  w->kind = element == 0 ? kF32 : element == 1 ? kBF16 : kF16;
  w->unit = w->sub = 2;
  w->block_type = -1;
  w->n = n;
  w->k = k;
  w->k_padded = (k + 1) / 2 * 2;
  w->panel_bytes = w->k_padded * kPanel * (element == 0 ? 4 : 2);
  if (!place(*w)) {
    delete w;
    return nullptr;
  }
  const PlainJob job{w, static_cast<const uint8_t*>(rows), stride};
  PoolLock lock;
  pool_run(plain_job, &job, 1 << 30);
  return w;
}

Packed* place_packed(const Packed& header) {
  if (header.n < 1 || header.k < 1 || header.panel_bytes < 1 || header.panels != (header.n + kPanel - 1) / kPanel) return nullptr;
  if (header.panel_bytes > (int64_t(1) << 46) / header.panels) return nullptr;
  auto* w = new Packed(header);
  if (!place(*w) || w->bytes != header.bytes) {
    if (w->data) release(*w);
    delete w;
    return nullptr;
  }
  return w;
}

void free_packed(Packed* packed) {
  if (!packed) return;
  release(*packed);
  delete packed;
}

}  // namespace tc
