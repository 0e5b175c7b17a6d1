/* The functions of a compiled step, a vector at a time where glibc can: after vector.h and exponential.h. */
#if defined(VECTOR_MATH) && defined(ONE_BY_ONE)
/* glibc has vectors of these: say so, and loops that call them become vectors too. */
#define FUNCTION(name)                                                                                         \
    extern REAL F(name)(REAL) __attribute__((const, simd("notinbranch")));                                     \
    BY_LANE(name)
#define FUNCTION_2(name)                                                                                       \
    extern REAL F(name)(REAL, REAL) __attribute__((const, simd("notinbranch")));                               \
    BY_LANE_2(name)
#elif defined(VECTOR_MATH)
/* glibc's libmvec: named for the instruction set (AVX-512 e, AVX2 d, SSE b), the lanes and the arguments. */
#if VECTOR_BYTES == 64 && REAL_BYTES == 4
#define MVEC_PREFIX(arguments) _ZGVeN16##arguments##_
#elif VECTOR_BYTES == 64
#define MVEC_PREFIX(arguments) _ZGVeN8##arguments##_
#elif VECTOR_BYTES == 32 && REAL_BYTES == 4
#define MVEC_PREFIX(arguments) _ZGVdN8##arguments##_
#elif VECTOR_BYTES == 32
#define MVEC_PREFIX(arguments) _ZGVdN4##arguments##_
#elif REAL_BYTES == 4
#define MVEC_PREFIX(arguments) _ZGVbN4##arguments##_
#else
#define MVEC_PREFIX(arguments) _ZGVbN2##arguments##_
#endif
#define JOIN(a, b) a##b
#define JOIN_EXPANDED(a, b) JOIN(a, b)
#define FUNCTION_NAMED(name, symbol)                                                                           \
    extern V symbol(V) __attribute__((const));                                                                 \
    INLINE V v_##name(V x) { return symbol(x); }
#define FUNCTION_2_NAMED(name, symbol)                                                                         \
    extern V symbol(V, V) __attribute__((const));                                                              \
    INLINE V v_##name(V a, V b) { return symbol(a, b); }
#define FUNCTION(name) FUNCTION_NAMED(name, JOIN_EXPANDED(MVEC_PREFIX(v), F(name)))
#define FUNCTION_2(name) FUNCTION_2_NAMED(name, JOIN_EXPANDED(MVEC_PREFIX(vv), F(name)))
#else
#define FUNCTION(name) BY_LANE(name)
#define FUNCTION_2(name) BY_LANE_2(name)
#endif

FUNCTION(exp2)
FUNCTION(log)
FUNCTION(log2)
FUNCTION(log10)
FUNCTION(log1p)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tan)
FUNCTION(asin)
FUNCTION(acos)
FUNCTION(atan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)
FUNCTION(erf)
FUNCTION(erfc)
FUNCTION_2(pow)
FUNCTION_2(atan2)
FUNCTION_2(hypot)

/* ψ, by its recurrence up to where its asymptotic series (Abramowitz and Stegun, 6.3.18) is exact, and by reflection.
 * One lane at a time, in double precision. */
INLINE double digamma_of(double x)
{
    static const double series[] = {1. / 12, -1. / 120, 1. / 252, -1. / 240, 5. / 660, -691. / 32760, 1. / 12};
    if (x == 0)
        return copysign(INFINITY, -x);
    if (x < 0 && x == floor(x))
        return NAN;
    double sum = 0;
    if (x < 0) {
        sum = -M_PI / tan(M_PI * (x - floor(x)));
        x = 1 - x;
    }
    for (; x < 10; x += 1)
        sum -= 1 / x;
    const double square = 1 / (x * x);
    double rest = 0;
    for (int i = 6; i >= 0; i--)
        rest = square * (series[i] + rest);
    return sum + log(x) - 0.5 / x - rest;
}

