// Packed weights back to numbers, bit for bit the values of their format: the exact drivers and embedding rows.

// The entries of a table of bytes for four bits, with 128 added or signed.
struct ByteTable {
  uint8_t at[16];
  constexpr ByteTable(int table, int offset) : at() {
    for (int i = 0; i < 16; i++) at[i] = uint8_t(byte_value(table, i) + offset);
  }
};
static constexpr ByteTable kIQ4Unsigned(kIQ4, 128), kIQ4Signed(kIQ4, 0), kE2M1Unsigned(kE2M1, 128), kE2M1Signed(kE2M1, 0);

TC_INLINE const uint8_t* byte_table(const Packed& w, bool as_signed) {
  if (w.table == kIQ4) return as_signed ? kIQ4Signed.at : kIQ4Unsigned.at;
  return as_signed ? kE2M1Signed.at : kE2M1Unsigned.at;
}

// Finite 8-bit floats in the low bytes of lanes. They are the upper bits of wider floats but for the exponent's bias.
template <int EXPONENT>
TC_INLINE vf float8_lanes(vi bytes) {
  const vi magnitude = vleft_lanes(vand_bits(bytes, vset_bits(127)), EXPONENT == 4 ? 20 : 21);
  const vf v = vbits_float(magnitude) * vset(EXPONENT == 4 ? 0x1p120f : 0x1p112f);
  return vbits_float(vor_bits(vfloat_bits(v), vleft_lanes(vand_bits(bytes, vset_bits(128)), 24)));
}

// What a code is made a number by: an integer, an entry of a table, or a float of so many exponent bits.
enum CodeKind : int { kInteger = 0, kTabled = 1, kFloatE4 = 4, kFloatE5 = 5 };

// Columns [column, column + kWidth) of a group of values, decoded: out [sub][32]. `scale`, `first` (added to integers) and
// `offset` are of these columns.
template <int BITS, int KIND>
static void decode_group(const Packed& w, const uint8_t* unit, int group, int column, vf scale, vf first, vf offset, float* out) {
  const bool has_offset = w.has_low == kLowScale;
  const uint8_t* table = byte_table(w, false);
  for (int k = group * w.sub; k < (group + 1) * w.sub; k += 4) {
    const uint8_t* run = unit + w.code_offset() + k / 32 * w.run_bytes() + 4 * column;
    const int quad = k % 32 / 4;
    const vi line = vload_bits(run + (BITS == 8 ? quad : quad % 4) * 128);
    vi code = BITS == 8 ? line : vand_bits(vright_lanes(line, quad / 4 * 4), vset_bits(0x0f0f0f0f));
    if (BITS == 5 || BITS == 6) {
      const vi high = vload_bits(run + 512 + (BITS == 6 ? quad / 4 * 128 : 0));
      const vi above = vright_lanes(high, BITS == 5 ? quad : 2 * (quad % 4));
      code = vor_bits(code, vleft<4>(vand_bits(above, vset_bits(BITS == 5 ? 0x01010101 : 0x03030303))));
    }
    if (KIND == kTabled) code = vbytes_of(table, code);
    for (int i = 0; i < 4; i++, out += kPanel) {
      const vi bytes = vand_bits(vright_lanes(code, 8 * quad_place(i)), vset_bits(255));
      const vf v = scale * (KIND == kFloatE4 || KIND == kFloatE5 ? float8_lanes<KIND>(bytes) : vfloat(bytes) + first);
      vstore(out + column, has_offset ? v + offset : v);
    }
  }
}

// Scales, or offsets, of a unit's columns [column, column + kWidth). Kernels of llama.cpp's formats know more than others
// (ANY false): scales are float16, offsets too, and group scales int8.
template <bool ANY>
TC_INLINE vf load_scales(const Packed& w, const uint8_t* at, int column) {
  const auto* narrow = reinterpret_cast<const uint16_t*>(at) + column;
  if (!ANY || w.scale == kScaleF16) return vload_half(narrow);
  if (w.scale == kScaleBF16) return vload(narrow);
  return vload(reinterpret_cast<const float*>(at) + column);
}

// The offsets of a unit's columns whose scales are `d`, where codes are taken less `base` and there are no group scales.
template <bool ANY>
TC_INLINE vf load_lows(const Packed& w, const uint8_t* unit, int column, vf d, float base) {
  if (!ANY || w.has_low == kLowScale) return load_scales<ANY>(w, unit + w.low_offset(), column);
  return d * (vset(base) - vload_unsigned(unit + w.low_offset() + column));
}

// Scales of a group of values.
template <bool ANY>
TC_INLINE vf load_group_scales(const Packed& w, const uint8_t* at) {
  return ANY && w.has_sub == kGroupE4M3 ? vload_e4m3(at) : vload_signed(at);
}

static bool is_block_format(const Packed& w) { return w.block_type >= 0; }

