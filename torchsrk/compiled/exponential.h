/* Functions by one exponential, where that is faster than glibc's: expm1 of the remainder by a polynomial, added up
 * by pairs, and pairs of pairs, as the wait for one term after another is what takes the time; and the compiler puts it
 * into the loops around it, so that calls overlap. About 2 ulp, as glibc's own, which is as fast on AVX-512 in single
 * precision; and of one chain it is glibc's that loops over entries can make vectors of. */
#if !defined(ONE_BY_ONE) && (REAL_BYTES == 8 || VECTOR_BYTES < 64)
#define HAS_EXPONENTIAL
#if REAL_BYTES == 8
typedef uint64_t U __attribute__((vector_size(VECTOR_BYTES)));
#define MAGIC 0x1.8p52 /* added to a number, it rounds it to a whole one, that is then in the last bits */
#define MANTISSA 52
#define BIAS 1023
#define LOG2 0x1.62e42fefa39efp-1
#define LOG2_HIGH 0x1.62e42feep-1 /* with so many zeros at its end that multiples are exact */
#define LOG2_LOW 0x1.a39ef35793c76p-33
#else
typedef uint32_t U __attribute__((vector_size(VECTOR_BYTES)));
#define MAGIC 0x1.8p23f
#define MANTISSA 23
#define BIAS 127
#define LOG2 0x1.62e43p-1f
#define LOG2_HIGH 0x1.63p-1f
#define LOG2_LOW -0x1.bd0106p-13f
#endif
#define OVER_LOG2 (REAL)1.44269504088896340736

/* The lower of both, or the higher; NaN if the second is. On x86 that is one instruction, which compilers don't find. */
#if defined(__AVX__) && VECTOR_BYTES == 32 && REAL_BYTES == 4
#define LOWER __builtin_ia32_minps256
#define HIGHER __builtin_ia32_maxps256
#elif defined(__AVX__) && VECTOR_BYTES == 32
#define LOWER __builtin_ia32_minpd256
#define HIGHER __builtin_ia32_maxpd256
#else
#define LOWER(a, b) v_select(a < b, a, b)
#define HIGHER(a, b) v_select(a > b, a, b)
#endif

INLINE V power_of_two(M k) { return (V)((k + BIAS) << MANTISSA); }

/* expm1(r) for |r| of at most half of log 2, by the polynomial of that degree that is off by the least: 0.1 ulp. */
INLINE V expm1_of_rest(V r)
{
    const V square = r * r;
#if REAL_BYTES == 8
    const V fourth = square * square;
    const V first = (0.16666666666666686058 * r + 0.5000000000000005543) +
                    square * (0.0083333333333145333432 * r + 0.041666666666573436221);
    const V second = (0.00019841269903199598992 * r + 0.0013888888932489596494) +
                     square * (2.7557227765417581328e-6 * r + 0.000024801504272554477527);
    const V third = 2.511454403041801567e-8 * r + 2.76264076327943623e-7;
    return r + square * (first + fourth * (second + fourth * third));
#else
    const V high = 0.0013946524775628f * square + (0.0083666314079498f * r + 0.0416662811801631f);
    return r + square * (square * high + (0.1666654267641412f * r + 0.5000000062041593f));
#endif
}

/* With y = k·log 2 + r: r, and k. */
INLINE V rest_of(V y, M *k)
{
    const V shifted = y * OVER_LOG2 + MAGIC, whole = shifted - MAGIC;
    *k = (M)shifted - (M)splat(MAGIC);
    return (y - whole * LOG2_HIGH) - whole * LOG2_LOW;
}

/* The same where e^y is added to 1, so that what multiples of LOG2 are off by is lost. */
#ifdef __FMA__
INLINE V small_rest_of(V y, M *k)
{
    const V shifted = y * OVER_LOG2 + MAGIC;
    *k = (M)shifted - (M)splat(MAGIC);
    return y - (shifted - MAGIC) * LOG2;
}
#define SMALL_REST small_rest_of
#else
#define SMALL_REST rest_of
#endif

/* -expm1(-2|x|)/(2 + expm1(-2|x|)) with the sign of x. */
INLINE V v_tanh(V x)
{
    const REAL enough = REAL_BYTES == 8 ? 20 : 10; /* where e^-2x is nothing beside 1 */
    const V y = -2 * LOWER(splat(enough), v_fabs(x));
    M k;
    const V rest = SMALL_REST(y, &k), scale = power_of_two(k);
    const V less = scale * expm1_of_rest(rest) + (scale - 1);
    return v_copysign(less / (2 + less), x);
}

/* By two factors, as the result may be a number so small that no single one makes it. */
INLINE V v_exp(V x)
{
    const REAL least = REAL_BYTES == 8 ? -750 : -110, most = REAL_BYTES == 8 ? 715 : 90;
    M k;
    const V rest = rest_of(HIGHER(splat(least), LOWER(splat(most), x)), &k);
    const M half = (M)((U)(k + 2 * BIAS) >> 1) - BIAS;
    const V scale = power_of_two(half);
    return (scale + scale * expm1_of_rest(rest)) * power_of_two(k - half);
}

/* 1/(1 + e^-x), both halved so that the largest e^-x is one number. */
INLINE V v_sigmoid(V x)
{
    const REAL least = -60, most = REAL_BYTES == 8 ? 710.5 : 89.5f; /* nothing beside 1; infinite */
    M k;
    const V rest = rest_of(HIGHER(splat(least), LOWER(splat(most), -x)), &k), scale = power_of_two(k - 1);
    return (REAL)0.5 / (scale * (1 + expm1_of_rest(rest)) + (REAL)0.5);
}
#endif