/* ψ', in the same way (6.4.12), and no more exactly than torch has it: six steps up and three terms. */
INLINE double trigamma_of(double x)
{
    double sum = 0, sign = 1;
    if (x < 0.5) {
        const double sine = sin(M_PI * x);
        sum = -(M_PI * M_PI) / (sine * sine);
        sign = -1;
        x = 1 - x;
    }
    for (int i = 0; i < 6; i++, x += 1)
        sum += 1 / (x * x);
    const double square = 1 / (x * x);
    sum += (1 + 0.5 / x + square * (1. / 6 - square * (1. / 30 - square / 42))) / x;
    return sign * sum;
}

/* The inverse of erf: Giles's approximation in single precision (2012), and two of Newton's steps. */
INLINE double erfinv_of(double y)
{
    static const double middle[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                    -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
    static const double outer[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                   -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
    const double left = 1 - fabs(y);
    if (!(left > 0))
        return left == 0 ? copysign(INFINITY, y) : NAN;
    const double w = -log(left * (1 + fabs(y))), at = w < 5 ? w - 2.5 : sqrt(w) - 3;
    double x = 0;
    for (int i = 0; i < 9; i++)
        x = x * at + (w < 5 ? middle : outer)[i];
    x *= fabs(y);
    for (int i = 0; i < 2; i++) {
        const double off = left < 0.5 ? left - erfc(x) : erf(x) - fabs(y);
        x -= off * 0.88622692545275801365 * exp(x * x);
    }
    return copysign(x, y);
}

/* exp(x²)erfc(x): by both, with what x² loses in rounding, and further out by the asymptotic series (Abramowitz and
 * Stegun, 7.1.23). */
INLINE double erfcx_of(double x)
{
    if (x < 6) {
        const double square = x * x, lost = fma(x, x, -square);
        return exp(square) * (1 + lost) * erfc(x);
    }
    double term = 1, sum = 1;
    for (int n = 1; n < 20; n++) {
        term *= -(2 * n - 1) / (2 * x * x);
        sum += term;
    }
    return sum * 0.56418958354775628695 / x;
}

/* exp(-|x|)I(x) of order 0 or 1: the power series (Abramowitz and Stegun, 9.6.10), whose terms are all positive, and
 * further out the asymptotic one (9.7.1). */
INLINE double bessel_of(double x, int order)
{
    const double far = fabs(x);
    double term = 1, sum = 1;
    if (far < 20) {
        for (int k = 1; term > 1e-17 * sum; k++) {
            term *= far * far / (4.0 * k * (k + order));
            sum += term;
        }
        return exp(-far) * sum * (order ? 0.5 * x : 1);
    }
    for (int n = 1; n < 30; n++) {
        const double odd = 2 * n - 1;
        term *= (odd * odd - 4 * order) / (8 * far * n);
        sum += term;
    }
    sum /= sqrt(2 * M_PI * far);
    return order ? copysign(sum, x) : sum;
}
INLINE double i0e_of(double x) { return bessel_of(x, 0); }
INLINE double i1e_of(double x) { return bessel_of(x, 1); }
INLINE double i0_of(double x) { return exp(fabs(x)) * bessel_of(x, 0); }
INLINE double i1_of(double x) { return exp(fabs(x)) * bessel_of(x, 1); }

#ifdef ONE_BY_ONE
#define BY_LANE_OF(name)                                                                                       \
    INLINE V v_##name(V x) { return (V)name##_of(x); }
#else
#define BY_LANE_OF(name)                                                                                       \
    INLINE V v_##name(V x)                                                                                     \
    {                                                                                                          \
        V y;                                                                                                   \
        EACH_LANE y[lane] = (REAL)name##_of(x[lane]);                                                          \
        return y;                                                                                              \
    }
#endif
BY_LANE_OF(digamma)
BY_LANE_OF(trigamma)
BY_LANE_OF(erfinv)
BY_LANE_OF(erfcx)
BY_LANE_OF(i0)
BY_LANE_OF(i0e)
BY_LANE_OF(i1)
BY_LANE_OF(i1e)
INLINE V v_logaddexp(V a, V b)
{
    const V high = v_maximum(a, b), low = v_minimum(a, b);
    return v_select((a == b) & (v_fabs(a) == (REAL)INFINITY), a, high + v_log1p(v_exp(low - high)));
}
