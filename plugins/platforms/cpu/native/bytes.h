// Vectors of kWidth 32-bit lanes seen as quads of bytes: products of unsigned with signed bytes, and what unpacks codes.
//
// Sums are exact integers, so every level gives the same. `vdot` is for codes below 128 or, where the processor adds quads
// of products in one step, for any: there kWideDot says so. Elsewhere wider codes go as signed bytes through `vdot_signed`.
#pragma once
#include "simd.h"

namespace tc {
namespace TC_LEVEL {

// Asks for a cache line. GCC takes a function that does nothing but prefetch for one without effect and drops its calls, hence
// the assembly.
TC_INLINE void vfetch(const void* p) {
#if defined(__x86_64__) || defined(__i386__)
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p);
#endif
}

#if defined(__AVX512F__)

TC_INLINE vi vload_bits(const void* p) { return _mm512_loadu_si512(p); }
TC_INLINE vi vset_bits(int32_t x) { return _mm512_set1_epi32(x); }
TC_INLINE vi vand_bits(vi a, vi b) { return _mm512_and_si512(a, b); }
TC_INLINE vi vor_bits(vi a, vi b) { return _mm512_or_si512(a, b); }
TC_INLINE vi vxor_bits(vi a, vi b) { return _mm512_xor_si512(a, b); }
// (mask & a) | (~mask & b)
TC_INLINE vi vpick_bits(vi mask, vi a, vi b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }
template <int N> TC_INLINE vi vright(vi a) { return N == 0 ? a : _mm512_srli_epi16(a, N); }
template <int N> TC_INLINE vi vleft(vi a) { return N == 0 ? a : _mm512_slli_epi16(a, N); }
TC_INLINE vi vright_lanes(vi a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
TC_INLINE vi vleft_lanes(vi a, int n) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)); }
TC_INLINE vf vbits_float(vi a) { return _mm512_castsi512_ps(a); }
TC_INLINE vi vfloat_bits(vf a) { return _mm512_castps_si512(a); }
TC_INLINE vi vbytes_of(const uint8_t* table, vi index) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table)), index);
}
TC_INLINE vf vload_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
// Two floats, over and over.
TC_INLINE vf vpair(const float* p) {
  double both;
  std::memcpy(&both, p, 8);
  return _mm512_castpd_ps(_mm512_set1_pd(both));
}
// 8-bit floats (e4m3, finite), by way of float16, whose exponents lie 8 higher.
TC_INLINE vf vload_e4m3(const uint8_t* p) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
  const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(magnitude, sign)), _mm512_set1_ps(256.f));
}
TC_INLINE vf vload_signed(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))); }
TC_INLINE vf vload_unsigned(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p))); }
#if defined(__AVX512VNNI__)
constexpr bool kWideDot = true;
TC_INLINE vi vdot(vi sum, vi codes, vi x) { return _mm512_dpbusd_epi32(sum, codes, x); }
TC_INLINE vi vdot_signed(vi sum, vi, vi) { return sum; }
#else
constexpr bool kWideDot = false;
TC_INLINE vi vdot(vi sum, vi codes, vi x) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), _mm512_set1_epi16(1)));
}
TC_INLINE vi vdot_signed(vi sum, vi w, vi x) {
  return vdot(sum, _mm512_abs_epi8(w), _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x));
}
#endif

#elif defined(__AVX2__) && defined(__FMA__)

