// Finding the best entries of a row without sorting it: maxima of groups bound them, radix selection over the bits of the
// floats finds a threshold, and halving an interval of floats does where there are too many for that.
//
// A key is a float's bits as an integer that orders as the floats do; -0 and 0 are one key. A Cut keeps entries above `key`,
// and the first `ties` of those equal to it.

constexpr int kGroup = 64;
constexpr int kBlock = 2048;    // weights summed in one go
constexpr int kRadixBits = 11;  // 11 + 11 + 10
constexpr int kRadixBins = 1 << kRadixBits;
constexpr int32_t kKeyInf = 0x7f800000;
constexpr int32_t kKeyMinusInf = int32_t(0x7f800000u ^ 0xffffffffu);

TC_INLINE int32_t key_of(float x) {
  const int32_t u = int32_t(float_to_bits(x + 0.f));
  return u ^ ((u >> 31) & 0x7fffffff);
}
TC_INLINE float of_key(int32_t key) { return bits_to_float(uint32_t(key ^ ((key >> 31) & 0x7fffffff))); }

struct Cut {
  int32_t key;
  int64_t ties;
};
constexpr Cut kEverything = {kKeyMinusInf, 0};

// One row at work, and the memory of its thread.
struct Sampling {
  const float* x;
  int64_t n, groups;
  int32_t top_key, low_key;
  float top;
  int32_t* maxima;    // [groups]
  float* weights;     // [n]
  int32_t *ids, *keys;  // candidates [n]
  int32_t* spare;     // [2 n]: what a selection has left
  double *sums[2];    // [blocks], one for each total that was asked for
  double total[2];    // sum of exp((x - top) * inverse)
  float* tops;        // [blocks] what the largest was so far
  int64_t* starts;    // [blocks + 1]
  double* mass;       // [kRadixBins]
  float *compact, *before;  // a row's allowed entries [n]; values that rules changed [edits]
  int32_t* others;    // maxima of another row [groups]
};

static int64_t sample_layout(Sampling* s, uint8_t* at, int64_t n, int64_t edits) {
  int64_t used = 0;
  auto take = [&](int64_t bytes) {
    uint8_t* p = at + used;
    used += (bytes + 63) & ~int64_t(63);
    return p;
  };
  constexpr int64_t kSlack = 16 * 4;  // whole vectors are written behind the last entry
  const int64_t blocks = n / kBlock + 2, groups = (n / kGroup + 1) * 4, row = n * 4 + kSlack;
  const int64_t sizes[] = {groups, row, row, row, 2 * row, blocks * 8, blocks * 8, blocks * 4, blocks * 8, kRadixBins * 8, row, edits * 4, groups};
  uint8_t* parts[sizeof sizes / sizeof *sizes];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) parts[i] = take(sizes[i]);
  if (s) {
    s->maxima = reinterpret_cast<int32_t*>(parts[0]);
    s->weights = reinterpret_cast<float*>(parts[1]);
    s->ids = reinterpret_cast<int32_t*>(parts[2]);
    s->keys = reinterpret_cast<int32_t*>(parts[3]);
    s->spare = reinterpret_cast<int32_t*>(parts[4]);
    s->sums[0] = reinterpret_cast<double*>(parts[5]);
    s->sums[1] = reinterpret_cast<double*>(parts[6]);
    s->tops = reinterpret_cast<float*>(parts[7]);
    s->starts = reinterpret_cast<int64_t*>(parts[8]);
    s->mass = reinterpret_cast<double*>(parts[9]);
    s->compact = reinterpret_cast<float*>(parts[10]);
    s->before = reinterpret_cast<float*>(parts[11]);
    s->others = reinterpret_cast<int32_t*>(parts[12]);
  }
  return used;
}

static size_t sample_scratch(const SampleArgs& a) { return size_t(sample_layout(nullptr, nullptr, a.vocab, a.edits)); }

static int64_t fault_of(const Sampling& s) {
  if (s.top_key > kKeyInf || s.low_key < kKeyMinusInf) return kNotANumber;
  if (s.top_key == kKeyInf) return kInfinite;
  return s.top_key == kKeyMinusInf ? kAllMinus : kSampled;
}

// Bins of the three passes of a radix selection, best first.
TC_INLINE int radix_bin(int32_t key, int pass) {
  const uint32_t u = ~(uint32_t(key) ^ 0x80000000u);
  return pass == 0 ? int(u >> 21) : pass == 1 ? int((u >> 10) & 2047) : int(u & 1023);
}

