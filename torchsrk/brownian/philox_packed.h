/* Philox4x32-10 with words side by side: a part of philox_vector.h, where low products of whole vectors cost no more
 * than others.
 *
 * The widening multiply takes every other word, so a word's products come in two vectors, and one shuffle packs their
 * high halves again: in another order, TURNed, which the next round turns back. Low products are in the order of their
 * factors, and meet high halves in the round after, when these are in that order too. */

typedef struct {
    U64 even, odd;
} NAME(Products);

INLINE_HERE NAME(Products) NAME(products)(U64 words, U64 multiplier)
{
    return (NAME(Products)){MULTIPLY(words, multiplier), MULTIPLY(words >> 32, multiplier)};
}

typedef struct {
    U64 of[2];
} NAME(Multipliers);

INLINE_HERE NAME(Multipliers) NAME(multipliers)(void)
{
    NAME(Multipliers) multipliers = {{(U64)((U32){0} + MULTIPLIER_0), (U64)((U32){0} + MULTIPLIER_1)}};
    PIN(multipliers.of[0]);
    PIN(multipliers.of[1]);
    return multipliers;
}

/* Half a round: ``factor`` becomes its low products, ``other`` itself with the key and the high products. ``turned``:
 * the low products are wanted in the order of the high ones. */
INLINE_HERE void NAME(half_round)(U64 *factor, U64 *other, U64 key, U64 multiplier, int turned)
{
    U64 even = MULTIPLY(*factor, multiplier), odd = *factor >> 32;
    PIN(even);
    PIN(odd);
    odd = MULTIPLY(odd, multiplier);
    PIN(odd);
    *factor = turned ? LOW_HALVES(even, odd) : LOW_PRODUCTS(*factor, multiplier);
    PIN(*factor);
    *other ^= key;
    PIN(*other);
    *other ^= HIGH_HALVES(even, odd);
    PIN(*other);
}

INLINE_HERE void NAME(round)(U64 (*x)[4], const U64 *key, const NAME(Multipliers) *by, int turned)
{
    EACH_CHAIN
    {
        NAME(half_round)(&x[g][2], &x[g][1], key[0], by->of[1], turned);
        NAME(half_round)(&x[g][0], &x[g][3], key[1], by->of[0], turned);
        const U64 low = x[g][0];
        x[g][0] = x[g][1];
        x[g][1] = x[g][2];
        x[g][2] = x[g][3];
        x[g][3] = low;
    }
}

/* The words of float32 normals, from those before round ``first``. */
INLINE_HERE void NAME(singles)(U64 (*x)[4], const NAME(Keys) *keys, const NAME(Multipliers) *by, int first, size_t at,
                               Batch *batch)
{
    EACH(round, 9)
    {
        if (round >= first)
            NAME(round)(x, keys->of[round], by, 0);
    }
    NAME(round)(x, keys->of[9], by, 1);
    EACH_CHAIN
    {
        const size_t here = at + (size_t)g * BYTES;
        STORE(U64, batch->left + here, x[g][0]);
        STORE(U64, batch->right + here, x[g][1]);
        STORE(U64, batch->left + HALF_BATCH + here, x[g][2]);
        STORE(U64, batch->right + HALF_BATCH + here, x[g][3]);
    }
}

/* The words of float64 normals, even lanes before odd ones: the last round's products are pairs already. */
INLINE_HERE void NAME(pairs)(U64 (*x)[4], const NAME(Keys) *keys, const NAME(Multipliers) *by, int first, size_t at,
                             Batch *batch)
{
    EACH(round, 8)
    {
        if (round >= first)
            NAME(round)(x, keys->of[round], by, 0);
    }
    NAME(round)(x, keys->of[8], by, 1);
    EACH_CHAIN
    {
        char *const left = batch->left + at + (size_t)g * 2 * BYTES, *const right = batch->right + (left - batch->left);
        const NAME(Products) p0 = NAME(products)(x[g][0], by->of[0]), p1 = NAME(products)(x[g][2], by->of[1]);
        const U64 y0 = x[g][1] ^ keys->of[9][0], y1 = x[g][3] ^ keys->of[9][1];
        STORE(U64, left, p1.even ^ (y0 << 32));
        STORE(U64, left + BYTES, p1.odd ^ (y0 & 0xffffffff00000000u));
        STORE(U64, right, p0.even ^ (y1 << 32));
        STORE(U64, right + BYTES, p0.odd ^ (y1 & 0xffffffff00000000u));
    }
}

