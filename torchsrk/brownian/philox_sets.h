/* The kernel for each instruction set, and the best of them that the processor has. BEST_KERNEL and PORTABLE_BYTES, the
 * width of vectors that the compiler takes apart, can be defined to have another. */

/* Set once, when the library is loaded. */
static int avx512_allowed = 1;
void torchsrk_allow_avx512(int allowed) { avx512_allowed = allowed; }

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PORTABLE_BYTES)
#include <immintrin.h>

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f")))
#define BYTES 64
#define MULTIPLY(a, b) ((U64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define WIDEN(from) ((U64)_mm512_cvtepu32_epi64(_mm256_load_si256((const __m256i *)(from))))
#define PACK(even, odd) ((U64)_mm512_mask_mov_epi32((__m512i)(even), 0xaaaa, (__m512i)((odd) << 32)))
#define SELECT_32(s, a, b) \
    ((F32)_mm512_mask_blend_ps(_mm512_cmplt_epi32_mask((__m512i)(s), _mm512_setzero_si512()), b, a))
#define SELECT_64(s, a, b) \
    ((F64)_mm512_mask_blend_pd(_mm512_cmplt_epi64_mask((__m512i)(s), _mm512_setzero_si512()), b, a))
#define ROOT_32(a) ((F32)_mm512_sqrt_ps((__m512)(a)))
#define ROOT_64(a) ((F64)_mm512_sqrt_pd((__m512d)(a)))
#define PIN(x) __asm__ volatile("" : : "v"(x))
#include "philox_vector.h"

/* Not the intrinsics, which gcc takes apart into a comparison and a blend. */
__attribute__((target("avx2"))) INLINE __m256 blend_by_sign_32(__m256 sign, __m256 a, __m256 b)
{
    __m256 chosen;
    __asm__("vblendvps %1, %2, %3, %0" : "=x"(chosen) : "x"(sign), "x"(a), "x"(b));
    return chosen;
}
__attribute__((target("avx2"))) INLINE __m256d blend_by_sign_64(__m256d sign, __m256d a, __m256d b)
{
    __m256d chosen;
    __asm__("vblendvpd %1, %2, %3, %0" : "=x"(chosen) : "x"(sign), "x"(a), "x"(b));
    return chosen;
}

/* Rows are written in their order: they may overlap. */
__attribute__((target("avx2"))) INLINE void store_row_pairs(const __m256d *rows, int count, char *out, int64_t stride)
{
    for (int i = 0; i < count; i++)
        _mm_storeu_pd((double *)(out + i * stride), _mm256_castpd256_pd128(rows[i]));
    for (int i = 0; i < count; i++)
        _mm_storeu_pd((double *)(out + (count + i) * stride), _mm256_extractf128_pd(rows[i], 1));
}

/* store_blocks of a cell in half the shuffles. */
__attribute__((target("avx2"))) INLINE void store_cell(const __m256 *planes, int kind, char *out, int64_t stride)
{
    const __m256d first = _mm256_castps_pd(planes[0]), second = _mm256_castps_pd(planes[1]);
    if (kind == FLOAT64) {
        const __m256d rows[2] = {_mm256_unpacklo_pd(first, second), _mm256_unpackhi_pd(first, second)};
        store_row_pairs(rows, 2, out, stride);
        return;
    }
    const __m256d low = _mm256_castps_pd(_mm256_unpacklo_ps(planes[0], planes[1]));
    const __m256d high = _mm256_castps_pd(_mm256_unpackhi_ps(planes[0], planes[1]));
    const __m256d low_behind = _mm256_castps_pd(_mm256_unpacklo_ps(planes[2], planes[3]));
    const __m256d high_behind = _mm256_castps_pd(_mm256_unpackhi_ps(planes[2], planes[3]));
    const __m256d rows[4] = {_mm256_unpacklo_pd(low, low_behind), _mm256_unpackhi_pd(low, low_behind),
                             _mm256_unpacklo_pd(high, high_behind), _mm256_unpackhi_pd(high, high_behind)};
    store_row_pairs(rows, 4, out, stride);
}

#define NAME(x) x##_avx2
#define STORE_ROWS(planes, kind, out, stride) store_cell((const __m256 *)(planes), kind, out, stride)
#define TARGET __attribute__((target("avx2")))
#define BYTES 32
#define MULTIPLY(a, b) ((U64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define WIDEN(from) ((U64)_mm256_cvtepu32_epi64(_mm_load_si128((const __m128i *)(from))))
#define PACK(even, odd) ((U64)_mm256_blend_epi32((__m256i)(even), (__m256i)((odd) << 32), 0xaa))
#define SELECT_32(s, a, b) ((F32)blend_by_sign_32((__m256)(s), (__m256)(a), (__m256)(b)))
#define SELECT_64(s, a, b) ((F64)blend_by_sign_64((__m256d)(s), (__m256d)(a), (__m256d)(b)))
#define ROOT_32(a) ((F32)_mm256_sqrt_ps((__m256)(a)))
#define ROOT_64(a) ((F64)_mm256_sqrt_pd((__m256d)(a)))
#define PIN(x) __asm__ volatile("" : : "x"(x))
#include "philox_vector.h"

