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
 *   PIN(x)                        x, computed here and in no other order
 *   STORE_ROWS                    store_blocks for a whole cell, where there is a better one
 *
 * and, where low products of whole vectors are quick,
 *
 *   LOW_PRODUCTS(a, b)            low halves of the products of 32-bit lanes
 *   HIGH_HALVES, LOW_HALVES(even, odd) halves of products, packed, in the order that TURN has
 *   TURN(x)                       32-bit lanes in another order; twice, and they are back
 *   DEAL(x)                       32-bit lanes so that TURNed, the first half is in even lanes
 *   NARROW(to, x)                 the low halves of 64-bit lanes to memory
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

/* A round's two keys, in every 32-bit lane. */
typedef struct {
    U64 of[10][2];
} NAME(Keys);

INLINE_HERE void NAME(spread_keys)(uint64_t seed, NAME(Keys) *keys)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += WEYL_0, k1 += WEYL_1) {
        keys->of[round][0] = (U64)((U32){0} + k0);
        keys->of[round][1] = (U64)((U32){0} + k1);
    }
}

#ifdef LOW_PRODUCTS
#include "philox_packed.h"
#else
#include "philox_halves.h"
#endif
#include "philox_normals.h"
#include "philox_layout.h"

/* Normals in the place of words. */
INLINE_HERE void NAME(normals)(Batch *batch, int kind, size_t bytes, int halves, double scale)
{
    NAME(squares)(batch, kind, bytes, halves);
    for (size_t at = 0; at < bytes; at += UNITS / halves * BYTES) {
        U64 left[UNITS], right[UNITS];
        NAME(turn)(batch, at, kind, halves, scale, left, right);
        EACH_UNIT
        {
            STORE(U64, batch->left + at + PLACE(g, halves), left[g]);
            STORE(U64, batch->right + at + PLACE(g, halves), right[g]);
        }
    }
}

TARGET static void NAME(draw_counters)(uint64_t seed, const Counters *counters, int kind, int lanes, int halves,
                                       double scale, Batch *batch)
{
    const size_t bytes = (size_t)lanes * size_of(kind);
    NAME(Keys) keys;
    NAME(spread_keys)(seed, &keys);
    if (kind == FLOAT64) {
        NAME(words_of_counters)(&keys, counters, FLOAT64, lanes, batch);
        NAME(normals)(batch, FLOAT64, bytes, 1, scale);
        return;
    }
    NAME(words_of_counters)(&keys, counters, FLOAT32, lanes, batch);
    if (kind == FLOAT32 && halves == 1)
        NAME(normals)(batch, FLOAT32, bytes, 1, scale);
    else if (kind == FLOAT32)
        NAME(normals)(batch, FLOAT32, bytes, 2, scale);
}

TARGET static void NAME(draw_cells)(uint64_t seed, const Cells *cells, uint32_t apart, int kind, int halves,
                                    Batch *batch)
{
    const size_t bytes = (size_t)cells->count * BYTES;
    NAME(Keys) keys;
    NAME(spread_keys)(seed, &keys);
    if (kind == FLOAT64) {
        NAME(words_of_cells)(&keys, cells, cells->count, apart, FLOAT64, batch);
        NAME(squares)(batch, FLOAT64, bytes, 1);
        return;
    }
    NAME(words_of_cells)(&keys, cells, cells->count, apart, FLOAT32, batch);
    if (kind == FLOAT32)
        NAME(squares)(batch, FLOAT32, bytes, halves);
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
#undef LOW_PRODUCTS
#undef HIGH_HALVES
#undef LOW_HALVES
#undef TURN
#undef DEAL
#undef NARROW
#undef PLACE