INLINE_HERE void NAME(words_of_counters)(const NAME(Keys) *keys, const Counters *counters, int kind, int lanes,
                                         Batch *batch)
{
    const NAME(Multipliers) by = NAME(multipliers)();
    U64 x[CHAINS][4];
    for (int lane = 0; lane < lanes; lane += CHAINS * BYTES / 4) {
        EACH_CHAIN
        EACH(i, 4)
        {
            const U64 words = LOAD(U64, counters->word[i] + lane + g * BYTES / 4);
            const U64 dealt = kind == FLOAT64 ? DEAL(words) : words;
            x[g][i] = i % 2 ? TURN(dealt) : dealt;
        }
        if (kind == FLOAT64)
            NAME(pairs)(x, keys, &by, 0, (size_t)lane * 8, batch);
        else
            NAME(singles)(x, keys, &by, 0, (size_t)lane * 4, batch);
    }
}

/* The blocks of a cell differ only in the particle, one word of the counter, so most of the first three rounds is the
 * same for all of them: it is done once, for as many cells together as a vector has 64-bit lanes. */
typedef struct {
    _Alignas(64) uint32_t particle[ROOM], key0[ROOM], key2[ROOM], word0[ROOM], word2[ROOM], word3[ROOM];
} NAME(Start);

INLINE_HERE void NAME(start)(const NAME(Keys) *keys, const Cells *cells, int count, NAME(Start) *start)
{
    const NAME(Multipliers) by = NAME(multipliers)();
    for (int cell = 0; cell < count + 2 * CHAINS - 1; cell += BYTES / 8) {
        const U64 step = LOAD(U64, cells->step + cell);
        const U64 p0 = MULTIPLY(LOAD(U64, cells->block + cell), by.of[0]), p1 = MULTIPLY(step, by.of[1]);
        const U64 q1 = MULTIPLY((p0 >> 32) ^ (step >> 32) ^ keys->of[0][1], by.of[1]);
        const U64 q0 = MULTIPLY((q1 >> 32) ^ p1 ^ keys->of[1][0], by.of[0]);
        NARROW(start->particle + cell, LOAD(U64, cells->particle + cell));
        NARROW(start->key0 + cell, (p1 >> 32) ^ keys->of[0][0]);
        NARROW(start->key2 + cell, p0 ^ keys->of[1][1]);
        NARROW(start->word0 + cell, q1 ^ keys->of[2][0]);
        NARROW(start->word2 + cell, (q0 >> 32) ^ keys->of[2][1]);
        NARROW(start->word3 + cell, q0);
    }
}

/* What a cell has in every lane; in float64, one cell in even lanes and the next in odd ones. */
INLINE_HERE U64 NAME(shared)(const uint32_t *of_cells, int cell, int kind, int turned)
{
    uint64_t pair;
    if (kind != FLOAT64)
        return (U64)((U32){0} + of_cells[cell]);
    memcpy(&pair, of_cells + cell, sizeof pair);
    return turned ? TURN(SPLAT(pair)) : (U64)SPLAT(pair);
}

INLINE_HERE void NAME(words_of_cells)(const NAME(Keys) *keys, const Cells *cells, int count, uint32_t apart, int kind,
                                      Batch *batch)
{
    const NAME(Multipliers) by = NAME(multipliers)();
    const int cells_each = kind == FLOAT64 ? 2 : 1;
    NAME(Start) start;
    NAME(start)(keys, cells, count, &start);
    U32 offset;
    for (uint32_t j = 0; j < BYTES / 4; j++)
        offset[j] = apart * (j / (uint32_t)cells_each);
    if (kind != FLOAT64)
        offset = (U32)TURN((U64)offset);
    for (int first = 0; first < count; first += CHAINS * cells_each) {
        U64 x[CHAINS][4];
        EACH_CHAIN
        {
            const int cell = first + g * cells_each;
            const U64 particle = (U64)(offset + (U32)NAME(shared)(start.particle, cell, kind, 0));
            const U64 word = particle ^ NAME(shared)(start.key0, cell, kind, 0);
            const NAME(Products) p = NAME(products)(word, by.of[0]);
            x[g][3] = LOW_PRODUCTS(word, by.of[0]);
            x[g][2] = HIGH_HALVES(p.even, p.odd) ^ NAME(shared)(start.key2, cell, kind, 1);
            PIN(x[g][2]);
        }
        EACH_CHAIN
        {
            const int cell = first + g * cells_each;
            const NAME(Products) p = NAME(products)(x[g][2], by.of[1]);
            x[g][1] = LOW_PRODUCTS(x[g][2], by.of[1]);
            x[g][0] = HIGH_HALVES(p.even, p.odd) ^ NAME(shared)(start.word0, cell, kind, 0);
            x[g][2] = x[g][3] ^ NAME(shared)(start.word2, cell, kind, 0);
            x[g][3] = NAME(shared)(start.word3, cell, kind, 1);
            PIN(x[g][0]);
            PIN(x[g][2]);
        }
        if (kind == FLOAT64)
            NAME(pairs)(x, keys, &by, 3, (size_t)first * BYTES, batch);
        else
            NAME(singles)(x, keys, &by, 3, (size_t)first * BYTES, batch);
    }
}