constexpr bool kWideDot = false;
TC_INLINE vi vload_bits(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
TC_INLINE vi vset_bits(int32_t x) { return _mm256_set1_epi32(x); }
TC_INLINE vi vand_bits(vi a, vi b) { return _mm256_and_si256(a, b); }
TC_INLINE vi vor_bits(vi a, vi b) { return _mm256_or_si256(a, b); }
TC_INLINE vi vxor_bits(vi a, vi b) { return _mm256_xor_si256(a, b); }
TC_INLINE vi vpick_bits(vi mask, vi a, vi b) { return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b)); }
template <int N> TC_INLINE vi vright(vi a) { return N == 0 ? a : _mm256_srli_epi16(a, N); }
template <int N> TC_INLINE vi vleft(vi a) { return N == 0 ? a : _mm256_slli_epi16(a, N); }
TC_INLINE vi vright_lanes(vi a, int n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n)); }
TC_INLINE vi vleft_lanes(vi a, int n) { return _mm256_sll_epi32(a, _mm_cvtsi32_si128(n)); }
TC_INLINE vf vbits_float(vi a) { return _mm256_castsi256_ps(a); }
TC_INLINE vi vfloat_bits(vf a) { return _mm256_castps_si256(a); }
TC_INLINE vi vbytes_of(const uint8_t* table, vi index) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table)), index);
}
TC_INLINE vf vload_half(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
TC_INLINE vf vpair(const float* p) {
  double both;
  std::memcpy(&both, p, 8);
  return _mm256_castpd_ps(_mm256_set1_pd(both));
}
TC_INLINE vf vload_e4m3(const uint8_t* p) {
  const __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)p));
  const __m128i magnitude = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x7f)), 7);
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8);
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(magnitude, sign)), _mm256_set1_ps(256.f));
}
TC_INLINE vf vload_signed(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p))); }
TC_INLINE vf vload_unsigned(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p))); }
TC_INLINE vi vdot(vi sum, vi codes, vi x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
}
TC_INLINE vi vdot_signed(vi sum, vi w, vi x) { return vdot(sum, _mm256_sign_epi8(w, w), _mm256_sign_epi8(x, w)); }

#else

constexpr bool kWideDot = true;
typedef uint16_t vwords __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
TC_INLINE vi vload_bits(const void* p) {
  vi v;
  std::memcpy(&v, p, 16);
  return v;
}
TC_INLINE vi vset_bits(int32_t x) { return vi{x, x, x, x}; }
TC_INLINE vi vand_bits(vi a, vi b) { return a & b; }
TC_INLINE vi vor_bits(vi a, vi b) { return a | b; }
TC_INLINE vi vxor_bits(vi a, vi b) { return a ^ b; }
TC_INLINE vi vpick_bits(vi mask, vi a, vi b) { return (mask & a) | (~mask & b); }
template <int N> TC_INLINE vi vright(vi a) { return (vi)((vwords)a >> N); }
template <int N> TC_INLINE vi vleft(vi a) { return (vi)((vwords)a << N); }
TC_INLINE vi vright_lanes(vi a, int n) { return (vi)((vu)a >> n); }
TC_INLINE vi vleft_lanes(vi a, int n) { return (vi)((vu)a << n); }
TC_INLINE vf vbits_float(vi a) { return (vf)a; }
TC_INLINE vi vfloat_bits(vf a) { return (vi)a; }
TC_INLINE vi vbytes_of(const uint8_t* table, vi index) {
  uint8_t at[16];
  std::memcpy(at, &index, 16);
  for (int i = 0; i < 16; i++) at[i] = table[at[i] & 15];
  return vload_bits(at);
}
TC_INLINE vf vload_half(const uint16_t* p) {
  uint16_t h[4];
  std::memcpy(h, p, 8);
  return vf{from_f16(h[0]), from_f16(h[1]), from_f16(h[2]), from_f16(h[3])};
}
TC_INLINE vf vpair(const float* p) { return vf{p[0], p[1], p[0], p[1]}; }
TC_INLINE vf vload_e4m3(const uint8_t* p) {
  uint16_t h[4];
  for (int i = 0; i < 4; i++) h[i] = uint16_t((p[i] & 0x7f) << 7 | (p[i] & 0x80) << 8);
  return vload_half(h) * vset(256.f);
}
TC_INLINE vf vload_signed(const uint8_t* p) { return vf{float(int8_t(p[0])), float(int8_t(p[1])), float(int8_t(p[2])), float(int8_t(p[3]))}; }
TC_INLINE vf vload_unsigned(const uint8_t* p) { return vf{float(p[0]), float(p[1]), float(p[2]), float(p[3])}; }
TC_INLINE vi vdot(vi sum, vi codes, vi x) {
  for (int i = 0; i < 4; i++) sum += (vi)((vu)codes >> (8 * i) & 255) * ((x << (24 - 8 * i)) >> 24);
  return sum;
}
TC_INLINE vi vdot_signed(vi sum, vi, vi) { return sum; }

#endif

}  // namespace TC_LEVEL
}  // namespace tc
