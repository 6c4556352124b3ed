// Packed weights: what `pack` makes of a checkpoint's rows and what every linear kernel reads.
//
// A weight [N, K] is cut into panels of 32 output columns (rows of W); a panel is one contiguous stream along K, so a
// thread that owns a panel reads memory in order. Three kinds:
//
//   kF32    [K][32] float
//   kBF16   [K/2][32][2] bf16: the pairs along K that a bf16 dot product takes (K padded to even with zeros)
//   kCodes  units of `unit` values along K. A unit holds, for its 32 columns: d, if `has_low` the offset m (both float16, or
//           float32 if `wide_scales`), if `has_sub` for each group of `sub` values an int8 scale and, if `has_low`, a uint8
//           offset; then the codes. A value is d * s * c + m, or d * s * c - m * o with group scales s and offsets o, where
//           c is what the unsigned code stands for (`code_value`). Codes come in runs of 32 values, in quads along K as
//           byte dot products take them, each quad in the order 0 2 1 3, so that its even and its odd bytes are the pairs
//           of a bf16 dot product. 8 bits: [8][32][4]. Fewer: the low four bits [4][32][4], where a byte of line g belongs
//           to quad g (low half) and quad g + 4 (high half); then the bits above: for 5-bit codes [32][4], where bit j
//           belongs to quad j; for 6-bit codes [2][32][4], where bits 2(j mod 4) of set j / 4 do.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tc {

constexpr int kPanel = 32;   // output columns of a panel
constexpr int kChunk = 256;  // values along K that are decoded at a time; a multiple of every unit

enum WeightKind : int { kF32 = 0, kBF16 = 1, kCodes = 2 };
enum CodeTable : int { kPlain = 0, kMinus8 = 1, kMinus16 = 2, kMinus32 = 3, kIQ4 = 4, kMinus128 = 5 };

struct Packed {
  int kind;
  int code_bits;
  int table;
  int unit;
  int sub;
  int has_low;
  int has_sub;
  int wide_scales;
  int block_type;        // ggml's number, -1 for plain weights
  int64_t n, k;          // as the model sees them
  int64_t k_padded;      // whole units (or pairs)
  int64_t panels;
  int64_t unit_bytes;
  int64_t panel_bytes;
  size_t bytes;
  uint8_t* data;
  void* arena;

  const uint8_t* panel(int64_t p) const { return data + p * panel_bytes; }
  int64_t units() const { return k_padded / unit; }
  int64_t scale_bytes() const { return int64_t(kPanel) * (wide_scales ? 4 : 2); }
  int64_t low_offset() const { return scale_bytes(); }
  int64_t sub_offset() const { return scale_bytes() * (has_low ? 2 : 1); }
  int64_t sub_low_offset() const { return sub_offset() + int64_t(unit / sub) * kPanel; }
  int64_t code_offset() const { return sub_offset() + (has_sub ? int64_t(unit / sub) * kPanel * (has_low ? 2 : 1) : 0); }
  int64_t run_bytes() const { return int64_t(32) * kPanel * code_bits / 8; }  // 32 values of a panel
};

constexpr int kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// What to add to a code; not for kIQ4, which is a table.
constexpr int code_offset_of(int table) {
  return table == kMinus8 ? -8 : table == kMinus16 ? -16 : table == kMinus32 ? -32 : table == kMinus128 ? -128 : 0;
}
constexpr int code_value(int table, int code) { return table == kIQ4 ? kIQ4Values[code & 15] : code + code_offset_of(table); }

// Where value i of a quad stands in it.
constexpr int quad_place(int i) { return i == 1 ? 2 : i == 2 ? 1 : i; }

// Code number `k` (within the unit) of a column.
static inline int code_at(const Packed& w, const uint8_t* unit, int column, int k) {
  const uint8_t* run = unit + w.code_offset() + k / 32 * w.run_bytes() + 4 * column + quad_place(k % 4);
  const int quad = k % 32 / 4;
  if (w.code_bits == 8) return run[quad * 128];
  const int low = (run[quad % 4 * 128] >> (quad / 4 * 4)) & 15;
  if (w.code_bits == 5) return low | ((run[512] >> quad) & 1) << 4;
  if (w.code_bits == 6) return low | ((run[512 + quad / 4 * 128] >> (2 * (quad % 4))) & 3) << 4;
  return low;
}

// ggml's numbers of the block formats.
enum BlockType : int {
  kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14,
  kIQ4_NL = 20, kIQ4_XS = 23,
};

// Null if the format is unknown, K is no whole number of blocks, or there is no memory.
Packed* pack_blocks(int block_type, const uint8_t* rows, int64_t row_bytes, int64_t n, int64_t k);
// `element`: 0 float32, 1 bfloat16; `stride` in elements between rows.
Packed* pack_plain(int element, const void* rows, int64_t stride, int64_t n, int64_t k);
void free_packed(Packed* packed);
// Memory for a weight that was packed before, as `header` describes it; null if that is not one, or there is no memory.
Packed* place_packed(const Packed& header);

}  // namespace tc
