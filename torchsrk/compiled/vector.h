/* The vocabulary of a compiled step. Every value is a vector V over the particles of a tile, one lane each: as many as
 * the processor's vectors hold. A particle's numbers never depend on its neighbours, on its place in the batch or on
 * the number of threads. With ONE_BY_ONE, for a few chains, a tile is one particle and V a number: loops over entries
 * are then what the compiler makes vectors of.
 *
 * The includer defines REAL (float or double), REAL_BYTES, INTEGER (the integer of that size), F(name) (name with the C
 * library's suffix for REAL) and, where glibc's vector functions are there, VECTOR_MATH. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDE_BYTES 64
#elif defined(__AVX2__)
#define WIDE_BYTES 32
#else
#define WIDE_BYTES 16
#endif
#ifdef ONE_BY_ONE
#define VECTOR_BYTES REAL_BYTES
#else
#define VECTOR_BYTES WIDE_BYTES
#endif
#define TILE (VECTOR_BYTES / REAL_BYTES)
#define INLINE static inline __attribute__((always_inline, unused))
#define EACH_LANE for (int lane = 0; lane < TILE; lane++)

#ifdef ONE_BY_ONE
typedef REAL V;
typedef INTEGER M; /* a condition: 1 or 0 */
INLINE V splat(REAL x) { return x; }
INLINE M splat_mask(int x) { return x != 0; }
INLINE M v_not(M condition) { return !condition; }
INLINE V v_select(M condition, V yes, V no) { return condition ? yes : no; }
INLINE V v_number(M condition) { return (V)condition; }

/* The sum (or product) of terms, of which a vector is taken at a time. Compilers keep the order they are given, and
 * that is right for what a user wrote: here the order is ours. */
typedef REAL W __attribute__((vector_size(WIDE_BYTES)));
typedef REAL W_HALF __attribute__((vector_size(WIDE_BYTES / 2)));
#define LANES (WIDE_BYTES / REAL_BYTES)
#define VECTORS(terms) (((terms) + LANES - 1) / LANES)
#define IN_ANY_ORDER(name, start, operation)                                                                   \
    INLINE V name(const W *terms, int number)                                                                  \
    {                                                                                                          \
        W_HALF half = (W_HALF){0} + start, other;                                                              \
        int done = number / LANES * LANES;                                                                     \
        if (done > 0) {                                                                                        \
            W whole = terms[0];                                                                                \
            for (int i = 1; i < number / LANES; i++)                                                           \
                whole operation terms[i];                                                                      \
            memcpy(&half, &whole, sizeof half);                                                                \
            memcpy(&other, (const char *)&whole + sizeof half, sizeof other);                                  \
            half operation other;                                                                              \
        }                                                                                                      \
        if (number - done >= LANES / 2) {                                                                      \
            half operation *(const W_HALF *)(terms + done / LANES);                                            \
            done += LANES / 2;                                                                                 \
        }                                                                                                      \
        for (int width = LANES / 4; width > 0; width /= 2)                                                     \
            for (int i = 0; i < width; i++)                                                                    \
                half[i] operation half[i + width];                                                             \
        V result = half[0];                                                                                    \
        for (; done < number; done++)                                                                          \
            result operation((const REAL *)terms)[done];                                                       \
        return result;                                                                                         \
    }
IN_ANY_ORDER(add_up, 0, +=)
IN_ANY_ORDER(multiply_up, 1, *=)

