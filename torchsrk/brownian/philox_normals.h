/* Box-Muller for one instruction set: a part of philox_vector.h.
 *
 * Radius: u in (0, 1] with -2 log u = -2 e log 2 - 4 artanh(s), s = (m - 1)/(m + 1), u = m 2^e, m in
 * [1/sqrt 2, sqrt 2).
 * Angle: the two top bits are a quadrant, the rest a fraction t of it in [-1/2, 1/2).
 * The coefficients interpolate at Chebyshev nodes, worked out to 50 digits: artanh in s^2, sin and cos in t^2.
 *
 * A power of two that philox.py multiplies by is left out where it cancels, and a sign moves from the sine and the
 * cosine to the radius: both are exact. */

#define EVALUATE(value, expression)                                                                            \
    EACH_UNIT                                                                                                  \
    {                                                                                                          \
        value[g] = expression;                                                                                 \
        PIN(value[g]);                                                                                         \
    }
#define HORNER(p, x, coefficient) EVALUATE(p, p[g] * x[g] + coefficient)

/* There are no registers in which to keep what is loaded. */
#define READ_AGAIN(from) __asm__ volatile("" : "+r"(from))

/* 31 bits, finest near 0: the largest normal is 6.66. From words to s, in their place, and e times a factor. */
INLINE_HERE void NAME(reduce32)(char *left, char *e)
{
    const uint32_t root_half = 0x3f3504f3u;
    U32 shifted[UNITS], e_bits[UNITS];
    F32 m[UNITS];
    EVALUATE(m, __builtin_convertvector((I32)(LOAD(U32, left + g * BYTES) >> 1), F32) + 0.5f) /* u times 2^31 */
    EVALUATE(shifted, (U32)m[g] - (root_half + (31u << 23)))
    EACH_UNIT e_bits[g] = shifted[g] & 0xff800000u; /* e times 2^23 */
    EACH_UNIT m[g] = (F32)((U32)m[g] - e_bits[g]);
    EACH_UNIT STORE(F32, left + g * BYTES, (m[g] - 0x1p31f) / (m[g] + 0x1p31f));
    EACH_UNIT STORE(F32, e + g * BYTES, __builtin_convertvector((I32)e_bits[g], F32) * (-1.3862944f * 0x1p-23f));
}

INLINE_HERE void NAME(square32)(char *left, const char *e)
{
    F32 s[UNITS], z[UNITS], p[UNITS];
    EACH_UNIT s[g] = LOAD(F32, left + g * BYTES);
    EVALUATE(z, s[g] * s[g])
    EVALUATE(p, z[g] * -0.5984878f + -0.799497f)
    HORNER(p, z, -1.3333364f)
    HORNER(p, z, -4.0f)
    EACH_UNIT STORE(F32, left + g * BYTES, LOAD(F32, e + g * BYTES) + s[g] * p[g]);
}

/* A cell's halves are units side by side. */
#define PLACE(g, halves) (g % (halves) * HALF_BATCH + g / (halves) * BYTES)

/* The divider is slow, and what comes behind a root waits to retire: so they are taken one at a time amid the
 * polynomials. */
_Static_assert(UNITS == 4, "the roots below are of four units");
#define ROOT_OF_UNIT(g, root, type, place)                                                                     \
    {                                                                                                          \
        radius[g] = root(LOAD(type, left + (place)));                                                          \
        PIN(radius[g]);                                                                                        \
        radius[g] *= scale;                                                                                    \
    }

/* From squares of radii and words to normals. */
INLINE_HERE void NAME(turn32)(const char *left, const char *right, int halves, float scale, U64 *cosines, U64 *sines)
{
    F32 t[UNITS], z[UNITS], p[UNITS], q[UNITS], radius[UNITS];
    EVALUATE(t, __builtin_convertvector((I32)(LOAD(U32, right + PLACE(g, halves)) << 2), F32) * 0x1p-32f)
    ROOT_OF_UNIT(0, ROOT_32, F32, PLACE(0, halves))
    EVALUATE(z, t[g] * t[g])
    EVALUATE(p, z[g] * -0.004602149f + 0.07968022f)
    ROOT_OF_UNIT(1, ROOT_32, F32, PLACE(1, halves))
    EVALUATE(q, z[g] * 0.0009067399f + -0.020861529f)
    HORNER(p, z, -0.6459635f)
    ROOT_OF_UNIT(2, ROOT_32, F32, PLACE(2, halves))
    HORNER(q, z, 0.2536694f)
    HORNER(p, z, 1.5707964f)
    ROOT_OF_UNIT(3, ROOT_32, F32, PLACE(3, halves))
    HORNER(q, z, -1.2337005f)
    EVALUATE(p, p[g] * t[g])
    HORNER(q, z, 1.0f)
    EACH_UNIT
    {
        READ_AGAIN(right);
        const U32 word = LOAD(U32, right + PLACE(g, halves)), odd = word << 1;
        const F32 signed_radius = (F32)((U32)radius[g] ^ (word & 0x80000000u));
        cosines[g] = (U64)(signed_radius * SELECT_32(odd, -p[g], q[g]));
        sines[g] = (U64)(signed_radius * SELECT_32(odd, q[g], p[g]));
    }
}

