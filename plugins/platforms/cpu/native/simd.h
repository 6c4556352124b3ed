// One vector type `vf` of kWidth floats per ISA level, and the few operations that the kernels need.
//
// Fused multiply-add is always asked for by name: the compiler may not contract, so an expression rounds the same way
// in every instantiation of a template. That is what makes a row's result independent of the rows beside it.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#if defined(__GNUC__)
#define TC_INLINE inline __attribute__((always_inline))
#else
#define TC_INLINE inline
#endif

namespace tc {
namespace TC_LEVEL {

typedef uint16_t bf16;

TC_INLINE float bits_to_float(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
TC_INLINE uint32_t float_to_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
TC_INLINE float from_bf16(bf16 x) { return bits_to_float(uint32_t(x) << 16); }
TC_INLINE bf16 to_bf16(float f) {
  uint32_t u = float_to_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40);  // a NaN stays one
  return uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
TC_INLINE float from_f16(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
  if (exp == 31) return bits_to_float(sign | 0x7f800000u | (man << 13));
  if (exp == 0) {  // zero and subnormals: man * 2^-24 is exact
    const float v = float(man) * 5.9604644775390625e-8f;
    return sign ? -v : v;
  }
  return bits_to_float(sign | ((exp + 112) << 23) | (man << 13));
}

#if defined(__AVX512F__)

constexpr int kWidth = 16;
typedef __m512 vf;
typedef __m512i vi;
TC_INLINE vf vset(float x) { return _mm512_set1_ps(x); }
TC_INLINE vf vload(const float* p) { return _mm512_loadu_ps(p); }
TC_INLINE void vstore(float* p, vf v) { _mm512_storeu_ps(p, v); }
TC_INLINE vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
TC_INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
TC_INLINE vf vload(const bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
TC_INLINE void vstore(bf16* p, vf v) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(v));
#else
  const __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(up, nan, u, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
#endif
}
TC_INLINE vi vint(vf v) { return _mm512_cvtps_epi32(v); }
TC_INLINE vf vpow2(vi n) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23)); }
TC_INLINE vf vfloat(vi n) { return _mm512_cvtepi32_ps(n); }
// The two bf16 halves of each 32-bit lane, as floats.
TC_INLINE void vpairs(const bf16* p, vf& even, vf& odd) {
  const __m512i u = _mm512_loadu_si512(p);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32(int(0xffff0000u))));
}
TC_INLINE vf vabove(vf v, float bound, vf then) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, vset(bound), _CMP_GT_OQ), then); }

#elif defined(__AVX2__) && defined(__FMA__)

constexpr int kWidth = 8;
typedef __m256 vf;
typedef __m256i vi;
TC_INLINE vf vset(float x) { return _mm256_set1_ps(x); }
TC_INLINE vf vload(const float* p) { return _mm256_loadu_ps(p); }
TC_INLINE void vstore(float* p, vf v) { _mm256_storeu_ps(p, v); }
TC_INLINE vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
TC_INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
TC_INLINE vf vload(const bf16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
TC_INLINE void vstore(bf16* p, vf v) {
  const __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i kept = _mm256_blendv_epi8(up, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
  const __m256i high = _mm256_srli_epi32(kept, 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}
TC_INLINE vi vint(vf v) { return _mm256_cvtps_epi32(v); }
TC_INLINE vf vpow2(vi n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }
TC_INLINE vf vfloat(vi n) { return _mm256_cvtepi32_ps(n); }
TC_INLINE void vpairs(const bf16* p, vf& even, vf& odd) {
  const __m256i u = _mm256_loadu_si256((const __m256i*)p);
  even = _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
  odd = _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32(int(0xffff0000u))));
}
TC_INLINE vf vabove(vf v, float bound, vf then) { return _mm256_and_ps(_mm256_cmp_ps(v, vset(bound), _CMP_GT_OQ), then); }

#else  // plain vectors of four: SSE2, NEON or whatever the compiler makes of them

constexpr int kWidth = 4;
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
TC_INLINE vf vset(float x) { return vf{x, x, x, x}; }
TC_INLINE vf vload(const float* p) {
  vf v;
  std::memcpy(&v, p, 16);
  return v;
}
TC_INLINE void vstore(float* p, vf v) { std::memcpy(p, &v, 16); }
TC_INLINE vf vfma(vf a, vf b, vf c) { return a * b + c; }
TC_INLINE vf vmax(vf a, vf b) {
  const vi pick = a > b;
  return (vf)((pick & (vi)a) | (~pick & (vi)b));
}
TC_INLINE vf vload(const bf16* p) { return vf{from_bf16(p[0]), from_bf16(p[1]), from_bf16(p[2]), from_bf16(p[3])}; }
TC_INLINE void vstore(bf16* p, vf v) {
  for (int i = 0; i < 4; i++) p[i] = to_bf16(v[i]);
}
TC_INLINE vi vint(vf v) {
  const vf shifted = v + 12582912.f;  // 1.5 * 2^23: the sum rounds to the nearest integer
  return (vi)shifted - 0x4b400000;
}
TC_INLINE vf vpow2(vi n) { return (vf)((n + 127) << 23); }
TC_INLINE vf vfloat(vi n) { return __builtin_convertvector(n, vf); }
TC_INLINE void vpairs(const bf16* p, vf& even, vf& odd) {
  vi u;
  std::memcpy(&u, p, 16);
  even = (vf)(u << 16);
  odd = (vf)(u & int(0xffff0000u));
}
TC_INLINE vf vabove(vf v, float bound, vf then) { return (vf)((v > vset(bound)) & (vi)then); }

#endif

// Sum and maximum over the lanes, always in lane order.
TC_INLINE float vsum(vf v) {
  alignas(64) float lane[kWidth];
  vstore(lane, v);
  for (int step = kWidth / 2; step > 0; step /= 2)
    for (int i = 0; i < step; i++) lane[i] += lane[i + step];
  return lane[0];
}
TC_INLINE float vtop(vf v) {
  alignas(64) float lane[kWidth];
  vstore(lane, v);
  float top = lane[0];
  for (int i = 1; i < kWidth; i++) top = lane[i] > top ? lane[i] : top;
  return top;
}

// exp(x), relative error about 1e-7, for x between -87.3 and 88.3.
TC_INLINE vf vexp_within(vf x) {
  const vi n = vint(x * vset(1.44269504088896341f));
  const vf f = vfloat(n);
  vf r = vfma(f, vset(-0.693359375f), x);      // ln 2 in two parts: the first product is exact
  r = vfma(f, vset(2.12194440e-4f), r);
  vf p = vset(1.f / 5040);
  p = vfma(p, r, vset(1.f / 720));
  p = vfma(p, r, vset(1.f / 120));
  p = vfma(p, r, vset(1.f / 24));
  p = vfma(p, r, vset(1.f / 6));
  p = vfma(p, r, vset(0.5f));
  p = vfma(p, r, vset(1.f));
  p = vfma(p, r, vset(1.f));
  return p * vpow2(n);
}
// The same for any x, which is clamped to that range.
TC_INLINE vf vexp(vf x) {
  x = vmax(x, vset(-87.3f));
  return vexp_within(vset(0.f) - vmax(vset(0.f) - x, vset(-88.3f)));
}
TC_INLINE vf vtanh(vf x) { return vset(1.f) - vset(2.f) / (vexp(x + x) + vset(1.f)); }
TC_INLINE float exp1(float x) {
  alignas(64) float lane[kWidth];
  vstore(lane, vexp(vset(x)));
  return lane[0];
}

}  // namespace TC_LEVEL
}  // namespace tc
