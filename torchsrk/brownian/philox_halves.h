/* Philox4x32-10 with a word to each 64-bit lane: a part of philox_vector.h.
 *
 * Words ride in the low halves of 64-bit lanes, where the widening multiply wants them; what gathers in the high
 * halves is never read. */

INLINE_HERE void NAME(rounds)(U64 (*x)[4], const NAME(Keys) *keys, int first)
{
    EACH(round, 10)
    {
        if (round < first)
            continue;
        EACH_CHAIN
        {
            const U64 p0 = MULTIPLY(x[g][0], SPLAT(MULTIPLIER_0)), p1 = MULTIPLY(x[g][2], SPLAT(MULTIPLIER_1));
            x[g][1] ^= keys->of[round][0];
            x[g][3] ^= keys->of[round][1];
            PIN(x[g][1]);
            PIN(x[g][3]);
            x[g][0] = (p1 >> 32) ^ x[g][1];
            x[g][2] = (p0 >> 32) ^ x[g][3];
            x[g][1] = p1;
            x[g][3] = p0;
            PIN(x[g][0]);
            PIN(x[g][2]);
        }
    }
}

/* The words of float64 normals. */
INLINE_HERE void NAME(store_pairs)(U64 (*x)[4], size_t at, Batch *batch)
{
    EACH_CHAIN
    {
        STORE(U64, batch->left + at + (size_t)g * BYTES, PACK(x[g][1], x[g][0]));
        STORE(U64, batch->right + at + (size_t)g * BYTES, PACK(x[g][3], x[g][2]));
    }
}

/* The words of float32 normals, of blocks in even and odd lanes. */
INLINE_HERE void NAME(store_singles)(U64 (*even)[4], U64 (*odd)[4], size_t at, Batch *batch)
{
    EACH_CHAIN
    {
        const size_t here = at + (size_t)g * BYTES;
        STORE(U64, batch->left + here, PACK(even[g][0], odd[g][0]));
        STORE(U64, batch->right + here, PACK(even[g][1], odd[g][1]));
        STORE(U64, batch->left + HALF_BATCH + here, PACK(even[g][2], odd[g][2]));
        STORE(U64, batch->right + HALF_BATCH + here, PACK(even[g][3], odd[g][3]));
    }
}

INLINE_HERE void NAME(words_of_counters)(const NAME(Keys) *keys, const Counters *counters, int kind, int lanes,
                                         Batch *batch)
{
    U64 x[CHAINS][4], odd[CHAINS][4];
    if (kind == FLOAT64)
        for (int lane = 0; lane < lanes; lane += CHAINS * BYTES / 8) {
            EACH_CHAIN
            EACH(i, 4)
            x[g][i] = WIDEN(counters->word[i] + lane + g * BYTES / 8);
            NAME(rounds)(x, keys, 0);
            NAME(store_pairs)(x, (size_t)lane * 8, batch);
        }
    else
        for (int lane = 0; lane < lanes; lane += CHAINS * BYTES / 4) {
            EACH_CHAIN EACH(i, 4) x[g][i] = LOAD(U64, counters->word[i] + lane + g * BYTES / 4);
            NAME(rounds)(x, keys, 0);
            EACH_CHAIN EACH(i, 4) odd[g][i] = LOAD(U64, counters->word[i] + lane + g * BYTES / 4) >> 32;
            NAME(rounds)(odd, keys, 0);
            NAME(store_singles)(x, odd, (size_t)lane * 4, batch);
        }
}

/* The blocks of a cell differ only in the particle, one word of the counter, so most of the first three rounds is the
 * same for all of them: it is done once, for as many cells together as a vector has 64-bit lanes. */
typedef struct {
    _Alignas(64) uint64_t key0[ROOM], key2[ROOM], word0[ROOM], word2[ROOM], word3[ROOM];
} NAME(Start);

INLINE_HERE void NAME(start)(const NAME(Keys) *keys, const Cells *cells, int count, NAME(Start) *start)
{
    for (int cell = 0; cell < count + CHAINS - 1; cell += BYTES / 8) {
        const U64 step = LOAD(U64, cells->step + cell);
        const U64 p0 = MULTIPLY(LOAD(U64, cells->block + cell), SPLAT(MULTIPLIER_0));
        const U64 p1 = MULTIPLY(step, SPLAT(MULTIPLIER_1));
        const U64 q1 = MULTIPLY((p0 >> 32) ^ (step >> 32) ^ keys->of[0][1], SPLAT(MULTIPLIER_1));
        const U64 q0 = MULTIPLY((q1 >> 32) ^ p1 ^ keys->of[1][0], SPLAT(MULTIPLIER_0));
        STORE(U64, start->key0 + cell, (p1 >> 32) ^ keys->of[0][0]);
        STORE(U64, start->key2 + cell, p0 ^ keys->of[1][1]);
        STORE(U64, start->word0 + cell, q1 ^ keys->of[2][0]);
        STORE(U64, start->word2 + cell, (q0 >> 32) ^ keys->of[2][1]);
        STORE(U64, start->word3 + cell, q0);
    }
}

INLINE_HERE void NAME(cell_words)(const NAME(Keys) *keys, const Cells *cells, const NAME(Start) *start, int cell,
                                  U64 offset, U64 (*x)[4])
{
    EACH_CHAIN
    {
        const U64 particle = offset + cells->particle[cell + g];
        x[g][3] = MULTIPLY(particle ^ start->key0[cell + g], SPLAT(MULTIPLIER_0));
        x[g][2] = (x[g][3] >> 32) ^ start->key2[cell + g];
        PIN(x[g][2]);
    }
    EACH_CHAIN
    {
        x[g][1] = MULTIPLY(x[g][2], SPLAT(MULTIPLIER_1));
        x[g][0] = (x[g][1] >> 32) ^ start->word0[cell + g];
        x[g][2] = x[g][3] ^ start->word2[cell + g];
        x[g][3] = SPLAT(start->word3[cell + g]);
        PIN(x[g][0]);
        PIN(x[g][2]);
    }
    NAME(rounds)(x, keys, 3);
}

INLINE_HERE void NAME(words_of_cells)(const NAME(Keys) *keys, const Cells *cells, int count, uint32_t apart, int kind,
                                      Batch *batch)
{
    U64 x[CHAINS][4], odd[CHAINS][4], offset[2];
    NAME(Start) start;
    NAME(start)(keys, cells, count, &start);
    for (uint32_t j = 0; j < BYTES / 4; j++)
        if (kind == FLOAT64)
            offset[0][j / 2] = apart * (j / 2);
        else
            offset[j % 2][j / 2] = apart * j;
    for (int cell = 0; cell < count; cell += CHAINS) {
        NAME(cell_words)(keys, cells, &start, cell, offset[0], x);
        if (kind == FLOAT64) {
            NAME(store_pairs)(x, (size_t)cell * BYTES, batch);
            continue;
        }
        NAME(cell_words)(keys, cells, &start, cell, offset[1], odd);
        NAME(store_singles)(x, odd, (size_t)cell * BYTES, batch);
    }
}

