// Packed weights back to numbers, bit for bit the values of their format: the exact drivers and embedding rows.

// The entries of the table of four bits as bytes, with 128 added or signed.
struct ByteTable {
  uint8_t at[16];
  constexpr explicit ByteTable(int offset) : at() {
    for (int i = 0; i < 16; i++) at[i] = uint8_t(kIQ4Values[i] + offset);
  }
};
static constexpr ByteTable kIQ4Unsigned(128), kIQ4Signed(0);

// Columns [column, column + kWidth) of a group of values, decoded: out [sub][32]. `scale` and `offset` are of these columns.
template <int BITS, bool IQ4>
static void decode_group(const Packed& w, const uint8_t* unit, int group, int column, vf scale, vf offset, float* out) {
  const vf first = vset(float(IQ4 ? -128 : code_offset_of(w.table)));
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
    if (IQ4) code = vbytes_of(kIQ4Unsigned.at, code);
    for (int i = 0; i < 4; i++, out += kPanel) {
      const vf v = scale * (vfloat(vand_bits(vright_lanes(code, 8 * quad_place(i)), vset_bits(255))) + first);
      vstore(out + column, w.has_low ? v + offset : v);
    }
  }
}

// Scales, or offsets, of a unit's columns [column, column + kWidth).
TC_INLINE vf load_scales(const Packed& w, const uint8_t* at, int column) {
  return w.wide_scales ? vload(reinterpret_cast<const float*>(at) + column) : vload_half(reinterpret_cast<const uint16_t*>(at) + column);
}

// One unit of codes to float32 [unit][32].
static void decode_unit(const Packed& w, const uint8_t* unit, float* out) {
  const auto decode = w.table == kIQ4    ? decode_group<4, true>
                      : w.code_bits == 8 ? decode_group<8, false>
                      : w.code_bits == 6 ? decode_group<6, false>
                      : w.code_bits == 5 ? decode_group<5, false>
                                         : decode_group<4, false>;
  for (int c = 0; c < kPanel; c += kWidth) {
    const vf d = load_scales(w, unit, c), m = w.has_low ? load_scales(w, unit + w.low_offset(), c) : vset(0.f);
    for (int g = 0; g < w.unit / w.sub; g++) {
      vf scale = d, offset = m;
      if (w.has_sub) scale = d * vload_signed(unit + w.sub_offset() + g * kPanel + c);
      if (w.has_sub && w.has_low) offset = vset(0.f) - m * vload_unsigned(unit + w.sub_low_offset() + g * kPanel + c);
      decode(w, unit, g, c, scale, offset, out + g * w.sub * kPanel);
    }
  }
}

// Values [k0, k0 + count) of a panel as float32 [count][32]. k0 is a multiple of kChunk.
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
  if (w.wide_scales) {
    float f;
    std::memcpy(&f, at + 4 * column, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, at + 2 * column, 2);
  return from_f16(h);
}

// One unit of one column.
static void decode_column(const Packed& w, const uint8_t* unit, int column, float* out) {
  const float d = scale_at(w, unit, column), m = w.has_low ? scale_at(w, unit + w.low_offset(), column) : 0.f;
  for (int g = 0; g < w.unit / w.sub; g++) {
    float scale = d, offset = m;
    if (w.has_sub) scale *= float(int8_t(unit[w.sub_offset() + g * kPanel + column]));
    if (w.has_sub && w.has_low) offset = 0.f - m * float(unit[w.sub_low_offset() + g * kPanel + column]);
    for (int k = g * w.sub; k < (g + 1) * w.sub; k++) {
      const float v = scale * float(code_value(w.table, code_at(w, unit, column, k)));
      out[k] = w.has_low ? v + offset : v;
    }
  }
}

// Values [k0, k0 + count) of a row of W; k0 is a multiple of kChunk and count at most that.
static void decode_row(const Packed& w, int64_t row, int64_t k0, int64_t count, float* out) {
  const uint8_t* panel = w.panel(row / kPanel);
  const int column = int(row % kPanel);
  if (w.kind == kF32)
    for (int64_t k = k0; k < k0 + count; k++) *out++ = reinterpret_cast<const float*>(panel)[k * kPanel + column];
  else if (w.kind == kBF16)
    for (int64_t k = k0; k < k0 + count; k++)
      *out++ = from_bf16(reinterpret_cast<const bf16*>(panel)[(k / 2 * kPanel + column) * 2 + k % 2]);
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
        const Row out(a.out, a.element, r * a.out_stride + k);
        each_vector(count, [&](int64_t i, int n) { out.store(i, n, vload(line + i)); });
      }
  });
}
