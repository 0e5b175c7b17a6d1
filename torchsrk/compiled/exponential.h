/* Functions by one exponential, where that is faster than glibc's: expm1 of the remainder by its power series, which
 * the compiler puts into the loops around it, so that calls overlap. About 2 ulp, as glibc's own, which is as fast on
 * AVX-512 in single precision; and of one chain it is glibc's that loops over entries can make vectors of. */
#if !defined(ONE_BY_ONE) && (REAL_BYTES == 8 || VECTOR_BYTES < 64)
#define HAS_TANH
#if REAL_BYTES == 8
#define EXP_MAGIC 0x1.8p52 /* added to a number, it rounds it to a whole one, that is then in the last bits */
#define EXP_MANTISSA 52
#define EXP_BIAS 1023
#define LOG2_HIGH 0x1.62e42feep-1 /* with so many zeros at its end that multiples are exact */
#define LOG2_LOW 0x1.a39ef35793c76p-33
#define EXP_SERIES                                                                                             \
    1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720,     \
        1. / 120, 1. / 24, 1. / 6, 1. / 2
#else
#define EXP_MAGIC 0x1.8p23f
#define EXP_MANTISSA 23
#define EXP_BIAS 127
#define LOG2_HIGH 0x1.63p-1f
#define LOG2_LOW -0x1.bd0106p-13f
#define EXP_SERIES 1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 1.f / 2
#endif

INLINE V power_of_two(M k) { return (V)((k + EXP_BIAS) << EXP_MANTISSA); }

/* With y = k·log 2 + r and |r| at most half of log 2: expm1(r) and k. */
INLINE V v_expm1_of_rest(V y, M *k)
{
    static const REAL series[] = {EXP_SERIES};
    const V shifted = y * (REAL)1.44269504088896340736 + EXP_MAGIC, whole = shifted - EXP_MAGIC;
    const V rest = (y - whole * LOG2_HIGH) - whole * LOG2_LOW;
    V sum = splat(series[0]);
    for (int i = 1; i < (int)(sizeof series / sizeof *series); i++)
        sum = sum * rest + series[i];
    *k = (M)shifted - (M)splat(EXP_MAGIC);
    return rest + rest * rest * sum;
}

/* -expm1(-2|x|)/(2 + expm1(-2|x|)) with the sign of x. */
INLINE V v_tanh(V x)
{
    const REAL enough = REAL_BYTES == 8 ? -40 : -20; /* where e^y is nothing beside 1 */
    const V y = -2 * v_fabs(x);
    M k;
    const V rest = v_expm1_of_rest(v_select(y < enough, splat(enough), y), &k), scale = power_of_two(k);
    const V less = scale * rest + (scale - 1);
    return v_copysign(-less / (2 + less), x);
}

#if REAL_BYTES == 4
#define HAS_EXP
/* By two factors, as the result may be a number so small that no single one makes it. */
INLINE V v_exp(V x)
{
    const V bounded = v_select(x < -110, splat(-110), v_select(x > 90, splat(90), x));
    M k;
    const V rest = v_expm1_of_rest(bounded, &k);
    const M half = k >> 1;
    const V scale = power_of_two(half);
    return (scale + scale * rest) * power_of_two(k - half);
}
#endif
#endif
