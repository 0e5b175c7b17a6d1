/* Words and normals for one instruction set; philox_sets.h includes this once for each, having defined
 *
 *   NAME(x)                       x with the set's suffix
 *   TARGET                        the attribute that has the compiler use the set
 *   BYTES                         of a vector
 *   MULTIPLY(a, b)                products of the low halves of 64-bit lanes
 *   WIDEN(from)                   32-bit words from memory, one to each 64-bit lane
 *   PACK(even, odd)               the low halves of 64-bit lanes, taken in turns
 *   SELECT_32, SELECT_64(s, a, b) a where s is negative, else b
 *   ROOT_32, ROOT_64(a)           square roots
 *   STORE_CELL_32                 store_blocks for a whole cell of float32, where there is a better one
 *   PIN(x)                        x, computed here and in no other order
 *
 * The chains of dependent operations are long, and a processor looks ahead by less than one of them: what is to overlap
 * must stand side by side. So several vectors are worked on at once, one operation after another, as many as there are
 * registers for; and as compilers put the chains in a row again, values are pinned to their place. */

typedef uint64_t NAME(U64) __attribute__((vector_size(BYTES), may_alias));
typedef uint32_t NAME(U32) __attribute__((vector_size(BYTES), may_alias));
typedef int32_t NAME(I32) __attribute__((vector_size(BYTES), may_alias));
typedef float NAME(F32) __attribute__((vector_size(BYTES), may_alias));
typedef double NAME(F64) __attribute__((vector_size(BYTES), may_alias));
typedef uint64_t NAME(Anywhere) __attribute__((vector_size(BYTES), may_alias, aligned(4)));
#define U64 NAME(U64)
#define U32 NAME(U32)
#define I32 NAME(I32)
#define F32 NAME(F32)
#define F64 NAME(F64)
#define INLINE_HERE TARGET static inline __attribute__((always_inline))
#define SPLAT(x) ((U64){0} + (uint64_t)(x))
#define EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)
#define EACH_CHAIN EACH(g, CHAINS)
#define EACH_UNIT EACH(g, UNITS)
#define LOAD(type, from) (*(const type *)(from))
#define STORE(type, to, value) (*(type *)(to) = (value))

/* ---------------------------------------------------------------------------------------------- Philox4x32-10
 *
 * Words ride in the low halves of 64-bit lanes, where the widening multiply wants them; what gathers in the high
 * halves is never read. */

typedef struct {
    U64 of[10][2];
} NAME(Keys);

INLINE_HERE void NAME(spread_keys)(uint64_t seed, NAME(Keys) *keys)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += WEYL_0, k1 += WEYL_1) {
        keys->of[round][0] = SPLAT(k0);
        keys->of[round][1] = SPLAT(k1);
    }
}

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

#include "philox_normals.h"

TARGET static void NAME(draw_counters)(uint64_t seed, const Counters *counters, int kind, int lanes, int halves,
                                       double scale, Batch *batch)
{
    NAME(Keys) keys;
    NAME(spread_keys)(seed, &keys);
    if (kind == FLOAT64) {
        NAME(words_of_counters)(&keys, counters, FLOAT64, lanes, batch);
        NAME(normals)(batch, FLOAT64, (size_t)lanes * 8, halves, scale);
        return;
    }
    NAME(words_of_counters)(&keys, counters, FLOAT32, lanes, batch);
    if (kind == FLOAT32)
        NAME(normals)(batch, FLOAT32, (size_t)lanes * 4, halves, scale);
}

TARGET static void NAME(draw_cells)(uint64_t seed, const Cells *cells, uint32_t apart, int kind, int halves,
                                    double scale, Batch *batch)
{
    NAME(Keys) keys;
    NAME(spread_keys)(seed, &keys);
    if (kind == FLOAT64) {
        NAME(words_of_cells)(&keys, cells, cells->count, apart, FLOAT64, batch);
        NAME(normals)(batch, FLOAT64, (size_t)cells->count * BYTES, halves, scale);
        return;
    }
    NAME(words_of_cells)(&keys, cells, cells->count, apart, FLOAT32, batch);
    if (kind == FLOAT32)
        NAME(normals)(batch, FLOAT32, (size_t)cells->count * BYTES, halves, scale);
}

/* ----------------------------------------------------------------------------------------------- Laying out */

