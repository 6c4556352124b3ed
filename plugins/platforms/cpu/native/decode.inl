// Packed weights back to numbers, bit for bit the values of their format: the exact drivers and embedding rows.

// Codes of value k (within the unit) of all columns, as what they stand for.
static void codes_of_row(const Packed& w, const uint8_t* unit, int k, float* out) {
  const uint8_t* run = unit + w.code_offset() + k / 32 * w.run_bytes();
  const int quad = k % 32 / 4, i = quad_place(k % 4), first = code_offset_of(w.table);
  uint32_t code[kPanel], high[kPanel];
  std::memcpy(code, run + (w.code_bits == 8 ? quad : quad % 4) * 128, 128);
  const int shift = 8 * i + (w.code_bits == 8 ? 0 : quad / 4 * 4);
  const uint32_t mask = w.code_bits == 8 ? 255 : 15;
  for (int c = 0; c < kPanel; c++) code[c] = (code[c] >> shift) & mask;
  if (w.code_bits == 5 || w.code_bits == 6) {
    std::memcpy(high, run + 512 + (w.code_bits == 6 ? quad / 4 * 128 : 0), 128);
    const int at = 8 * i + (w.code_bits == 5 ? quad : 2 * (quad % 4));
    const uint32_t bits = w.code_bits == 5 ? 1 : 3;
    for (int c = 0; c < kPanel; c++) code[c] |= ((high[c] >> at) & bits) << 4;
  }
  if (w.table == kIQ4)
    for (int c = 0; c < kPanel; c++) out[c] = float(kIQ4Values[code[c]]);
  else
    for (int c = 0; c < kPanel; c++) out[c] = float(int(code[c]) + first);
}

// Scales, or offsets, of a unit's columns [column, column + kWidth).
TC_INLINE vf load_scales(const Packed& w, const uint8_t* at, int column) {
  return w.wide_scales ? vload(reinterpret_cast<const float*>(at) + column) : vload_half(reinterpret_cast<const uint16_t*>(at) + column);
}

// One unit of codes to float32 [unit][32].
static void decode_unit(const Packed& w, const uint8_t* unit, float* out) {
  alignas(64) float scale[kPanel], offset[kPanel] = {};
  for (int g = 0; g < w.unit / w.sub; g++) {
    for (int c = 0; c < kPanel; c += kWidth) {
      const vf d = load_scales(w, unit, c);
      vstore(scale + c, w.has_sub ? d * vload_signed(unit + w.sub_offset() + g * kPanel + c) : d);
      if (!w.has_low) continue;
      const vf m = load_scales(w, unit + w.low_offset(), c);
      vstore(offset + c, w.has_sub ? vset(0.f) - m * vload_unsigned(unit + w.sub_low_offset() + g * kPanel + c) : m);
    }
    for (int k = g * w.sub; k < (g + 1) * w.sub; k++) {
      float* o = out + k * kPanel;
      codes_of_row(w, unit, k, o);
      for (int c = 0; c < kPanel; c++) o[c] = scale[c] * o[c];
      if (w.has_low)
        for (int c = 0; c < kPanel; c++) o[c] += offset[c];
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
