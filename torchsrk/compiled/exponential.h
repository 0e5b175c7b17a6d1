/* Functions by one exponential, faster than glibc's: its remainder by a polynomial, or a quotient of two; and the compiler
 * puts it into the loops around it, so that calls overlap, or makes vectors of it where particles run one by one. About
 * 2 ulp; glibc's own are up to 4. */
#if REAL_BYTES == 8
#define UNSIGNED uint64_t
#define MANTISSA 52
#define BIAS 1023
/* Added to a number, it rounds it to a whole one k, and the last bits are those of the exponent of 2^k. */
#define MAGIC (0x1.8p52 + BIAS)
#define LOG2 0x1.62e42fefa39efp-1
#define LOG2_HIGH 0x1.62e42feep-1 /* with so many zeros at its end that multiples are exact */
#define LOG2_LOW 0x1.a39ef35793c76p-33
#else
#define UNSIGNED uint32_t
#define MANTISSA 23
#define BIAS 127
#define MAGIC (0x1.8p23f + BIAS)
#define LOG2 0x1.62e43p-1f
#define LOG2_HIGH 0x1.63p-1f
#define LOG2_LOW -0x1.bd0106p-13f
#endif
#define OVER_LOG2 (REAL)1.44269504088896340736
#ifdef ONE_BY_ONE
typedef UNSIGNED U;
INLINE M bits_of(V x)
{
    M bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
INLINE V of_bits(M bits)
{
    V x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#else
typedef UNSIGNED U __attribute__((vector_size(VECTOR_BYTES)));
INLINE M bits_of(V x) { return (M)x; }
INLINE V of_bits(M bits) { return (V)bits; }
#endif

/* The lower of both, or the higher; NaN if the second is. On x86 that is one instruction, which compilers don't find. */
#if defined(__AVX__) && VECTOR_BYTES == 32 && REAL_BYTES == 4
#define LOWER __builtin_ia32_minps256
#define HIGHER __builtin_ia32_maxps256
#elif defined(__AVX__) && VECTOR_BYTES == 32
#define LOWER __builtin_ia32_minpd256
#define HIGHER __builtin_ia32_maxpd256
#elif VECTOR_BYTES == 64
#ifdef __clang__
#define WIDEST(name, a, b) __builtin_ia32_##name(a, b, 4)
#else
#define WIDEST(name, a, b) __builtin_ia32_##name##_mask(a, b, a, -1, 4) /* all lanes; 4: rounded as ever */
#endif
#if REAL_BYTES == 4
#define LOWER(a, b) WIDEST(minps512, a, b)
#define HIGHER(a, b) WIDEST(maxps512, a, b)
#else
#define LOWER(a, b) WIDEST(minpd512, a, b)
#define HIGHER(a, b) WIDEST(maxpd512, a, b)
#endif
#else
#define LOWER(a, b) v_select(a < b, a, b)
#define HIGHER(a, b) v_select(a > b, a, b)
#endif

INLINE V power_of_two(M k) { return of_bits((M)((U)(k + BIAS) << MANTISSA)); }

/* expm1(r) for |r| of at most half of log 2, by the polynomial of that degree that is off by the least: 0.1 ulp. Added
 * up by pairs, and pairs of pairs, as the wait for one term after another is what takes the time. */
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

/* With y = k·log 2 + r: k, and r. */
INLINE M split(V y, V *rest)
{
    const V shifted = y * OVER_LOG2 + MAGIC, whole = shifted - MAGIC;
    *rest = (y - whole * LOG2_HIGH) - whole * LOG2_LOW;
    return bits_of(shifted) - bits_of(splat(MAGIC));
}

/* By two factors, as the result may be a number so small that no single one makes it. */
INLINE V v_exp(V x)
{
    const REAL least = REAL_BYTES == 8 ? -750 : -110, most = REAL_BYTES == 8 ? 715 : 90;
    V rest;
    const M k = split(HIGHER(splat(least), LOWER(splat(most), x)), &rest), half = (M)((U)(k + 2 * BIAS) >> 1) - BIAS;
    const V scale = power_of_two(half);
    return (scale + scale * expm1_of_rest(rest)) * power_of_two(k - half);
}

/* By half of 2^k, as all of it may be too large where the result is not. */
INLINE V v_expm1(V x)
{
    const REAL least = REAL_BYTES == 8 ? -50 : -25, most = (REAL)((BIAS + 1.2) * LOG2); /* -1 is left, or infinity */
    V rest;
    const M k = split(HIGHER(splat(least), LOWER(splat(most), x)), &rest);
    const V half = power_of_two(k - 1);
    return 2 * (half * expm1_of_rest(rest) + (half - (REAL)0.5));
}

/* e^2h = (c + h)/(c - h) with c = h·coth(h), whose polynomial in z = h² is shorter than that of e^h: for what is a quotient
 * anyway. */
INLINE V h_coth(V z)
{
#if REAL_BYTES == 8
    const V high = (2.118699443030899638e-5 * z - 2.116339311404605683e-4) * z + 2.116402022485027995e-3;
    return ((high * z - 0.02222222222160921309) * z + 0.3333333333333320341) * z + 1;
#else
    return (-0.02213393570150786987f * z + 0.3333325135565557259f) * z + 1;
#endif
}

/* 2^k, from a number to which MAGIC was added to round it to k. */
INLINE V rounded_power(V shifted) { return of_bits((M)((U)bits_of(shifted) << MANTISSA)); }

#ifdef __FMA__
/* (e - 1)/(e + 1) for e = e^2x = 2^k·(c + h)/(c - h). Where e is large, what multiples of LOG2 are off by is lost. */
INLINE V v_tanh(V x)
{
    const REAL enough = REAL_BYTES == 8 ? 20 : 10; /* where 1 is nothing beside e */
    const V y = HIGHER(splat(-enough), LOWER(splat(enough), x));
    const V shifted = y * (2 * OVER_LOG2) + MAGIC, power = rounded_power(shifted);
    const V h = y - (shifted - MAGIC) * (LOG2 / 2), c = h_coth(h * h);
    const V up = power + 1, down = 1 - power;
    const V less = c * down, more = c * up; /* the larger products come first: these are the ones that are fused */
    return (h * up - less) / (more - h * down);
}
#else
/* -expm1(-2|x|)/(2 + expm1(-2|x|)) with the sign of x: quotients as above lose a bit more without fused products. */
INLINE V v_tanh(V x)
{
    const REAL enough = REAL_BYTES == 8 ? 20 : 10;
    V rest;
    const M k = split(-2 * LOWER(splat(enough), v_fabs(x)), &rest);
    const V scale = power_of_two(k), less = scale * expm1_of_rest(rest) + (scale - 1);
    return v_copysign(less / (2 + less), x);
}
#endif

/* 1/(1 + e) for e = e^-x = 2^k·(c - h)/(c + h), where x = 2h - k·log 2, both halved so that the largest e is one number;
 * 0 where it is infinite. */
INLINE V v_sigmoid(V x)
{
    const REAL least = (REAL)(-(BIAS + 2.4) * LOG2), most = 60;
    const V y = HIGHER(splat(least), LOWER(splat(most), x));
    const V shifted = y * -OVER_LOG2 + (MAGIC - 1), whole = shifted - (MAGIC - 1);
    const V h = (REAL)0.5 * ((y + whole * LOG2_HIGH) + whole * LOG2_LOW), c = h_coth(h * h);
    const V rest = (REAL)0.5 * (c + h);
    return rest / (rounded_power(shifted) * (c - h) + rest);
}
