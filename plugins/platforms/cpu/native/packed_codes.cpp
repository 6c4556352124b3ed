// Codes with scales apart, as quantization methods canonicalise them, into panels.
//
// What a kernel multiplies is the format's value: scales keep their type, those that are powers of two become bfloat16, and
// a scale under a global one stays a byte beside it. Groups longer than a unit repeat their scale in each of their units.
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "packing.h"
#include "pool.h"

namespace tc {
namespace {

struct CodesJob {
  Packed* packed;
  const CodesArgs* from;
  std::atomic<bool>* strange;
};

uint16_t u16_at(const void* base, int64_t i) {
  uint16_t x;
  std::memcpy(&x, static_cast<const uint8_t*>(base) + 2 * i, 2);
  return x;
}

float f32_at(const void* base, int64_t i) {
  float x;
  std::memcpy(&x, static_cast<const uint8_t*>(base) + 4 * i, 4);
  return x;
}

// 2^(e - 127 - halvings) as bfloat16, exactly: the smallest are subnormal.
uint16_t power_of_two(int e, int halvings) {
  const int exponent = e - halvings;
  return exponent > 0 ? uint16_t(exponent << 7) : uint16_t(0x40 >> -exponent);
}

bool finite_code(int table, int code) {
  return table == kE4M3 ? (code & 127) != 127 : table != kE5M2 || (code & 127) < 124;
}

// Writes the scale of group `g` of row `row` for a column of a unit; false if it is not finite.
bool put_scale(const CodesArgs& a, const Packed& w, uint8_t* unit, int column, int64_t row, int64_t g) {
  const int64_t at = row * a.scale_stride + g;
  const bool halved = w.table == kE2M1;  // its codes stand for twice their values
  switch (a.stored_scale) {
    case kStoredF16:
    case kStoredBF16: {
      const uint16_t d = u16_at(a.scales, at), top = a.stored_scale == kStoredF16 ? 0x7c00 : 0x7f80;
      std::memcpy(unit + 2 * column, &d, 2);
      return (d & top) != top;
    }
    case kStoredE8M0: {
      const int e = static_cast<const uint8_t*>(a.scales)[at];
      const uint16_t d = power_of_two(e, halved ? 1 : 0);
      std::memcpy(unit + 2 * column, &d, 2);
      return e != 255;
    }
    case kStoredE4M3: {
      const float d = a.global_scales[row] * (halved ? 0.5f : 1.f);
      std::memcpy(unit + 4 * column, &d, 4);
      bool fine = std::isfinite(d);
      for (int s = 0; s < w.unit / w.sub; s++) {
        if ((g + s) * w.sub >= w.k) break;  // beyond the row
        const uint8_t scale = static_cast<const uint8_t*>(a.scales)[at + s];
        unit[w.sub_offset() + s * kPanel + column] = scale;
        fine &= finite_code(kE4M3, scale);
      }
      return fine;
    }
    default: {
      const float d = f32_at(a.scales, at);
      std::memcpy(unit + 4 * column, &d, 4);
      return std::isfinite(d);
    }
  }
}

// Codes [k0, k0 + unit) of a row, as a panel holds them; zeros of no consequence beyond its end. False if one is not finite.
bool read_codes(const CodesArgs& a, const Packed& w, int64_t row, int64_t k0, uint8_t* code) {
  const int count = int(w.k - k0 < w.unit ? w.k - k0 : w.unit);
  const uint8_t* from = a.codes + row * a.code_stride;
  bool fine = true;
  for (int i = 0; i < count; i++) {
    const int64_t k = k0 + i;
    const int stored = w.code_bits == 4 ? (from[k / 2] >> (k % 2 * 4)) & 15 : from[k];
    fine &= finite_code(a.table, stored);
    code[i] = uint8_t(a.table == kMinus128 && !a.zeros ? stored ^ 0x80 : stored);
  }
  std::memset(code + count, 0, size_t(w.unit - count));
  return fine;
}

void codes_job(const void* args, Team& team) {
  const auto& job = *static_cast<const CodesJob*>(args);
  const Packed& w = *job.packed;
  const CodesArgs& a = *job.from;
  team_for(team, 0, w.panels, [&](int64_t begin, int64_t end) {
    uint8_t code[kChunk];
    bool fine = true;
    for (int64_t p = begin; p < end; p++) {
      uint8_t* panel = w.data + p * w.panel_bytes;
      std::memset(panel, 0, size_t(w.panel_bytes));
      for (int c = 0; c < kPanel && p * kPanel + c < w.n; c++) {
        const int64_t row = p * kPanel + c;
        for (int64_t i = 0; i < w.units(); i++) {
          uint8_t* unit = panel + i * w.unit_bytes;
          const int64_t k0 = i * w.unit, g = a.group ? k0 / a.group : 0;
          fine &= put_scale(a, w, unit, c, row, g);
          if (a.zeros) unit[w.low_offset() + c] = a.zeros[row * a.zero_stride + g];
          fine &= read_codes(a, w, row, k0, code);
          put_codes(w, unit, c, code);
        }
      }
    }
    if (!fine) job.strange->store(true, std::memory_order_relaxed);
  });
}

int64_t common(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Values of a unit: those that one scale serves, at most a chunk, and no more padding at a row's end than runs need.
int unit_of(const CodesArgs& a) {
  const int64_t group = a.stored_scale == kStoredE4M3 || a.group == 0 ? kChunk : a.group;
  return int(common(common(kChunk, group), (a.k + 31) / 32 * 32));
}

// Whether an order names every column once.
bool is_order(const int32_t* order, int64_t k) {
  std::vector<bool> seen(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; i++) {
    if (order[i] < 0 || order[i] >= k || seen[size_t(order[i])]) return false;
    seen[size_t(order[i])] = true;
  }
  return true;
}

}  // namespace

bool codes_fit(const CodesArgs& a) {
  const bool four = a.table == kMinus8 || a.table == kE2M1;
  if (!four && a.table != kMinus128 && !float_exponent(a.table)) return false;
  if (a.n < 1 || a.k < 1 || a.group < 0 || a.stored_scale < kStoredF16 || a.stored_scale > kStoredE4M3) return false;
  if (a.zeros && a.table != kMinus8 && a.table != kMinus128) return false;
  if (a.table == kE2M1 && a.stored_scale != kStoredE8M0 && a.stored_scale != kStoredE4M3) return false;
  if ((a.stored_scale == kStoredE4M3) != (a.global_scales != nullptr)) return false;
  if (a.stored_scale == kStoredE4M3) return a.table == kE2M1 && a.group == 16;
  return a.group % 32 == 0;
}

Packed* pack_codes(const CodesArgs& a, bool* strange) {
  *strange = false;
  if (!codes_fit(a)) return nullptr;
  auto* w = new Packed{};
  w->kind = kCodes;
  w->code_bits = a.table == kMinus8 || a.table == kE2M1 ? 4 : 8;
  w->table = a.zeros && a.table == kMinus8 ? int(kPlain) : a.table;
  w->unit = unit_of(a);
  w->sub = a.stored_scale == kStoredE4M3 ? 16 : 32;
  w->has_low = a.zeros ? kLowZero : kNoLow;
  w->has_sub = a.stored_scale == kStoredE4M3 ? kGroupE4M3 : kNoGroup;
  w->scale = a.stored_scale == kStoredF16                                      ? kScaleF16
             : a.stored_scale == kStoredBF16 || a.stored_scale == kStoredE8M0 ? kScaleBF16
                                                                              : kScaleF32;
  w->token_rows = a.token_rows && a.table == kMinus128 && !a.zeros && (a.group == 0 || a.group >= a.k);
  w->has_order = a.order != nullptr;
  w->block_type = -1;
  w->n = a.n;
  w->k = a.k;
  w->k_padded = (a.k + w->unit - 1) / w->unit * w->unit;
  w->unit_bytes = w->code_offset() + int64_t(w->unit) * kPanel * w->code_bits / 8;
  w->panel_bytes = w->units() * w->unit_bytes;
  if (!place(*w)) {
    delete w;
    return nullptr;
  }
  if (a.order) {
    if (!is_order(a.order, a.k)) *strange = true;
    std::memcpy(w->data + w->panels * w->panel_bytes, a.order, size_t(a.k) * 4);
  }
  std::atomic<bool> odd{*strange};
  const CodesJob job{w, &a, &odd};
  {
    PoolLock lock;
    pool_run(codes_job, &job, 1 << 30);
  }
  *strange = odd.load();
  return w;
}

}  // namespace tc