/* 52 bits: the largest normal is 8.49. */
INLINE_HERE void NAME(reduce64)(char *left, char *e)
{
    const uint64_t one = 0x3ff0000000000000u, root_half = 0x3fe6a09e667f3bcdu, exponent = 0x4330000000000000u;
    U64 shifted[UNITS];
    F64 m[UNITS];
    EVALUATE(shifted, (U64)(2.0 - (F64)(LOAD(U64, left + g * BYTES) >> 12 | one)) + (one - root_half))
    EACH_UNIT m[g] = (F64)((shifted[g] & 0x000fffffffffffffu) + root_half);
    EACH_UNIT STORE(F64, left + g * BYTES, (m[g] - 1.0) / (m[g] + 1.0));
    EACH_UNIT m[g] = (F64)(shifted[g] >> 52 | exponent) - 4503599627371519.0; /* 2^52 + 1023 */
    EACH_UNIT STORE(F64, e + g * BYTES, m[g] * -1.3862943611198906);
}

INLINE_HERE void NAME(square64)(char *left, const char *e)
{
    F64 s[UNITS], z[UNITS], p[UNITS];
    EACH_UNIT s[g] = LOAD(F64, left + g * BYTES);
    EVALUATE(z, s[g] * s[g])
    EVALUATE(p, z[g] * -0.2961942072131055 + -0.3062505629672838)
    HORNER(p, z, -0.36367263360458657)
    HORNER(p, z, -0.44444394113452096)
    HORNER(p, z, -0.5714285752128336)
    HORNER(p, z, -0.7999999999860468)
    HORNER(p, z, -1.333333333333353)
    HORNER(p, z, -4.0)
    EACH_UNIT STORE(F64, left + g * BYTES, LOAD(F64, e + g * BYTES) + s[g] * p[g]);
}

INLINE_HERE void NAME(turn64)(const char *left, const char *right, double scale, U64 *cosines, U64 *sines)
{
    const uint64_t one = 0x3ff0000000000000u, mantissa = 0x000fffffffffffffu;
    F64 t[UNITS], z[UNITS], p[UNITS], q[UNITS], radius[UNITS];
    EVALUATE(t, (F64)((LOAD(U64, right + g * BYTES) >> 10 & mantissa) | one) - 1.5)
    ROOT_OF_UNIT(0, ROOT_64, F64, 0 * BYTES)
    EVALUATE(z, t[g] * t[g])
    EVALUATE(p, z[g] * 5.633933781537854e-08 + -3.59864335298231e-06)
    EVALUATE(q, z[g] * -6.329396344967424e-09 + 4.710678405505227e-07)
    ROOT_OF_UNIT(1, ROOT_64, F64, 1 * BYTES)
    HORNER(p, z, 0.0001604411507421909)
    HORNER(q, z, -2.5202039028029178e-05)
    HORNER(p, z, -0.004681754132340976)
    HORNER(q, z, 0.0009192602745468447)
    ROOT_OF_UNIT(2, ROOT_64, F64, 2 * BYTES)
    HORNER(p, z, 0.07969262624604301)
    HORNER(q, z, -0.020863480763340773)
    HORNER(p, z, -0.6459640975062443)
    HORNER(q, z, 0.2536695079010478)
    ROOT_OF_UNIT(3, ROOT_64, F64, 3 * BYTES)
    HORNER(p, z, 1.5707963267948966)
    HORNER(q, z, -1.2337005501361697)
    EVALUATE(p, p[g] * t[g])
    HORNER(q, z, 1.0)
    EACH_UNIT
    {
        READ_AGAIN(right);
        const U64 word = LOAD(U64, right + g * BYTES), odd = word << 1;
        const F64 signed_radius = (F64)((U64)radius[g] ^ (word & 0x8000000000000000u));
        cosines[g] = (U64)(signed_radius * SELECT_64(odd, -p[g], q[g]));
        sines[g] = (U64)(signed_radius * SELECT_64(odd, q[g], p[g]));
    }
}

/* From words to squares of radii, in place. Two loops, because the chain through both is too long. */
INLINE_HERE void NAME(squares)(Batch *batch, int kind, size_t bytes, int halves)
{
    _Alignas(64) char e[BATCH];
    for (int half = 0; half < halves; half++) {
        char *const left = batch->left + half * HALF_BATCH;
#define EACH_PLACE for (size_t at = 0; at < bytes; at += UNITS * BYTES)
        if (kind == FLOAT64) {
            EACH_PLACE NAME(reduce64)(left + at, e + at);
            EACH_PLACE NAME(square64)(left + at, e + at);
        } else {
            EACH_PLACE NAME(reduce32)(left + at, e + at);
            EACH_PLACE NAME(square32)(left + at, e + at);
        }
#undef EACH_PLACE
    }
}

/* The normals of UNITS vectors, or the words where those are wanted. */
INLINE_HERE void NAME(turn)(const Batch *batch, size_t at, int kind, int halves, double scale, U64 *left, U64 *right)
{
    if (kind == FLOAT64)
        NAME(turn64)(batch->left + at, batch->right + at, scale, left, right);
    else if (kind == FLOAT32)
        NAME(turn32)(batch->left + at, batch->right + at, halves, (float)scale, left, right);
    else
        EACH_UNIT
        {
            left[g] = LOAD(U64, batch->left + at + PLACE(g, halves));
            right[g] = LOAD(U64, batch->right + at + PLACE(g, halves));
        }
}

#undef EVALUATE
#undef HORNER
#undef READ_AGAIN
#undef ROOT_OF_UNIT
