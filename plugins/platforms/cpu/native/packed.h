// Packed weights: what `pack` makes of a checkpoint's rows and what every linear kernel reads.
//
// A weight [N, K] is cut into panels of 32 output columns (rows of W); a panel is one contiguous stream along K, so a
// thread that owns a panel reads memory in order. Kinds:
//
//   kF32    [K][32] float
//   kBF16   [K/2][32][2] bf16: the pairs along K that a bf16 dot product takes (K padded to even with zeros)
//   kF16    the same with float16
//   kCodes  units of `unit` values along K (padded to whole ones). A unit holds, for its 32 columns: a scale d of type
//           `scale`; if `has_low` is kLowScale an offset m of that type, if it is kLowZero a zero point z of a byte; if there
//           are group scales (`has_sub`), for each `sub` values one of a byte and, if `has_low`, a uint8 offset; then, at a
//           whole cache line, the codes. A value is d * c, d * c + m or d * (c - z), with group scales s and offsets o d * s * c or
//           d * s * c - m * o, where c is what the unsigned code stands for (`code_value`); of zero points the code itself.
//           Codes come in runs of 32 values, in quads along K as byte dot products take them, each quad in the order
//           0 2 1 3, so that its even and its odd bytes are the pairs of a bf16 dot product. 8 bits: [8][32][4]. Fewer: the
//           low four bits [4][32][4], where a byte of line g belongs to quad g (low half) and quad g + 4 (high half); then
//           the bits above: for 5-bit codes [32][4], where bit j belongs to quad j; for 6-bit codes [2][32][4], where bits
//           2(j mod 4) of set j / 4 do.
//
// A weight with an order of its columns keeps it behind the panels: int32 [K], where value j of a row is meant for x[order[j]].
#pragma once
#include <cstddef>
#include <cstdint>

namespace tc {

constexpr int kPanel = 32;   // output columns of a panel
constexpr int kChunk = 256;  // values along K that are decoded at a time; a multiple of every unit

enum WeightKind : int { kF32 = 0, kBF16 = 1, kCodes = 2, kF16 = 3 };
// What codes stand for: themselves less a number, an entry of a table of bytes, or an 8-bit float. kE2M1 is the 4-bit float
// times two, which makes it an integer.
enum CodeTable : int { kPlain = 0, kMinus8 = 1, kMinus16 = 2, kMinus32 = 3, kIQ4 = 4, kMinus128 = 5, kE2M1 = 6, kE4M3 = 7, kE5M2 = 8 };
enum ScaleType : int { kScaleF16 = 0, kScaleF32 = 1, kScaleBF16 = 2 };
enum LowType : int { kNoLow = 0, kLowScale = 1, kLowZero = 2 };
enum GroupType : int { kNoGroup = 0, kGroupInt8 = 1, kGroupE4M3 = 2 };

struct Packed {
  int kind;
  int code_bits;
  int table;
  int unit;
  int sub;
  int has_low;           // LowType
  int has_sub;           // GroupType
  int scale;             // ScaleType
  int token_rows;        // activations may be rounded with one scale a row: signed bytes, one scale a column
  int has_order;
  int block_type;        // ggml's number, -1 for everything else
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
  int64_t scale_bytes() const { return int64_t(kPanel) * (scale == kScaleF32 ? 4 : 2); }
  int64_t low_bytes() const { return has_low == kLowScale ? scale_bytes() : has_low == kLowZero ? kPanel : 0; }
  int64_t low_offset() const { return scale_bytes(); }
  int64_t sub_offset() const { return scale_bytes() + low_bytes(); }
  int64_t sub_bytes() const { return has_sub ? int64_t(unit / sub) * kPanel : 0; }
  int64_t sub_low_offset() const { return sub_offset() + sub_bytes(); }
  int64_t code_offset() const { return (sub_offset() + sub_bytes() * (has_low ? 2 : 1) + 63) & ~int64_t(63); }
  int64_t run_bytes() const { return int64_t(32) * kPanel * code_bits / 8; }  // 32 values of a panel
  const int32_t* order() const { return reinterpret_cast<const int32_t*>(data + panels * panel_bytes); }
};

constexpr int kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kE2M1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr bool has_byte_table(int table) { return table == kIQ4 || table == kE2M1; }
constexpr int byte_value(int table, int code) { return (table == kIQ4 ? kIQ4Values : kE2M1Values)[code & 15]; }

// Exponent bits of the 8-bit float that codes are, or 0.
constexpr int float_exponent(int table) { return table == kE4M3 ? 4 : table == kE5M2 ? 5 : 0; }

// What to add to a code; not for tables and floats.
constexpr int code_offset_of(int table) {
  return table == kMinus8 ? -8 : table == kMinus16 ? -16 : table == kMinus32 ? -32 : table == kMinus128 ? -128 : 0;
}
// Not for floats.
constexpr int code_value(int table, int code) {
  return has_byte_table(table) ? byte_value(table, code) : code + code_offset_of(table);
}

// An 8-bit float that is finite.
inline float float8_value(int exponent_bits, int code) {
  const int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (code & 127) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const int whole = exponent ? mantissa | (1 << mantissa_bits) : mantissa;
  const int power = (exponent ? exponent : 1) - bias - mantissa_bits;
  const float magnitude = power < 0 ? float(whole) / float(1 << -power) : float(whole) * float(1 << power);
  return code & 128 ? -magnitude : magnitude;
}

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
// `element`: 0 float32, 1 bfloat16, 2 float16; `stride` in elements between rows.
Packed* pack_plain(int element, const void* rows, int64_t stride, int64_t n, int64_t k);

// Scales as a checkpoint stores them.
enum StoredScale : int { kStoredF16 = 0, kStoredF32 = 1, kStoredBF16 = 2, kStoredE8M0 = 3, kStoredE4M3 = 4 };

// Codes with scales apart. Rows of codes are bytes, or two 4-bit codes a byte, the lower first; `group` values along K share a
// scale (0: all). Strides are in elements.
struct CodesArgs {
  const uint8_t* codes;
  const void* scales;
  const uint8_t* zeros;        // null: none
  const float* global_scales;  // one a row, with kStoredE4M3 only
  const int32_t* order;        // null: none
  int64_t code_stride, scale_stride, zero_stride;
  int64_t n, k, group;
  int table;  // kMinus8, kMinus128 (codes signed if there are no zero points), kE2M1, kE4M3 or kE5M2
  int stored_scale;
  int token_rows;  // activations were meant to be int8 with one scale a row
};
bool codes_fit(const CodesArgs& args);
// Null if the arguments fit no format or there is no memory. `strange`: a code or scale that is not finite was met, or an
// order that is none; the weight is no good then.
Packed* pack_codes(const CodesArgs& args, bool* strange);
void free_packed(Packed* packed);
// Memory for a weight that was packed before, as `header` describes it; null if that is not one, or there is no memory.
Packed* place_packed(const Packed& header);

}  // namespace tc
