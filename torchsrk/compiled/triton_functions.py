"""The functions of a step in Triton: those of vector.h and functions.h that need nothing but arithmetic.

They run on a GPU and in Triton's interpreter alike, so what a test sees is what a GPU runs. Triton's own ``exp``, ``/``
and ``sqrt`` are inexact in float32; the rest of what is called here it takes from CUDA's library of functions.
"""

import triton
import triton.language as tl


@triton.jit
def v_sqrt(x):
    if x.dtype == tl.float32:
        y = tl.sqrt_rn(x)
    else:
        y = tl.sqrt(x)
    return y


@triton.jit
def v_divide(a, b):
    if a.dtype == tl.float32 and b.dtype == tl.float32:
        y = tl.div_rn(a, b)
    else:
        y = a / b
    return y


@triton.jit
def v_neg(x):
    return x * -1.0  # -x is 0 - x here, which has another sign where x is 0


@triton.jit
def v_fabs(x):
    return tl.abs(x)


@triton.jit
def v_floor(x):
    return tl.floor(x)


@triton.jit
def v_ceil(x):
    return tl.ceil(x)


@triton.jit
def v_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def v_rint(x):
    """To the nearest whole number, and of two the even one."""
    if x.dtype == tl.float32:
        whole = (tl.abs(x) + 8388608.0) - 8388608.0
        y = tl.where(tl.abs(x) < 8388608.0, v_copysign(whole, x), x)
    else:
        whole = (tl.abs(x) + 4503599627370496.0) - 4503599627370496.0
        y = tl.where(tl.abs(x) < 4503599627370496.0, v_copysign(whole, x), x)
    return y


@triton.jit
def v_signbit(x):
    if x.dtype == tl.float32:
        y = x.to(tl.int32, bitcast=True) < 0
    else:
        y = x.to(tl.int64, bitcast=True) < 0
    return y


@triton.jit
def v_copysign(size, sign):
    return tl.where(v_signbit(sign), tl.abs(size) * -1.0, tl.abs(size))


@triton.jit
def v_isnan(x):
    return x != x


@triton.jit
def v_isinf(x):
    return tl.abs(x) == float("inf")


@triton.jit
def v_not(condition):
    return condition == 0


@triton.jit
def v_select(condition, yes, no):
    return tl.where(condition, yes, no)


@triton.jit
def v_maximum(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def v_minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def v_fmax(a, b):
    return tl.where((a > b) | (b != b), a, b)


@triton.jit
def v_fmin(a, b):
    return tl.where((a < b) | (b != b), a, b)


@triton.jit
def v_relu(x):
    return tl.where(x < 0, 0.0, x)


@triton.jit
def v_sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0)).to(x.dtype)


@triton.jit
def v_fmod(a, b):
    return a % b


@triton.jit
def v_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def v_power(x, exponent: tl.constexpr):
    y = x * 0.0 + 1.0 if exponent == 0 else x
    for _ in tl.static_range(exponent - 1):
        y = y * x
    return y


@triton.jit
def _expm1_of_rest(r):
    """expm1(r) for |r| of at most half of log 2: see exponential.h."""
    square = r * r
    if r.dtype == tl.float32:
        high = 0.0013946524775628 * square + (0.0083666314079498 * r + 0.0416662811801631)
        y = r + square * (square * high + (0.1666654267641412 * r + 0.5000000062041593))
    else:
        fourth = square * square
        first = (0.16666666666666686058 * r + 0.5000000000000005543) + square * (
            0.0083333333333145333432 * r + 0.041666666666573436221
        )
        second = (0.00019841269903199598992 * r + 0.0013888888932489596494) + square * (
            2.7557227765417581328e-6 * r + 0.000024801504272554477527
        )
        third = 2.511454403041801567e-8 * r + 2.76264076327943623e-7
        y = r + square * (first + fourth * (second + fourth * third))
    return y


@triton.jit
def _rest_of(y):
    """With y = k·log 2 + r: r, and k as a float."""
    whole = v_rint(y * 1.44269504088896340736)
    if y.dtype == tl.float32:
        r = (y - whole * 0.693359375) - whole * -0.00021219444170128554
    else:
        r = (y - whole * 0.6931471803691238) - whole * 1.9082149292705877e-10
    return r, whole


