/* Products of a tile's numbers and weights that are the same for all particles. A block of sums stays in registers: of
 * so many outputs (a panel of the weights, that lie side by side for each term) and so many groups of particles that an
 * addition need not wait for the one before it, and that a weight is loaded for several groups. Few outputs are too few
 * sums for that: each is then added up in parts. */

#define MOST_OUTPUTS 8
#define MOST_PARTS 4
#define PARTS(outputs) (outputs == 1 ? 4 : outputs <= 3 ? 2 : 1)
#define UNROLLED _Pragma("GCC unroll 16")
#define EACH_SUM UNROLLED for (int r = 0; r < outputs; r++) UNROLLED for (int i = 0; i < vectors; i++)
#define EACH_PART UNROLLED for (int part = 0; part < parts; part++)
/* The pointers that a product works with: every group's factor, and its results. */
#define EVERY_GROUP const V *left[GROUPS]; V *made[GROUPS];

INLINE void product_block(const int vectors, const int outputs, int terms, const V *const *left, V *const *made, int at,
                          const REAL *restrict weights, const REAL *restrict start)
{
    const int parts = PARTS(outputs);
    V sum[MOST_PARTS][MOST_OUTPUTS][GROUPS];
    const V *factor[GROUPS];
    int k = 0;
    UNROLLED for (int i = 0; i < vectors; i++)
        factor[i] = left[i];
    EACH_PART EACH_SUM sum[part][r][i] = splat(start && !part ? start[at + r] : 0);
    _Pragma("GCC unroll 4") for (; k <= terms - parts; k += parts, weights += parts * outputs)
        EACH_PART EACH_SUM sum[part][r][i] += factor[i][k + part] * weights[part * outputs + r];
    for (; parts > 1 && k < terms; k++, weights += outputs)
        EACH_SUM sum[0][r][i] += factor[i][k] * weights[r];
    UNROLLED for (int part = 1; part < parts; part++)
        EACH_SUM sum[0][r][i] += sum[part][r][i];
    EACH_SUM made[i][at + r] = sum[0][r][i];
}

/* made[r] = start[r] + Σ_k left[k]·weights(k, r) for r in a range, as a function of its own for each width of a panel:
 * the panels are one after another. */
#define PRODUCT(outputs)                                                                                       \
    __attribute__((noinline, noclone)) static void product_##outputs(int groups, int terms, int from, int to,  \
                                                                     const V *const *left, V *const *made,     \
                                                                     const REAL *weights, const REAL *start)   \
    {                                                                                                          \
        for (int at = from; at < to; at += outputs, weights += outputs * terms)                                \
            if (groups == GROUPS)                                                                              \
                product_block(GROUPS, outputs, terms, left, made, at, weights, start);                         \
            else                                                                                               \
                for (int g = 0; g < groups; g++)                                                               \
                    product_block(1, outputs, terms, left + g, made + g, at, weights, start);                  \
    }
