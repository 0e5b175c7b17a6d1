/* What the noise kernel works on, whatever the instruction set: counters in, batches of words or normals, rows out. */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "vectors of words are read as vectors of pairs of words, low half first"
#endif

#define LANES 192 /* blocks drawn together: few enough for the first-level cache, many for the vector units */
#define BATCH (8 * LANES)
#define HALF_BATCH (BATCH / 2)
#define MAX_CELLS (LANES / 2)
#define ROOM (MAX_CELLS + 16) /* vectors end beyond the last cell */
#define CHAINS 3 /* vectors that are worked on side by side, of Philox and of Box-Muller: both divide a batch */
#define UNITS 4
#define MAX_THREADS 64
#define BLOCK_BYTES 16
#define SHARD_BYTES (1 << 18)

#define INLINE static inline __attribute__((always_inline))

enum { WORDS = 0, FLOAT32 = 1, FLOAT64 = 2 };

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u
#define WEYL_1 0xBB67AE85u

/* The counters of LANES blocks, word by word. */
enum { BLOCK = 0, PARTICLE = 1, STEP_LOW = 2, STEP_HIGH = 3 };
typedef struct {
    _Alignas(64) uint32_t word[4][LANES];
} Counters;

/* Cells: as many blocks as a vector has lanes, for consecutive particles. A step has the stream above it. The first
 * lanes of a cell go out, of each block the first bytes. */
typedef struct {
    _Alignas(64) uint64_t step[ROOM], block[ROOM], particle[ROOM];
    char *out[MAX_CELLS];
    size_t lanes[MAX_CELLS], bytes[MAX_CELLS];
    int count;
} Cells;

/* The normals of LANES blocks, or the words they are made of. A block's normals, by turns left and right: of float32,
 * two of each, the second ones HALF_BATCH behind the first. */
typedef struct {
    _Alignas(64) char left[BATCH];
    _Alignas(64) char right[BATCH];
} Batch;

typedef struct {
    uint64_t seed, first_step;
    uint32_t first_particle, first_block, stream;
    int64_t steps, particles, row_bytes; /* the output is (steps, particles, row_bytes) */
    double scale;
    int kind, halves;
    char *out;
} Request;

INLINE int64_t blocks_per_row(const Request *request)
{
    return (request->row_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

INLINE size_t size_of(int kind) { return kind == FLOAT64 ? 8 : 4; }

/* Normal i of the block in a lane; those of the lanes behind it follow. */
INLINE const char *plane(const Batch *batch, int i, int lane, int kind)
{
    return (i % 2 ? batch->right : batch->left) + i / 2 * HALF_BATCH + (size_t)lane * size_of(kind);
}

typedef float Four __attribute__((vector_size(16), may_alias, aligned(4)));
typedef double Two __attribute__((vector_size(16), may_alias, aligned(4)));
#ifdef __clang__
#define SHUFFLE_4(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define SHUFFLE_2(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t FourIndices __attribute__((vector_size(16)));
typedef int64_t TwoIndices __attribute__((vector_size(16)));
#define SHUFFLE_4(a, b, ...) __builtin_shuffle(a, b, (FourIndices){__VA_ARGS__})
#define SHUFFLE_2(a, b, ...) __builtin_shuffle(a, b, (TwoIndices){__VA_ARGS__})
#endif

/* Blocks from the planes of their normals, each ``stride`` behind the one before: up to three more than asked for. */
INLINE void store_blocks(const char *const *planes, int kind, int count, char *out, int64_t stride)
{
    if (kind == FLOAT64)
        for (int at = 0; at < count * 8; at += 16, out += 2 * stride) {
            const Two a = *(const Two *)(planes[0] + at), b = *(const Two *)(planes[1] + at);
            *(Two *)out = SHUFFLE_2(a, b, 0, 2);
            *(Two *)(out + stride) = SHUFFLE_2(a, b, 1, 3);
        }
    else
        for (int at = 0; at < count * 4; at += 16, out += 4 * stride) {
            const Four a = *(const Four *)(planes[0] + at), b = *(const Four *)(planes[1] + at);
            const Four c = *(const Four *)(planes[2] + at), d = *(const Four *)(planes[3] + at);
            const Four ab = SHUFFLE_4(a, b, 0, 4, 1, 5), cd = SHUFFLE_4(c, d, 0, 4, 1, 5);
            const Four ab_behind = SHUFFLE_4(a, b, 2, 6, 3, 7), cd_behind = SHUFFLE_4(c, d, 2, 6, 3, 7);
            *(Four *)out = SHUFFLE_4(ab, cd, 0, 1, 4, 5);
            *(Four *)(out + stride) = SHUFFLE_4(ab, cd, 2, 3, 6, 7);
            *(Four *)(out + 2 * stride) = SHUFFLE_4(ab_behind, cd_behind, 0, 1, 4, 5);
            *(Four *)(out + 3 * stride) = SHUFFLE_4(ab_behind, cd_behind, 2, 3, 6, 7);
        }
}

/* A multiple of four bytes. */
INLINE void copy_few(char *to, const char *from, size_t bytes)
{
    if (bytes >= 16) {
        for (size_t at = 0; at + 16 < bytes; at += 16)
            memcpy(to + at, from + at, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else {
        memcpy(to, from, 4);
    }
}

/* What is written for each instruction set. ``halves`` is 1 if blocks are wanted only as far as their second word or
 * float32 normal, and else 2; ``scale`` multiplies normals. Cells are drawn as squares of radii and words of angles,
 * and become normals as they are stored. Room in a batch beyond what was asked for is overwritten. */
typedef struct {
    int bytes; /* of a vector */
    void (*draw_counters)(uint64_t seed, const Counters *counters, int kind, int lanes, int halves, double scale,
                          Batch *batch);
    void (*draw_cells)(uint64_t seed, const Cells *cells, uint32_t apart, int kind, int halves, Batch *batch);
    void (*store_across)(const Batch *batch, const Cells *cells, int kind, int halves, double scale, int64_t stride);
    void (*store_along)(const Batch *batch, const Cells *cells, int kind, int halves, double scale, int64_t stride);
    void (*advance)(const Request *request, Counters *counters);
} Kernel;
