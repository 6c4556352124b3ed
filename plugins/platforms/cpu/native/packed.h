// Packed weights: what `pack` makes of a checkpoint's rows and what every linear kernel reads.
//
// A weight [N, K] is cut into panels of 32 output columns (rows of W); a panel is one contiguous stream along K, so a
// thread that owns a panel reads memory in order. Three kinds:
//
//   kF32    [K][32] float
//   kBF16   [K/2][32][2] bf16: the pairs along K that a bf16 dot product takes (K padded to even with zeros)
//   kCodes  units of `unit` values along K. A unit holds, for its 32 columns: d (float16), if `has_low` the offset m
//           (float16), if `has_sub` for each group of `sub` values an int8 scale and, if `has_low`, a uint8 offset; then
//           the codes. A value is d * s * c + m, or d * s * c - m * o with group scales s and offsets o, where c is what
//           the code stands for (`code_value`). 8-bit codes: [unit/2][32][2] int8. Fewer bits come in runs of 32 values:
//           the low four bits [4][2][32] uint16, where nibble t of word 2j + p of half h of octet i is value 8i + 2t + p
//           of column 16h + j; then the bits above. For 5-bit codes [2][32] uint16, where bit 4i + t of a word belongs to
//           that value; for 6-bit codes [2][2][32] uint16, where it is bits 2(4i + t mod 8) of word set (4i + t) / 8.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tc {

constexpr int kPanel = 32;   // output columns of a panel
constexpr int kChunk = 256;  // values along K that are decoded at a time; a multiple of every unit

enum WeightKind : int { kF32 = 0, kBF16 = 1, kCodes = 2 };
enum CodeTable : int { kPlain = 0, kMinus8 = 1, kMinus16 = 2, kMinus32 = 3, kIQ4 = 4 };

struct Packed {
  int kind;
  int code_bits;
  int table;
  int unit;
  int sub;
  int has_low;
  int has_sub;
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
  int64_t d_offset() const { return 0; }
  int64_t low_offset() const { return 64; }
  int64_t sub_offset() const { return has_low ? 128 : 64; }
  int64_t sub_low_offset() const { return sub_offset() + int64_t(unit / sub) * kPanel; }
  int64_t code_offset() const {
    return sub_offset() + (has_sub ? int64_t(unit / sub) * kPanel * (has_low ? 2 : 1) : 0);
  }
  int64_t run_bytes() const { return int64_t(32) * kPanel * code_bits / 8; }  // 32 values of a panel
};

constexpr int kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// What to add to a code; not for kIQ4, which is a table.
constexpr int code_offset_of(int table) { return table == kMinus8 ? -8 : table == kMinus16 ? -16 : table == kMinus32 ? -32 : 0; }
constexpr int code_value(int table, int code) { return table == kIQ4 ? kIQ4Values[code & 15] : code + code_offset_of(table); }

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

}  // namespace tc