@triton.jit
def _power_of_two(k):
    """2^k, of a whole k in a float for which that is a normal number."""
    if k.dtype == tl.float32:
        y = ((k.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    else:
        y = ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    return y


@triton.jit
def v_exp(x):
    """By two factors, as the result may be a number so small that no single one makes it."""
    if x.dtype == tl.float32:
        bounded = tl.where(x < -110.0, -110.0, tl.where(x > 90.0, 90.0, x))
        finite = tl.where(x == x, bounded, 0.0)
        rest, k = _rest_of(finite)
        half = tl.floor(k * 0.5)
        scale = _power_of_two(half)
        y = (scale + scale * _expm1_of_rest(rest)) * _power_of_two(k - half)
        y = tl.where(x == x, y, x)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def v_expm1(x):
    near = tl.where(tl.abs(x) < 20.0, x, x * 0.0)
    near = tl.where(near == near, near, 1.0)
    rest, k = _rest_of(near)
    scale = _power_of_two(k)
    return tl.where(tl.abs(x) < 20.0, scale * _expm1_of_rest(rest) + (scale - 1.0), v_exp(x) - 1.0)


@triton.jit
def v_tanh(x):
    """-expm1(-2|x|)/(2 + expm1(-2|x|)) with the sign of x."""
    bounded = tl.where(tl.abs(x) > 20.0, 20.0, tl.abs(x))
    less = v_expm1(bounded * -2.0)
    return v_copysign(v_divide(less, 2.0 + less), x)


@triton.jit
def v_sigmoid(x):
    """1/(1 + e^-x), of -|x| and mirrored: e^|x| may be no number."""
    small = v_exp(tl.abs(x) * -1.0)
    share = v_divide(small, 1.0 + small)
    return tl.where(x < 0, share, v_divide(1.0 + small * 0.0, 1.0 + small))


@triton.jit
def v_log(x):
    return tl.log(x)


@triton.jit
def v_log1p(x):
    """log(1 + x) with what 1 + x loses in rounding (Kahan)."""
    u = 1.0 + x
    moved = u - 1.0
    safe = tl.where(moved == 0, 1.0 + moved, moved)
    # Infinity over infinity is none.
    scaled = tl.where(u == float("inf"), u, tl.log(u) * v_divide(x, safe))
    return tl.where(moved == 0, x, scaled)


@triton.jit
def v_exp2(x):
    y = x.to(tl.float64)
    bounded = tl.where(y < -1100.0, -1100.0, tl.where(y > 1100.0, 1100.0, tl.where(y == y, y, 0.0)))
    whole = v_rint(bounded)
    half = tl.floor(whole * 0.5)
    power = tl.exp((bounded - whole) * 0.6931471805599453) * _power_of_two(half) * _power_of_two(whole - half)
    return tl.where(y == y, power, y).to(x.dtype)


@triton.jit
def v_log2(x):
    return (tl.log(x.to(tl.float64)) * 1.4426950408889634).to(x.dtype)


@triton.jit
def v_log10(x):
    return (tl.log(x.to(tl.float64)) * 0.4342944819032518).to(x.dtype)


@triton.jit
def v_sin(x):
    return tl.sin(x)


@triton.jit
def v_cos(x):
    return tl.cos(x)


@triton.jit
def v_tan(x):
    return v_divide(tl.sin(x), tl.cos(x))


@triton.jit
def v_sinh(x):
    """By expm1 of half of |x| on, as the exponential of the whole may be no number where half of it is one."""
    size = tl.abs(x)
    less = v_expm1(size)
    large = v_exp(size * 0.5)
    return v_copysign(tl.where(size < 20.0, 0.5 * (less + v_divide(less, less + 1.0)), large * 0.5 * large), x)


@triton.jit
def v_cosh(x):
    half = v_exp(tl.abs(x) * 0.5)
    whole = v_exp(tl.abs(x))
    return tl.where(tl.abs(x) < 20.0, 0.5 * (whole + v_divide(1.0 + whole * 0.0, whole)), half * 0.5 * half)


@triton.jit
def v_asinh(x):
    size = tl.abs(x)
    square = size * size
    near = v_log1p(size + v_divide(square, 1.0 + v_sqrt(1.0 + square)))
    return v_copysign(tl.where(size < 1e9, near, tl.log(size) + 0.6931471805599453), x)


@triton.jit
def v_atanh(x):
    return 0.5 * (v_log1p(x) - v_log1p(x * -1.0))


@triton.jit
def v_erf(x):
    return tl.erf(x)


@triton.jit
def v_logaddexp(a, b):
    high, low = v_maximum(a, b), v_minimum(a, b)
    return tl.where((a == b) & v_isinf(a), a, high + v_log1p(v_exp(low - high)))


@triton.jit
def v_hypot(a, b):
    """In float64, whose range holds the squares of float32; of float64 by the larger one."""
    high, low = v_maximum(tl.abs(a), tl.abs(b)), v_minimum(tl.abs(a), tl.abs(b))
    ratio = v_divide(low, tl.where(high == 0, 1.0 + high, high))
    return tl.where(v_isinf(high), high, high * v_sqrt(1.0 + ratio * ratio))


@triton.jit
def v_pow(x, y):
    """e^(y·log|x|) in float64, with a sign where y is whole."""
    base, exponent = x.to(tl.float64), y.to(tl.float64)
    size = tl.exp(exponent * tl.log(tl.abs(base)))
    whole = exponent == tl.floor(exponent)
    odd = whole & (tl.floor(exponent * 0.5) * 2.0 != exponent)
    signed = tl.where(base < 0, tl.where(whole, tl.where(odd, size * -1.0, size), float("nan")), size)
    return tl.where((exponent == 0) | (base == 1), 1.0, signed).to(x.dtype)


@triton.jit
def v_erfc(x):
    """t·exp(P(t) - x²) with t = 2/(2 + |x|), and 2 less that for what is negative; P by Chebyshev's polynomials."""
    size = tl.abs(x.to(tl.float64))
    t = 2.0 / (2.0 + size)
    twice = 4.0 * t - 2.0
    next_but_one = t * 0.0
    total = t * 0.0 + -1.5230282014571043e-15
    total, next_but_one = (twice * total - next_but_one) + 7.106097613609237e-15, total
    total, next_but_one = (twice * total - next_but_one) + 3.810905255189232e-16, total
    total, next_but_one = (twice * total - next_but_one) + -1.1270822361367252e-13, total
    total, next_but_one = (twice * total - next_but_one) + 3.130921399342958e-13, total
    total, next_but_one = (twice * total - next_but_one) + 8.944879273090725e-13, total
    total, next_but_one = (twice * total - next_but_one) + -6.886027526497553e-12, total
    total, next_but_one = (twice * total - next_but_one) + 2.3940380830391146e-12, total
    total, next_but_one = (twice * total - next_but_one) + 9.646791102015527e-11, total
    total, next_but_one = (twice * total - next_but_one) + -2.273651222931836e-10, total
    total, next_but_one = (twice * total - next_but_one) + -9.91364156493033e-10, total
    total, next_but_one = (twice * total - next_but_one) + 5.059343495551469e-09, total
    total, next_but_one = (twice * total - next_but_one) + 6.5290544390988515e-09, total
    total, next_but_one = (twice * total - next_but_one) + -8.523809591492654e-08, total
    total, next_but_one = (twice * total - next_but_one) + 1.5626441722066142e-08, total
    total, next_but_one = (twice * total - next_but_one) + 1.3036558355805232e-06, total
    total, next_but_one = (twice * total - next_but_one) + -1.6242900046470256e-06, total
    total, next_but_one = (twice * total - next_but_one) + -2.0278578112534242e-05, total
    total, next_but_one = (twice * total - next_but_one) + 4.252332480690777e-05, total
    total, next_but_one = (twice * total - next_but_one) + 0.00036683949785276145, total
    total, next_but_one = (twice * total - next_but_one) + -0.0009465953444820369, total
    total, next_but_one = (twice * total - next_but_one) + -0.009561514786808632, total
    total, next_but_one = (twice * total - next_but_one) + 0.019476473204185836, total
    total, next_but_one = (twice * total - next_but_one) + 0.6419697923564902, total
    # The square of the first half of its bits is exact: e^-x² would lose by what x² is rounded.
    high = size.to(tl.float32).to(tl.float64)
    rest = (-0.6513268598908547 + 0.5 * twice * total - next_but_one) + (high - size) * (high + size)
    tail = tl.where(size < 1e9, t * tl.exp(high * high * -1.0) * tl.exp(rest), tl.where(size == size, 0.0, size))
    return tl.where(x < 0, 2.0 - tail, tail).to(x.dtype)
