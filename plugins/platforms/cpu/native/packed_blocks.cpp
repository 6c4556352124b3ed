// Rows of llama.cpp's blocks into panels.
#include <cstring>

#include "packing.h"
#include "pool.h"

namespace tc {
namespace {

inline uint16_t u16(const uint8_t* p) { return uint16_t(p[0] | (p[1] << 8)); }

// One row's values of one unit: code as stored in the panel, scales and offsets of its groups.
struct Unit {
  uint16_t d, low;
  int8_t scale[16];
  uint8_t sub_low[16];
  uint8_t code[256];
};

void six_bit_pairs(const uint8_t* p, Unit& u) {
  for (int j = 0; j < 4; j++) {
    u.scale[j] = int8_t(p[j] & 63);
    u.sub_low[j] = p[j + 4] & 63;
    u.scale[j + 4] = int8_t((p[j + 8] & 15) | ((p[j] >> 6) << 4));
    u.sub_low[j + 4] = uint8_t((p[j + 8] >> 4) | ((p[j + 4] >> 6) << 4));
  }
}

void nibbles32(const uint8_t* p, uint8_t* code) {
  for (int i = 0; i < 16; i++) {
    code[i] = uint8_t(p[i] & 15);
    code[i + 16] = uint8_t(p[i] >> 4);
  }
}

void read_unit(int type, const uint8_t* p, Unit& u) {
  switch (type) {
    case kQ4_0:
    case kIQ4_NL:
      u.d = u16(p);
      nibbles32(p + 2, u.code);
      return;
    case kQ4_1:
      u.d = u16(p);
      u.low = u16(p + 2);
      nibbles32(p + 4, u.code);
      return;
    case kQ5_0:
    case kQ5_1: {
      const bool one = type == kQ5_1;
      u.d = u16(p);
      if (one) u.low = u16(p + 2);
      const uint8_t* high = p + (one ? 4 : 2);
      nibbles32(high + 4, u.code);
      for (int i = 0; i < 32; i++) u.code[i] = uint8_t(u.code[i] | (((high[i / 8] >> (i % 8)) & 1) << 4));
      return;
    }
    case kQ8_0:
      u.d = u16(p);
      for (int i = 0; i < 32; i++) u.code[i] = uint8_t(p[2 + i] ^ 0x80);  // stored with an offset of 128
      return;
    case kQ2_K:
      for (int g = 0; g < 16; g++) {
        u.scale[g] = int8_t(p[g] & 15);
        u.sub_low[g] = p[g] >> 4;
      }
      for (int i = 0; i < 256; i++) u.code[i] = uint8_t((p[16 + 32 * (i / 128) + i % 32] >> (2 * ((i % 128) / 32))) & 3);
      u.d = u16(p + 80);
      u.low = u16(p + 82);
      return;
    case kQ3_K:
      for (int i = 0; i < 256; i++) {
        const int low = (p[32 + 32 * (i / 128) + i % 32] >> (2 * ((i % 128) / 32))) & 3;
        const int set = (p[i % 32] >> (i / 32)) & 1;
        u.code[i] = uint8_t(low + (set ? 0 : -4) + 8);  // stored with an offset of 8, as the table kMinus8 reads it
      }
      for (int g = 0; g < 16; g++) {
        const int low = g < 8 ? p[96 + g] & 15 : p[96 + g - 8] >> 4;
        const int high = (p[104 + g % 4] >> (2 * (g / 4))) & 3;
        u.scale[g] = int8_t((low | (high << 4)) - 32);
      }
      u.d = u16(p + 108);
      return;
    case kQ4_K:
    case kQ5_K: {
      u.d = u16(p);
      u.low = u16(p + 2);
      six_bit_pairs(p + 4, u);
      const uint8_t* high = p + 16;
      const uint8_t* low = p + (type == kQ5_K ? 48 : 16);
      for (int i = 0; i < 256; i++) {
        const int byte = low[32 * (i / 64) + i % 32], nibble = i % 64 < 32 ? byte & 15 : byte >> 4;
        u.code[i] = uint8_t(type == kQ5_K ? nibble | (((high[i % 32] >> (i / 32)) & 1) << 4) : nibble);
      }
      return;
    }
    case kQ6_K:
      for (int i = 0; i < 256; i++) {
        const int half = i / 128, within = i % 128;
        const int byte = p[64 * half + within % 64], nibble = within < 64 ? byte & 15 : byte >> 4;
        const int high = (p[128 + 32 * half + within % 32] >> (2 * (within / 32))) & 3;
        u.code[i] = uint8_t(nibble | (high << 4));
      }
      std::memcpy(u.scale, p + 192, 16);
      u.d = u16(p + 208);
      return;
    case kIQ4_XS:
      u.d = u16(p);
      for (int g = 0; g < 8; g++) {
        const int low = (p[4 + g / 2] >> (4 * (g % 2))) & 15, high = (u16(p + 2) >> (2 * g)) & 3;
        u.scale[g] = int8_t((low | (high << 4)) - 32);
        nibbles32(p + 8 + 16 * g, u.code + 32 * g);
      }
      return;
    default:
      return;
  }
}

struct Format {
  int type, values, bytes, code_bits, table, sub, has_low, has_sub;
};

constexpr Format kFormats[] = {
    {kQ4_0, 32, 18, 4, kMinus8, 32, 0, 0},   {kQ4_1, 32, 20, 4, kPlain, 32, 1, 0},
    {kQ5_0, 32, 22, 5, kMinus16, 32, 0, 0},  {kQ5_1, 32, 24, 5, kPlain, 32, 1, 0},
    {kQ8_0, 32, 34, 8, kMinus128, 32, 0, 0},    {kQ2_K, 256, 84, 4, kPlain, 16, 1, 1},
    {kQ3_K, 256, 110, 4, kMinus8, 16, 0, 1}, {kQ4_K, 256, 144, 4, kPlain, 32, 1, 1},
    {kQ5_K, 256, 176, 5, kPlain, 32, 1, 1},  {kQ6_K, 256, 210, 6, kMinus32, 16, 0, 1},
    {kIQ4_NL, 32, 18, 4, kIQ4, 32, 0, 0},    {kIQ4_XS, 256, 136, 4, kIQ4, 32, 0, 1},
};

struct BlocksJob {
  Packed* packed;
  const uint8_t* rows;
  int64_t row_bytes;
  int block_bytes;
};

// Fills a column of a unit whose memory is zero.
void put_unit(const Packed& w, uint8_t* unit, int column, const Unit& u) {
  std::memcpy(unit + 2 * column, &u.d, 2);
  if (w.has_low) std::memcpy(unit + w.low_offset() + 2 * column, &u.low, 2);
  if (w.has_sub)
    for (int g = 0; g < w.unit / w.sub; g++) {
      unit[w.sub_offset() + g * kPanel + column] = uint8_t(u.scale[g]);
      if (w.has_low) unit[w.sub_low_offset() + g * kPanel + column] = u.sub_low[g];
    }
  put_codes(w, unit, column, u.code);
}

void blocks_job(const void* args, Team& team) {
  const auto& job = *static_cast<const BlocksJob*>(args);
  const Packed& w = *job.packed;
  team_for(team, 0, w.panels, [&](int64_t begin, int64_t end) {
    Unit u = {};
    for (int64_t p = begin; p < end; p++) {
      uint8_t* panel = w.data + p * w.panel_bytes;
      std::memset(panel, 0, size_t(w.panel_bytes));
      for (int c = 0; c < kPanel && p * kPanel + c < w.n; c++) {
        const uint8_t* row = job.rows + (p * kPanel + c) * job.row_bytes;
        for (int64_t i = 0; i < w.units(); i++) {
          read_unit(w.block_type, row + i * job.block_bytes, u);
          put_unit(w, panel + i * w.unit_bytes, c, u);
        }
      }
    }
  });
}

}  // namespace

Packed* pack_blocks(int block_type, const uint8_t* rows, int64_t row_bytes, int64_t n, int64_t k) {
  for (const Format& f : kFormats) {
    if (f.type != block_type) continue;
    if (n < 1 || k < 1 || k % f.values || row_bytes < k / f.values * f.bytes) return nullptr;
    auto* w = new Packed{};
    w->kind = kCodes;
    w->code_bits = f.code_bits;
    w->table = f.table;
    w->unit = f.values;
    w->sub = f.sub;
    w->has_low = f.has_low;
    w->has_sub = f.has_sub;
    w->block_type = block_type;
    w->n = n;
    w->k = w->k_padded = k;
    w->unit_bytes = w->code_offset() + int64_t(w->unit) * kPanel * w->code_bits / 8;
    w->panel_bytes = w->units() * w->unit_bytes;
    if (!place(*w)) {
      delete w;
      return nullptr;
    }
    const BlocksJob job{w, rows, row_bytes, f.bytes};
    PoolLock lock;
    pool_run(blocks_job, &job, 1 << 30);
    return w;
  }
  return nullptr;
}

}  // namespace tc