// One unit of codes to float32 [unit][32].
static void decode_unit(const Packed& w, const uint8_t* unit, float* out) {
  const auto decode = has_byte_table(w.table) ? decode_group<4, kTabled>
                      : w.table == kE4M3      ? decode_group<8, kFloatE4>
                      : w.table == kE5M2      ? decode_group<8, kFloatE5>
                      : w.code_bits == 8      ? decode_group<8, kInteger>
                      : w.code_bits == 6      ? decode_group<6, kInteger>
                      : w.code_bits == 5      ? decode_group<5, kInteger>
                                              : decode_group<4, kInteger>;
  for (int c = 0; c < kPanel; c += kWidth) {
    const vf d = load_scales<true>(w, unit, c), m = w.has_low == kLowScale ? load_scales<true>(w, unit + w.low_offset(), c) : vset(0.f);
    const vf zero = w.has_low == kLowZero ? vload_unsigned(unit + w.low_offset() + c) : vset(0.f);
    const vf first = w.has_low == kLowZero ? vset(0.f) - zero : vset(float(has_byte_table(w.table) ? -128 : code_offset_of(w.table)));
    for (int g = 0; g < w.unit / w.sub; g++) {
      vf scale = d, offset = m;
      if (w.has_sub) scale = d * load_group_scales<true>(w, unit + w.sub_offset() + g * kPanel + c);
      if (w.has_sub && w.has_low) offset = vset(0.f) - m * vload_unsigned(unit + w.sub_low_offset() + g * kPanel + c);
      decode(w, unit, g, c, scale, first, offset, out + g * w.sub * kPanel);
    }
  }
}

// Values [k0, k0 + count) of a panel as float32 [count][32]. k0 is a multiple of kChunk. Float16 is not decoded so.
static const float* decoded_chunk(const Packed& w, const uint8_t* panel, int64_t k0, int64_t count, float* out) {
  if (w.kind == kF32) return reinterpret_cast<const float*>(panel) + k0 * kPanel;
  if (w.kind == kBF16) {
    const auto* pairs = reinterpret_cast<const bf16*>(panel) + k0 * kPanel;
    for (int64_t p = 0; p < count / 2; p++)
      for (int c = 0; c < kPanel; c += kWidth) {
        vf even, odd;
        vpairs(pairs + (p * kPanel + c) * 2, even, odd);
        vstore(out + 2 * p * kPanel + c, even);
        vstore(out + (2 * p + 1) * kPanel + c, odd);
      }
    return out;
  }
  for (int64_t u = 0; u < count / w.unit; u++)
    decode_unit(w, panel + (k0 / w.unit + u) * w.unit_bytes, out + u * w.unit * kPanel);
  return out;
}

static float scale_at(const Packed& w, const uint8_t* at, int column) {
  if (w.scale == kScaleF32) {
    float f;
    std::memcpy(&f, at + 4 * column, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, at + 2 * column, 2);
  return w.scale == kScaleF16 ? from_f16(h) : from_bf16(h);
}

static float code_number(const Packed& w, const uint8_t* unit, int column, int k) {
  const int code = code_at(w, unit, column, k), exponent = float_exponent(w.table);
  if (exponent) return float8_value(exponent, code);
  return float(w.has_low == kLowZero ? code - unit[w.low_offset() + column] : code_value(w.table, code));
}

// One unit of one column.
static void decode_column(const Packed& w, const uint8_t* unit, int column, float* out) {
  const float d = scale_at(w, unit, column), m = w.has_low == kLowScale ? scale_at(w, unit + w.low_offset(), column) : 0.f;
  for (int g = 0; g < w.unit / w.sub; g++) {
    float scale = d, offset = m;
    const uint8_t own = w.has_sub ? unit[w.sub_offset() + g * kPanel + column] : uint8_t(0);
    if (w.has_sub) scale *= w.has_sub == kGroupE4M3 ? float8_value(4, own) : float(int8_t(own));
    if (w.has_sub && w.has_low) offset = 0.f - m * float(unit[w.sub_low_offset() + g * kPanel + column]);
    for (int k = g * w.sub; k < (g + 1) * w.sub; k++) {
      const float v = scale * code_number(w, unit, column, k);
      out[k] = w.has_low == kLowScale ? v + offset : v;
    }
  }
}

// Values [k0, k0 + count) of a row of W; k0 is a multiple of kChunk and count at most that.
static void decode_row(const Packed& w, int64_t row, int64_t k0, int64_t count, float* out) {
  const uint8_t* panel = w.panel(row / kPanel);
  const int column = int(row % kPanel);
  if (w.kind == kF32)
    for (int64_t k = k0; k < k0 + count; k++) *out++ = reinterpret_cast<const float*>(panel)[k * kPanel + column];
  else if (w.kind != kCodes)
    for (int64_t k = k0; k < k0 + count; k++) {
      const uint16_t narrow = reinterpret_cast<const uint16_t*>(panel)[(k / 2 * kPanel + column) * 2 + k % 2];
      *out++ = w.kind == kBF16 ? from_bf16(narrow) : from_f16(narrow);
    }
  else
    for (int64_t k = 0; k < count; k += w.unit) decode_column(w, panel + (k0 + k) / w.unit * w.unit_bytes, column, out + k);
}

static void rows(const void* args, Team& team) {
  const auto& a = *static_cast<const RowsArgs*>(args);
  team_for(team, 0, a.rows, [&](int64_t begin, int64_t end) {
    alignas(64) float line[kChunk];
    for (int64_t r = begin; r < end; r++)
      for (int64_t k = 0; k < a.w->k; k += kChunk) {
        const int64_t count = a.w->k - k < kChunk ? a.w->k - k : kChunk;
        decode_row(*a.w, a.ids[r], k, count, line);
        if (a.w->has_order) {
          const Row whole(a.out, a.element, r * a.out_stride);
          for (int64_t i = 0; i < count; i++) whole.store(a.w->order()[k + i], 1, vset(line[i]));
          continue;
        }
        const Row out(a.out, a.element, r * a.out_stride + k);
        each_vector(count, [&](int64_t i, int n) { out.store(i, n, vload(line + i)); });
      }
  });
}