/* Cells to a tile, normal i of their blocks ``stride`` behind the one before. */
INLINE_HERE void NAME(store_cells_across)(const Batch *batch, const Cells *cells, int kind, int64_t stride)
{
    const size_t size = size_of(kind);
    for (int cell = 0; cell < cells->count; cell++) {
        char *const out = cells->out[cell];
        const size_t lanes = cells->lanes[cell], bytes = cells->bytes[cell];
        EACH(i, BLOCK_BYTES / (int)size)
        {
            const char *const from = plane(batch, i, 0, kind) + cell * BYTES;
            if ((size_t)i * size >= bytes)
                break;
            if (lanes == BYTES / size)
                STORE(NAME(Anywhere), out + i * stride, LOAD(U64, from));
            else
                copy_few(out + i * stride, from, lanes * size);
        }
    }
}

TARGET static void NAME(store_across)(const Batch *batch, const Cells *cells, int kind, int64_t stride)
{
    if (kind == FLOAT64)
        NAME(store_cells_across)(batch, cells, FLOAT64, stride);
    else
        NAME(store_cells_across)(batch, cells, FLOAT32, stride);
}

/* Cells to rows, blocks ``stride`` behind one another. Of those that can't be whole a part is copied. */
INLINE_HERE void NAME(store_cells_along)(const Batch *batch, const Cells *cells, int kind, int64_t stride)
{
    const int width = BYTES / (int)size_of(kind);
    for (int cell = 0; cell < cells->count; cell++) {
        char *const out = cells->out[cell];
        const size_t lanes = cells->lanes[cell], bytes = cells->bytes[cell];
        char blocks[BYTES / 4 * BLOCK_BYTES];
        if (lanes == (size_t)width && bytes == BLOCK_BYTES) {
#ifdef STORE_CELL_32
            if (kind != FLOAT64)
                STORE_CELL_32(batch, cell * width, out, stride);
            else
#endif
                store_blocks(batch, kind, cell * width, width, out, stride);
            continue;
        }
        store_blocks(batch, kind, cell * width, width, blocks, BLOCK_BYTES);
        for (size_t i = 0; i < lanes; i++)
            copy_few(out + (int64_t)i * stride, blocks + i * BLOCK_BYTES, bytes);
    }
}

TARGET static void NAME(store_along)(const Batch *batch, const Cells *cells, int kind, int64_t stride)
{
    if (kind == FLOAT64)
        NAME(store_cells_along)(batch, cells, FLOAT64, stride);
    else
        NAME(store_cells_along)(batch, cells, FLOAT32, stride);
}

/* The counters LANES blocks further on in a request: block, particle and step are digits of a mixed-radix number, so
 * advancing is adding digits and carrying. */
TARGET static void NAME(advance)(const Request *request, Counters *counters)
{
    const uint32_t blocks = (uint32_t)blocks_per_row(request), particles = (uint32_t)request->particles;
    const uint32_t by_block = LANES % blocks, rows = LANES / blocks, by_particle = rows % particles;
    const uint32_t by_step = rows / particles, block0 = request->first_block, particle0 = request->first_particle;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t block = counters->word[BLOCK][lane] - block0 + by_block;
        const uint32_t carry = block >= blocks;
        block -= carry ? blocks : 0;
        uint32_t particle = counters->word[PARTICLE][lane] - particle0 + by_particle + carry;
        const uint32_t carry_step = particle >= particles;
        particle -= carry_step ? particles : 0;
        const uint32_t low = counters->word[STEP_LOW][lane] + by_step + carry_step;
        counters->word[STEP_HIGH][lane] += low < counters->word[STEP_LOW][lane];
        counters->word[STEP_LOW][lane] = low;
        counters->word[BLOCK][lane] = block + block0;
        counters->word[PARTICLE][lane] = particle + particle0;
    }
}

static const Kernel NAME(kernel) = {
    BYTES, NAME(draw_counters), NAME(draw_cells), NAME(store_across), NAME(store_along), NAME(advance),
};

#undef U64
#undef U32
#undef I32
#undef F32
#undef F64
#undef INLINE_HERE
#undef SPLAT
#undef EACH
#undef LOAD
#undef STORE
#undef EACH_CHAIN
#undef EACH_UNIT
#undef NAME
#undef TARGET
#undef BYTES
#undef MULTIPLY
#undef WIDEN
#undef PACK
#undef SELECT_32
#undef SELECT_64
#undef ROOT_32
#undef ROOT_64
#undef PIN
#undef STORE_CELL_32