// Finds the k-th largest of `keys` [n], 1 <= k <= n, and how many of those equal to it belong to the k best.
static Cut nth_key(Sampling& s, const int32_t* keys, int64_t n, int64_t k) {
  int32_t* found = s.spare;
  int64_t left = k;
  const int32_t* now = keys;
  for (int pass = 0; pass < 3; pass++) {
    auto* count = reinterpret_cast<int64_t*>(s.mass);
    for (int b = 0; b < kRadixBins; b++) count[b] = 0;
    for (int64_t i = 0; i < n; i++) count[radix_bin(now[i], pass)]++;
    int bin = 0;
    while (left > count[bin]) left -= count[bin++];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
      const int32_t key = now[i];
      found[kept] = key;
      kept += radix_bin(key, pass) == bin;
    }
    n = kept;
    now = found;
  }
  return {now[0], left};
}

// A key that at least k entries reach, if there are that many groups.
static int32_t bound(Sampling& s, int64_t k) { return k >= s.groups ? kKeyMinusInf + 1 : nth_key(s, s.maxima, s.groups, k).key; }

// Ids (ascending) and keys of all entries that reach `key`, never minus infinity; how many.
static int64_t gather(Sampling& s, int32_t key) {
  if (key <= kKeyMinusInf) key = kKeyMinusInf + 1;
  int64_t count = 0;
  for (int64_t g = 0; g < s.groups; g++) {
    if (s.maxima[g] < key) continue;
    const int64_t end = (g + 1) * kGroup < s.n ? (g + 1) * kGroup : s.n;
    int64_t i = g * kGroup;
#if defined(__AVX512F__)
    const __m512i order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (; i + 16 <= end; i += 16) {
      const __m512i bits = _mm512_castps_si512(_mm512_add_ps(_mm512_loadu_ps(s.x + i), _mm512_setzero_ps()));
      const __m512i own = _mm512_xor_si512(bits, _mm512_and_si512(_mm512_srai_epi32(bits, 31), _mm512_set1_epi32(0x7fffffff)));
      const __mmask16 in = _mm512_cmpge_epi32_mask(own, _mm512_set1_epi32(key));
      _mm512_storeu_si512(s.ids + count, _mm512_maskz_compress_epi32(in, _mm512_add_epi32(order, _mm512_set1_epi32(int(i)))));
      _mm512_storeu_si512(s.keys + count, _mm512_maskz_compress_epi32(in, own));
      count += __builtin_popcount(in);
    }
#endif
    for (; i < end; i++) {
      const int32_t own = key_of(s.x[i]);
      s.ids[count] = int32_t(i);
      s.keys[count] = own;
      count += own >= key;
    }
  }
  return count;
}

// Keeps what a cut keeps of the candidates, in place; how many.
static int64_t keep(Sampling& s, int64_t n, Cut cut) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    const int32_t key = s.keys[i];
    if (key < cut.key || (key == cut.key && cut.ties-- <= 0)) continue;
    s.ids[count] = s.ids[i];
    s.keys[count++] = key;
  }
  return count;
}

// Puts (key, id) of candidate i in order, best first: a heap whose root is the worst.
static void sort_candidates(Sampling& s, int64_t n) {
  auto worse = [&](int64_t a, int64_t b) { return s.keys[a] < s.keys[b] || (s.keys[a] == s.keys[b] && s.ids[a] > s.ids[b]); };
  auto swap = [&](int64_t a, int64_t b) {
    const int32_t id = s.ids[a], key = s.keys[a];
    s.ids[a] = s.ids[b], s.keys[a] = s.keys[b];
    s.ids[b] = id, s.keys[b] = key;
  };
  auto sink = [&](int64_t at, int64_t end) {
    for (int64_t child; (child = 2 * at + 1) < end; at = child) {
      if (child + 1 < end && worse(child + 1, child)) child++;
      if (!worse(child, at)) return;
      swap(child, at);
    }
  };
  for (int64_t i = n / 2; i-- > 0;) sink(i, n);
  for (int64_t end = n; end-- > 1;) {
    swap(0, end);
    sink(0, end);
  }
}

// How many entries are above one.
static int64_t count_above(const Sampling& s, int32_t key) {
  int64_t above = 0;
  for (int64_t g = 0; g < s.groups; g++) {
    if (s.maxima[g] <= key) continue;
    const int64_t end = (g + 1) * kGroup < s.n ? (g + 1) * kGroup : s.n;
    for (int64_t i = g * kGroup; i < end; i++) above += key_of(s.x[i]) > key;
  }
  return above;
}

static int64_t first_best(const Sampling& s) {
  for (int64_t g = 0; g < s.groups; g++) {
    if (s.maxima[g] != s.top_key) continue;
    for (int64_t i = g * kGroup; i < s.n; i++)
      if (key_of(s.x[i]) == s.top_key) return i;
  }
  return 0;
}