#define NAME(x) x##_zen3
#define STORE_ROWS(planes, kind, out, stride) store_cell((const __m256 *)(planes), kind, out, stride)
#define TARGET __attribute__((target("avx2")))
#define BYTES 32
#define MULTIPLY(a, b) ((U64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define WIDEN(from) ((U64)_mm256_cvtepu32_epi64(_mm_load_si128((const __m128i *)(from))))
#define PACK(even, odd) ((U64)_mm256_blend_epi32((__m256i)(even), (__m256i)((odd) << 32), 0xaa))
#define SELECT_32(s, a, b) ((F32)blend_by_sign_32((__m256)(s), (__m256)(a), (__m256)(b)))
#define SELECT_64(s, a, b) ((F64)blend_by_sign_64((__m256d)(s), (__m256d)(a), (__m256d)(b)))
#define ROOT_32(a) ((F32)_mm256_sqrt_ps((__m256)(a)))
#define ROOT_64(a) ((F64)_mm256_sqrt_pd((__m256d)(a)))
#define PIN(x) __asm__ volatile("" : : "x"(x))
#define HALVES(even, odd, which) \
    ((U64)_mm256_shuffle_ps(_mm256_castsi256_ps((__m256i)(even)), _mm256_castsi256_ps((__m256i)(odd)), which))
#define LOW_PRODUCTS(a, b) ((U64)_mm256_mullo_epi32((__m256i)(a), (__m256i)(b)))
#define HIGH_HALVES(even, odd) HALVES(even, odd, 0xdd)
#define LOW_HALVES(even, odd) HALVES(even, odd, 0x88)
#define TURN(x) ((U64)_mm256_shuffle_epi32((__m256i)(x), 0xd8))
#define DEAL(x) ((U64)_mm256_permute4x64_epi64((__m256i)(x), 0xd8))
#define NARROW(to, x)                                                                                          \
    _mm_storeu_si128((__m128i *)(to), _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(                      \
                                          (__m256i)(x), _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6))))
#include "philox_vector.h"

#define NAME(x) x##_sse2
#define TARGET
#define BYTES 16
#define MULTIPLY(a, b) ((U64)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#define ROOT_32(a) ((F32)_mm_sqrt_ps((__m128)(a)))
#define ROOT_64(a) ((F64)_mm_sqrt_pd((__m128d)(a)))
#define PIN(x) __asm__ volatile("" : : "x"(x))
#define WIDEN(from) ((U64){(from)[0], (from)[1]})
#if defined(__clang__) || __GNUC__ >= 11
#define IS_ZEN3 __builtin_cpu_is("amdfam19h")
#else
#define IS_ZEN3 0
#endif
#ifndef BEST_KERNEL
#define BEST_KERNEL                                                                                            \
    (avx512_allowed && __builtin_cpu_supports("avx512f") ? &kernel_avx512                                      \
     : IS_ZEN3                                           ? &kernel_zen3                                        \
     : __builtin_cpu_supports("avx2")                    ? &kernel_avx2                                        \
                                                         : &kernel_sse2)
#endif
#else
#ifndef PORTABLE_BYTES
#define PORTABLE_BYTES 16
#endif
#define NAME(x) x##_portable
#define TARGET
#define BYTES PORTABLE_BYTES
#define MULTIPLY(a, b) (((a) & 0xffffffffu) * ((b) & 0xffffffffu))
#define EACH_ELEMENT(type, size, expression)                                                                   \
    ({                                                                                                         \
        type vector;                                                                                           \
        for (int i_ = 0; i_ < BYTES / size; i_++)                                                              \
            vector[i_] = expression;                                                                           \
        vector;                                                                                                \
    })
#define WIDEN(from) EACH_ELEMENT(U64, 8, (from)[i_])
#define ROOT_32(a) EACH_ELEMENT(F32, 4, sqrtf((a)[i_]))
#define ROOT_64(a) EACH_ELEMENT(F64, 8, sqrt((a)[i_]))
#define PIN(x)
#define BEST_KERNEL (&kernel_portable)
#endif
#define PACK(even, odd) (((even) & 0xffffffffu) | (odd) << 32)
#define CHOOSE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))
#define SELECT_32(s, a, b) ((F32)CHOOSE((U32)((I32)(s) >> 31), (U32)(a), (U32)(b)))
#define SELECT_64(s, a, b) ((F64)CHOOSE(-((s) >> 63), (U64)(a), (U64)(b)))
#include "philox_vector.h"
