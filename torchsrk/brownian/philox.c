/* Standard normals from a counter: Philox4x32-10 words (Salmon et al., SC'11), then Box-Muller.
 *
 * The draw for (seed, particle, step, stream, component) is a pure function of those five numbers. Its bits must
 * not depend on the vector width, the thread count or where a batch was cut, so every operation on floats is one
 * IEEE add, multiply, divide or square root, in the order in which philox.py does it. The build forbids contraction
 * to fused multiply-add (setup.py), and log, sin and cos are short polynomials (philox_vector.h).
 *
 * Counter words: component block | particle | low half of the step | high half of the step (16 bits), stream << 16.
 * A block, four words, is four float32 normals or two float64 normals.
 */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

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

/* Blocks of consecutive lanes, whole, each ``stride`` behind the one before: up to three more than asked for. */
INLINE void store_blocks(const Batch *batch, int kind, int lane, int count, char *out, int64_t stride)
{
    if (kind == FLOAT64)
        for (int end = lane + count; lane < end; lane += 2, out += 2 * stride) {
            const Two a = *(const Two *)plane(batch, 0, lane, kind), b = *(const Two *)plane(batch, 1, lane, kind);
            *(Two *)out = SHUFFLE_2(a, b, 0, 2);
            *(Two *)(out + stride) = SHUFFLE_2(a, b, 1, 3);
        }
    else
        for (int end = lane + count; lane < end; lane += 4, out += 4 * stride) {
            const Four a = *(const Four *)plane(batch, 0, lane, kind), b = *(const Four *)plane(batch, 1, lane, kind);
            const Four c = *(const Four *)plane(batch, 2, lane, kind), d = *(const Four *)plane(batch, 3, lane, kind);
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
 * float32 normal, and else 2; ``scale`` multiplies normals. Room in a batch beyond what was asked for is overwritten. */
typedef struct {
    int bytes; /* of a vector */
    void (*draw_counters)(uint64_t seed, const Counters *counters, int kind, int lanes, int halves, double scale,
                          Batch *batch);
    void (*draw_cells)(uint64_t seed, const Cells *cells, uint32_t apart, int kind, int halves, double scale,
                       Batch *batch);
    void (*store_across)(const Batch *batch, const Cells *cells, int kind, int64_t stride);
    void (*store_along)(const Batch *batch, const Cells *cells, int kind, int64_t stride);
    void (*advance)(const Request *request, Counters *counters);
} Kernel;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PORTABLE_BYTES)
#include <immintrin.h>

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f")))
#define BYTES 64
#define MULTIPLY(a, b) ((U64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define WIDEN(from) ((U64)_mm512_cvtepu32_epi64(_mm256_load_si256((const __m256i *)(from))))
#define PACK(even, odd) ((U64)_mm512_mask_mov_epi32((__m512i)(even), 0xaaaa, (__m512i)((odd) << 32)))
#define SELECT_32(s, a, b) ((F32)_mm512_mask_blend_ps(_mm512_cmplt_epi32_mask((__m512i)(s), _mm512_setzero_si512()), b, a))
#define SELECT_64(s, a, b) ((F64)_mm512_mask_blend_pd(_mm512_cmplt_epi64_mask((__m512i)(s), _mm512_setzero_si512()), b, a))
#define ROOT_32(a) ((F32)_mm512_sqrt_ps((__m512)(a)))
#define ROOT_64(a) ((F64)_mm512_sqrt_pd((__m512d)(a)))
#define PIN(x) __asm__ volatile("" : "+v"(x))
#include "philox_vector.h"

/* Not the intrinsics, which gcc takes apart into a comparison and a blend. */
__attribute__((target("avx2"))) INLINE __m256 blend_by_sign_32(__m256 sign, __m256 a, __m256 b)
{
    __m256 chosen;
    __asm__("vblendvps %1, %2, %3, %0" : "=x"(chosen) : "x"(sign), "x"(a), "x"(b));
    return chosen;
}
__attribute__((target("avx2"))) INLINE __m256d blend_by_sign_64(__m256d sign, __m256d a, __m256d b)
{
    __m256d chosen;
    __asm__("vblendvpd %1, %2, %3, %0" : "=x"(chosen) : "x"(sign), "x"(a), "x"(b));
    return chosen;
}

/* store_blocks of a cell of float32, in half the shuffles. Rows are written in their order: they may overlap. */
__attribute__((target("avx2"))) INLINE void store_eight(const Batch *batch, int lane, char *out, int64_t stride)
{
    const __m256 a = _mm256_load_ps((const float *)plane(batch, 0, lane, FLOAT32));
    const __m256 b = _mm256_load_ps((const float *)plane(batch, 1, lane, FLOAT32));
    const __m256 c = _mm256_load_ps((const float *)plane(batch, 2, lane, FLOAT32));
    const __m256 d = _mm256_load_ps((const float *)plane(batch, 3, lane, FLOAT32));
    const __m256d ab = _mm256_castps_pd(_mm256_unpacklo_ps(a, b)), cd = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
    const __m256d ab_behind = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
    const __m256d cd_behind = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    const __m256d rows[4] = {_mm256_unpacklo_pd(ab, cd), _mm256_unpackhi_pd(ab, cd),
                             _mm256_unpacklo_pd(ab_behind, cd_behind), _mm256_unpackhi_pd(ab_behind, cd_behind)};
    for (int i = 0; i < 4; i++)
        _mm_storeu_pd((double *)(out + i * stride), _mm256_castpd256_pd128(rows[i]));
    for (int i = 0; i < 4; i++)
        _mm_storeu_pd((double *)(out + (4 + i) * stride), _mm256_extractf128_pd(rows[i], 1));
}

#define NAME(x) x##_avx2
#define STORE_CELL_32 store_eight
#define TARGET __attribute__((target("avx2")))
#define BYTES 32
#define MULTIPLY(a, b) ((U64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define WIDEN(from) ((U64)_mm256_cvtepu32_epi64(_mm_load_si128((const __m128i *)(from))))
#define PACK(even, odd) ((U64)_mm256_blend_epi32((__m256i)(even), (__m256i)((odd) << 32), 0xaa))
#define SELECT_32(s, a, b) ((F32)blend_by_sign_32((__m256)(s), (__m256)(a), (__m256)(b)))
#define SELECT_64(s, a, b) ((F64)blend_by_sign_64((__m256d)(s), (__m256d)(a), (__m256d)(b)))
#define ROOT_32(a) ((F32)_mm256_sqrt_ps((__m256)(a)))
#define ROOT_64(a) ((F64)_mm256_sqrt_pd((__m256d)(a)))
#define PIN(x) __asm__ volatile("" : "+x"(x))
#include "philox_vector.h"

#define NAME(x) x##_sse2
#define TARGET
#define BYTES 16
#define MULTIPLY(a, b) ((U64)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#define ROOT_32(a) ((F32)_mm_sqrt_ps((__m128)(a)))
#define ROOT_64(a) ((F64)_mm_sqrt_pd((__m128d)(a)))
#define PIN(x) __asm__ volatile("" : "+x"(x))
#define WIDEN(from) ((U64){(from)[0], (from)[1]})
#ifndef BEST_KERNEL
#define BEST_KERNEL                                                                                            \
    (__builtin_cpu_supports("avx512f") ? &kernel_avx512                                                        \
     : __builtin_cpu_supports("avx2")  ? &kernel_avx2                                                          \
                                       : &kernel_sse2)
#endif
#else
#ifndef PORTABLE_BYTES
#define PORTABLE_BYTES 16
#endif
#define NAME(x) x##_portable
#define TARGET
#define BYTES PORTABLE_BYTES
#define MULTIPLY(a, b) (((a) & 0xffffffffu) * ((b) & 0xffffffffu))
#define EACH_ELEMENT(type, size, expression)                                                                   \
    ({                                                                                                         \
        type vector;                                                                                           \
        for (int i_ = 0; i_ < BYTES / size; i_++)                                                              \
            vector[i_] = expression;                                                                           \
        vector;                                                                                                \
    })
#define WIDEN(from) EACH_ELEMENT(U64, 8, (from)[i_])
#define ROOT_32(a) EACH_ELEMENT(F32, 4, sqrtf((a)[i_]))
#define ROOT_64(a) EACH_ELEMENT(F64, 8, sqrt((a)[i_]))
#define PIN(x)
#define BEST_KERNEL (&kernel_portable)
#endif
#define PACK(even, odd) (((even) & 0xffffffffu) | (odd) << 32)
#define CHOOSE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))
#define SELECT_32(s, a, b) ((F32)CHOOSE((U32)((I32)(s) >> 31), (U32)(a), (U32)(b)))
#define SELECT_64(s, a, b) ((F64)CHOOSE(-((s) >> 63), (U64)(a), (U64)(b)))
#include "philox_vector.h"

INLINE uint64_t with_stream(uint64_t step, uint32_t stream) { return step | (uint64_t)stream << 48; }

/* Cells waste the lanes beyond the last particle: worth it for up to a fifth of them. */
INLINE int fills_cells(int64_t particles, int64_t width)
{
    return (particles + width - 1) / width * width * 4 <= particles * 5;
}

/* --------------------------------------------------------------------------------------------------------- Rows */

/* A block or as much of it as the row has. */
INLINE void copy_block(const Request *request, int64_t row, int64_t block, const char *from)
{
    const int64_t offset = block * BLOCK_BYTES, left = request->row_bytes - offset;
    copy_few(request->out + row * request->row_bytes + offset, from, (size_t)(left < BLOCK_BYTES ? left : BLOCK_BYTES));
}

/* The counters of the first blocks from a row on. */
static void count_up(const Request *request, int64_t row, int lanes, Counters *counters)
{
    const int64_t blocks = blocks_per_row(request);
    int64_t particle = row % request->particles, step = row / request->particles, block = 0;
    for (int lane = 0; lane < lanes; lane++) {
        const uint64_t word = with_stream(request->first_step + (uint64_t)step, request->stream);
        counters->word[BLOCK][lane] = request->first_block + (uint32_t)block;
        counters->word[PARTICLE][lane] = request->first_particle + (uint32_t)particle;
        counters->word[STEP_LOW][lane] = (uint32_t)word;
        counters->word[STEP_HIGH][lane] = (uint32_t)(word >> 32);
        if (++block < blocks)
            continue;
        block = 0;
        if (++particle < request->particles)
            continue;
        particle = 0;
        step++;
    }
}

/* Lanes go along the output: for few particles. */
static void fill_in_order(const Kernel *kernel, const Request *request, int64_t first_row, int64_t last_row)
{
    const int64_t blocks = blocks_per_row(request), end = last_row * blocks;
    const int whole = request->row_bytes % BLOCK_BYTES == 0;
    Batch batch;
    Counters counters;
    _Alignas(64) char buffer[LANES * BLOCK_BYTES];
    memset(&counters, 0, sizeof counters);
    count_up(request, first_row, end - first_row * blocks < LANES ? (int)(end - first_row * blocks) : LANES, &counters);
    int64_t row = first_row, block = 0;
    for (int64_t index = first_row * blocks; index < end; index += LANES) {
        const int lanes = end - index < LANES ? (int)(end - index) : LANES;
        kernel->draw_counters(request->seed, &counters, request->kind, lanes, request->halves, request->scale, &batch);
        char *const out = whole && lanes == LANES ? request->out + index * BLOCK_BYTES : buffer;
        store_blocks(&batch, request->kind, 0, lanes, out, BLOCK_BYTES);
        if (out == buffer && whole) {
            memcpy(request->out + index * BLOCK_BYTES, buffer, (size_t)lanes * BLOCK_BYTES);
        } else if (out == buffer) {
            for (int lane = 0; lane < lanes; lane++) {
                copy_block(request, row, block, buffer + lane * BLOCK_BYTES);
                if (++block == blocks) {
                    block = 0;
                    row++;
                }
            }
        }
        if (index + LANES < end)
            kernel->advance(request, &counters);
    }
}

INLINE void set_cell(Cells *cells, int cell, uint64_t step, uint32_t block, uint32_t particle, char *out, int64_t lanes,
                     int64_t bytes)
{
    cells->step[cell] = step;
    cells->block[cell] = block;
    cells->particle[cell] = particle;
    cells->out[cell] = out;
    cells->lanes[cell] = (size_t)lanes;
    cells->bytes[cell] = (size_t)bytes;
}

INLINE void end_cells(Cells *cells, int count)
{
    cells->count = count;
    for (int cell = count; cell < count + ROOM - MAX_CELLS; cell++)
        cells->step[cell] = cells->block[cell] = cells->particle[cell] = 0;
}

static void flush_rows(const Kernel *kernel, const Request *request, Cells *cells, int count)
{
    Batch batch;
    end_cells(cells, count);
    kernel->draw_cells(request->seed, cells, 1, request->kind, request->halves, request->scale, &batch);
    kernel->store_along(&batch, cells, request->kind, request->row_bytes);
}

/* Lanes go across particles, the blocks of a row from the last to the first: where a row ends inside a block, the whole
 * block spills into the next rows, which are written later, as long as those are asked for too. */
static void fill_across(const Kernel *kernel, const Request *request, int64_t first_row, int64_t last_row)
{
    const int64_t blocks = blocks_per_row(request), width = kernel->bytes / (int64_t)size_of(request->kind);
    const int64_t particles = request->particles, row_bytes = request->row_bytes;
    const char *const end = request->out + last_row * row_bytes;
    const int most = LANES / (int)width;
    int count = 0;
    Cells cells;
    int64_t step = first_row / particles, particle = first_row % particles;
    for (int64_t row = first_row; row < last_row;) {
        const uint64_t word = with_stream(request->first_step + (uint64_t)step, request->stream);
        const uint32_t first = request->first_particle + (uint32_t)particle;
        int64_t lanes = particles - particle < width ? particles - particle : width;
        lanes = last_row - row < lanes ? last_row - row : lanes;
        char *out = request->out + row * row_bytes + (blocks - 1) * BLOCK_BYTES;
        const int spills_inside = out + (lanes - 1) * row_bytes + BLOCK_BYTES <= end;
        int64_t bytes = spills_inside ? BLOCK_BYTES : row_bytes - (blocks - 1) * BLOCK_BYTES;
        for (int64_t block = blocks - 1; block >= 0; block--, out -= BLOCK_BYTES, bytes = BLOCK_BYTES) {
            set_cell(&cells, count, word, request->first_block + (uint32_t)block, first, out, lanes, bytes);
            if (++count < most)
                continue;
            flush_rows(kernel, request, &cells, count);
            count = 0;
        }
        row += lanes;
        particle += lanes;
        if (particle == particles) {
            particle = 0;
            step++;
        }
    }
    flush_rows(kernel, request, &cells, count);
}

static void fill_rows(const Request *request, int64_t first_row, int64_t last_row)
{
    const Kernel *const kernel = BEST_KERNEL;
    if (fills_cells(request->particles, kernel->bytes / (int64_t)size_of(request->kind)))
        fill_across(kernel, request, first_row, last_row);
    else
        fill_in_order(kernel, request, first_row, last_row);
}

/* Rows are dealt out in shards to whichever thread is free, so that a slow core does not hold up the others. */
typedef struct {
    const Request *request;
    int64_t rows, shard_rows, next_row;
} Queue;

static void *fill_shards(void *argument)
{
    Queue *queue = argument;
    for (;;) {
        const int64_t first = __atomic_fetch_add(&queue->next_row, queue->shard_rows, __ATOMIC_RELAXED);
        if (first >= queue->rows)
            return 0;
        const int64_t last = first + queue->shard_rows;
        fill_rows(queue->request, first, last < queue->rows ? last : queue->rows);
    }
}

/* Threads are started for the call: no state outlives it, so it is safe after a fork and beside any other pool. */
void torchsrk_fill(void *out, int kind, uint64_t seed, uint32_t first_particle, uint64_t first_step, uint32_t stream,
                   uint32_t first_block, int64_t steps, int64_t particles, int64_t row_bytes, double scale,
                   int threads)
{
    const int halves = kind == FLOAT32 && row_bytes <= 2 * (int64_t)sizeof(float) ? 1 : 2;
    const Request request = {seed, first_step, first_particle, first_block, stream, steps, particles,
                             row_bytes,     scale,      kind,           halves,      out};
    Queue queue = {&request, steps * particles, steps * particles, 0};
    pthread_t handles[MAX_THREADS];
    int started = 0;
    if (queue.rows <= 0 || row_bytes <= 0)
        return;
    if (threads > 1)
        queue.shard_rows = 1 + SHARD_BYTES / row_bytes;
    threads = threads > MAX_THREADS ? MAX_THREADS : threads;
    while (started < threads - 1 && pthread_create(&handles[started], 0, fill_shards, &queue) == 0)
        started++;
    fill_shards(&queue);
    for (int i = 0; i < started; i++)
        pthread_join(handles[i], 0);
}

/* -------------------------------------------------------------------------------------------------------- Tiles
 *
 * The same normals for a few particles, laid out as compiled steps read them: (steps, components, row), particles
 * innermost. Particles are numbered ``apart`` from one another, and the tile has ``rows`` rows a step, of which the
 * first are filled: so tiles of several particles side by side are filled one after another. */

typedef struct {
    char *out;
    uint64_t seed, first_step;
    uint32_t first_particle, stream, apart;
    int64_t steps, particles, components, row, rows;
    double scale;
    int kind, halves;
} Tile;

/* Blocks of consecutive particles from consecutive lanes. */
INLINE void store_run(const Tile *tile, const Batch *batch, int lane, int64_t step, int64_t block, int64_t particle,
                      int64_t count)
{
    const size_t size = size_of(tile->kind);
    const int per_block = (int)(BLOCK_BYTES / size);
    const int64_t component = block * per_block, left = tile->components - component;
    char *out = tile->out + (size_t)((step * tile->rows + component) * tile->row + particle) * size;
    for (int i = 0; i < per_block && i < left; i++, out += (size_t)tile->row * size)
        copy_few(out, plane(batch, i, lane, tile->kind), (size_t)count * size);
}

INLINE int64_t blocks_per_step(const Tile *tile)
{
    const int64_t per_block = BLOCK_BYTES / (int64_t)size_of(tile->kind);
    return (tile->components + per_block - 1) / per_block;
}

static void flush_tile(const Kernel *kernel, const Tile *tile, Cells *cells, int count)
{
    Batch batch;
    end_cells(cells, count);
    kernel->draw_cells(tile->seed, cells, tile->apart, tile->kind, tile->halves, tile->scale, &batch);
    kernel->store_across(&batch, cells, tile->kind, tile->row * (int64_t)size_of(tile->kind));
}

/* Lanes go across particles: nothing is transposed. */
static void fill_tile_across(const Kernel *kernel, const Tile *tile)
{
    const int64_t size = (int64_t)size_of(tile->kind), width = kernel->bytes / size, blocks = blocks_per_step(tile);
    const int64_t block_stride = BLOCK_BYTES * tile->row, step_stride = tile->rows * tile->row * size;
    const int64_t last_bytes = tile->components * size - (blocks - 1) * BLOCK_BYTES;
    const int most = LANES / (int)width;
    int count = 0;
    Cells cells;
    for (int64_t step = 0; step < tile->steps; step++)
        for (int64_t particle = 0; particle < tile->particles; particle += width) {
            const uint64_t word = with_stream(tile->first_step + (uint64_t)step, tile->stream);
            const uint32_t first = tile->first_particle + (uint32_t)particle * tile->apart;
            const int64_t lanes = tile->particles - particle < width ? tile->particles - particle : width;
            char *out = tile->out + step * step_stride + particle * size;
            for (int64_t block = 0; block < blocks; block++, out += block_stride) {
                const int64_t bytes = block == blocks - 1 ? last_bytes : BLOCK_BYTES;
                set_cell(&cells, count, word, (uint32_t)block, first, out, lanes, bytes);
                if (++count < most)
                    continue;
                flush_tile(kernel, tile, &cells, count);
                count = 0;
            }
        }
    flush_tile(kernel, tile, &cells, count);
}

typedef struct {
    int64_t step, block, particle;
} Corner;

/* The next run of lanes that share step and block: its length, and the corner moved past it. */
INLINE int next_run(const Tile *tile, Corner *at, int left)
{
    const int64_t row = tile->particles - at->particle;
    const int length = row < left ? (int)row : left;
    at->particle += length;
    if (at->particle < tile->particles)
        return length;
    at->particle = 0;
    if (++at->block == blocks_per_step(tile)) {
        at->block = 0;
        at->step++;
    }
    return length;
}

/* Lanes are dealt out particle first, then block, then step: for few particles. */
static void fill_tile_in_order(const Kernel *kernel, const Tile *tile)
{
    Batch batch;
    Counters counters;
    memset(&counters, 0, sizeof counters);
    for (Corner at = {0, 0, 0}, from = at; at.step < tile->steps; from = at) {
        int lanes = 0;
        while (lanes < LANES && at.step < tile->steps) {
            const uint64_t step = with_stream(tile->first_step + (uint64_t)at.step, tile->stream);
            const uint32_t block = (uint32_t)at.block, first = (uint32_t)at.particle;
            const int length = next_run(tile, &at, LANES - lanes);
            for (int i = 0; i < length; i++, lanes++) {
                counters.word[BLOCK][lanes] = block;
                counters.word[PARTICLE][lanes] = tile->first_particle + (first + (uint32_t)i) * tile->apart;
                counters.word[STEP_LOW][lanes] = (uint32_t)step;
                counters.word[STEP_HIGH][lanes] = (uint32_t)(step >> 32);
            }
        }
        kernel->draw_counters(tile->seed, &counters, tile->kind, lanes, tile->halves, tile->scale, &batch);
        for (int lane = 0; lane < lanes;) {
            const Corner run = from;
            const int length = next_run(tile, &from, lanes - lane);
            store_run(tile, &batch, lane, run.step, run.block, run.particle, length);
            lane += length;
        }
    }
}

void torchsrk_fill_tile(void *out, int kind, uint64_t seed, uint32_t first_particle, uint64_t first_step,
                        uint32_t stream, int64_t steps, int64_t particles, int64_t components, int64_t row,
                        double scale, uint32_t apart, int64_t rows)
{
    if (particles == 1 && row == 1 && rows == components) { /* nothing to lay out */
        torchsrk_fill(out, kind, seed, first_particle, first_step, stream, 0, steps, 1,
                      components * (int64_t)size_of(kind), scale, 1);
        return;
    }
    const int halves = kind == FLOAT32 && components <= 2 ? 1 : 2;
    const Tile tile = {out,   seed, first_step, first_particle, stream, apart, steps, particles, components,
                       row, rows,          scale,      kind,           halves};
    const Kernel *const kernel = BEST_KERNEL;
    if (fills_cells(particles, kernel->bytes / (int64_t)size_of(kind)))
        fill_tile_across(kernel, &tile);
    else
        fill_tile_in_order(kernel, &tile);
}