/* Products of two lines of numbers, added to sums side by side. */
typedef REAL W_ANYWHERE __attribute__((vector_size(WIDE_BYTES), aligned(REAL_BYTES)));
INLINE void add_products(W *sums, const REAL *a, const REAL *b, const int number)
{
    W sum = *sums;
    for (int i = 0; i < number / LANES; i++)
        sum += *(const W_ANYWHERE *)(a + i * LANES) * *(const W_ANYWHERE *)(b + i * LANES);
    for (int i = number / LANES * LANES; i < number; i++)
        sum[i % LANES] += a[i] * b[i];
    *sums = sum;
}
#else
typedef REAL V __attribute__((vector_size(VECTOR_BYTES)));
typedef INTEGER M __attribute__((vector_size(VECTOR_BYTES))); /* a condition: all bits of a lane, or none */
INLINE V splat(REAL x) { return (V){0} + x; }
INLINE M splat_mask(int x) { return (M){0} - (INTEGER)(x != 0); }
INLINE M v_not(M condition) { return ~condition; }
INLINE V v_select(M condition, V yes, V no) { return (V)((condition & (M)yes) | (~condition & (M)no)); }
INLINE V v_number(M condition) { return (V)(condition & (M)splat(1)); }
#endif

INLINE void exchange(M condition, V *a, V *b)
{
    const V left = *a, right = *b;
    *a = v_select(condition, right, left);
    *b = v_select(condition, left, right);
}

/* A place counted from the end, as one from the start. */
INLINE int64_t from_start(int64_t place, int64_t size) { return place < 0 ? place + size : place; }

/* NaN goes through, as in torch. */
INLINE V v_maximum(V a, V b) { return v_select((a > b) | (a != a), a, b); }
INLINE V v_minimum(V a, V b) { return v_select((a < b) | (a != a), a, b); }
INLINE V v_relu(V x) { return v_select(x < 0, splat(0), x); }
INLINE M v_isnan(V x) { return x != x; }
INLINE V v_power(V x, int exponent)
{
    V y = splat(1);
    for (int i = 0; i < exponent; i++)
        y *= x;
    return y;
}
INLINE V v_sign(V x) { return v_number(x > 0) - v_number(x < 0); }

#ifdef ONE_BY_ONE
#define BY_LANE(name)                                                                                          \
    INLINE V v_##name(V x) { return F(name)(x); }
#define BY_LANE_2(name)                                                                                        \
    INLINE V v_##name(V a, V b) { return F(name)(a, b); }
#else
/* The compiler makes vector instructions of these. */
#define BY_LANE(name)                                                                                          \
    INLINE V v_##name(V x)                                                                                     \
    {                                                                                                          \
        V y;                                                                                                   \
        EACH_LANE y[lane] = F(name)(x[lane]);                                                                  \
        return y;                                                                                              \
    }
#define BY_LANE_2(name)                                                                                        \
    INLINE V v_##name(V a, V b)                                                                                \
    {                                                                                                          \
        V y;                                                                                                   \
        EACH_LANE y[lane] = F(name)(a[lane], b[lane]);                                                         \
        return y;                                                                                              \
    }
#endif
BY_LANE(sqrt)
BY_LANE(fabs)
BY_LANE(floor)
BY_LANE(ceil)
BY_LANE(trunc)
BY_LANE(rint)
BY_LANE(lgamma)
BY_LANE_2(fmod)
BY_LANE_2(fmin)
BY_LANE_2(fmax)
BY_LANE_2(copysign)
/* As an int64 on this processor has it, NaN and what is too large included. */
INLINE V v_whole(V x) { return v_select(v_fabs(x) < (REAL)0x1p63, v_trunc(x), splat((REAL)-0x1p63)); }
INLINE M v_signbit(V x) { return v_copysign(splat(1), x) < 0; }
/* With the divisor's sign. */
INLINE V v_remainder(V a, V b)
{
    const V rest = v_fmod(a, b);
    return v_select((rest != 0) & ((rest < 0) ^ (b < 0)), rest + b, rest);
}

/* As Python has it: what is left over has the divisor's sign, and the quotient is a whole number, the nearest to what
 * rounding left of one. */
INLINE V v_floor_divide(V a, V b)
{
    const V rest = v_fmod(a, b);
    const V exact = (a - rest) / b - v_number((rest != 0) & ((rest < 0) ^ (b < 0)));
    const V below = v_floor(exact), whole = below + v_number(exact - below > (REAL)0.5);
    return v_select(b == 0, a / b, v_select(exact != 0, whole, v_copysign(splat(0), a / b)));
}
