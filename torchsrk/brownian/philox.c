/* Standard normals from a counter: Philox4x32-10 words (Salmon et al., SC'11), then Box-Muller.
 *
 * The draw for (seed, particle, step, stream, component) is a pure function of those five numbers. Its bits must
 * not depend on the vector width, the thread count or where a batch was cut, so every operation on floats is one
 * IEEE add, multiply, divide or square root, in the order in which philox.py does it. The build forbids contraction
 * to fused multiply-add (setup.py), and log, sin and cos are the short polynomials below.
 *
 * Counter words: component block | particle | low half of the step | high half of the step (16 bits), stream << 16.
 * A block, four words, is four float32 normals or two float64 normals.
 */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define LANES 128 /* blocks drawn together: few enough for the first-level cache, many for the vector units */
#define MAX_THREADS 64
#define BLOCK_BYTES 16
#define SHARD_BYTES (1 << 18)

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

enum { WORDS = 0, FLOAT32 = 1, FLOAT64 = 2 };

typedef struct {
    uint64_t seed, first_step;
    uint32_t first_particle, first_block, stream;
    int64_t steps, particles, row_bytes; /* the output is (steps, particles, row_bytes) */
    double scale;
    int kind;
    char *out;
} Request;

/* The counters of LANES consecutive blocks of the output, and the words drawn from them. */
typedef struct {
    uint32_t block[LANES], particle[LANES], step_low[LANES], step_high[LANES];
    uint32_t w0[LANES], w1[LANES], w2[LANES], w3[LANES];
} Lanes;

/* ---------------------------------------------------------------------------------------------- Philox4x32-10 */

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u
#define WEYL_1 0xBB67AE85u

static void philox_portable(uint64_t seed, Lanes *lanes);

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Words ride in the low halves of 64-bit lanes, where the widening multiply wants them; what gathers in the high
 * halves is never read. Compilers spend three times as long shuffling the portable loop below. */
__attribute__((target("avx2"))) static void philox_avx2(uint64_t seed, Lanes *lanes)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i m0 = _mm256_set1_epi64x(MULTIPLIER_0), m1 = _mm256_set1_epi64x(MULTIPLIER_1);
    for (int lane = 0; lane < LANES; lane += 8) {
#define LOAD(words) _mm256_loadu_si256((const __m256i *)(lanes->words + lane))
        __m256i a0 = _mm256_unpacklo_epi32(LOAD(block), zero), b0 = _mm256_unpackhi_epi32(LOAD(block), zero);
        __m256i a1 = _mm256_unpacklo_epi32(LOAD(particle), zero), b1 = _mm256_unpackhi_epi32(LOAD(particle), zero);
        __m256i a2 = _mm256_unpacklo_epi32(LOAD(step_low), zero), b2 = _mm256_unpackhi_epi32(LOAD(step_low), zero);
        __m256i a3 = _mm256_unpacklo_epi32(LOAD(step_high), zero), b3 = _mm256_unpackhi_epi32(LOAD(step_high), zero);
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            const __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);
#define ROUND(x0, x1, x2, x3)                                                                                  \
    {                                                                                                          \
        const __m256i p0 = _mm256_mul_epu32(m0, x0), p1 = _mm256_mul_epu32(m1, x2);                            \
        x0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(x1, key0));                          \
        x2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(x3, key1));                          \
        x1 = p1;                                                                                               \
        x3 = p0;                                                                                               \
    }
            ROUND(a0, a1, a2, a3)
            ROUND(b0, b1, b2, b3)
            k0 += WEYL_0;
            k1 += WEYL_1;
        }
#define STORE(words, a, b)                                                                                     \
    _mm256_storeu_ps((float *)(lanes->words + lane),                                                           \
                     _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88))
        STORE(w0, a0, b0);
        STORE(w1, a1, b1);
        STORE(w2, a2, b2);
        STORE(w3, a3, b3);
    }
}
#undef LOAD
#undef ROUND
#undef STORE

/* The same, sixteen blocks at a time. */
__attribute__((target("avx512f"))) static void philox_avx512(uint64_t seed, Lanes *lanes)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i m0 = _mm512_set1_epi64(MULTIPLIER_0), m1 = _mm512_set1_epi64(MULTIPLIER_1);
    for (int lane = 0; lane < LANES; lane += 16) {
#define LOAD(words) _mm512_loadu_si512(lanes->words + lane)
        __m512i a0 = _mm512_unpacklo_epi32(LOAD(block), zero), b0 = _mm512_unpackhi_epi32(LOAD(block), zero);
        __m512i a1 = _mm512_unpacklo_epi32(LOAD(particle), zero), b1 = _mm512_unpackhi_epi32(LOAD(particle), zero);
        __m512i a2 = _mm512_unpacklo_epi32(LOAD(step_low), zero), b2 = _mm512_unpackhi_epi32(LOAD(step_low), zero);
        __m512i a3 = _mm512_unpacklo_epi32(LOAD(step_high), zero), b3 = _mm512_unpackhi_epi32(LOAD(step_high), zero);
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            const __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);
#define XOR_3(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define ROUND(x0, x1, x2, x3)                                                                                  \
    {                                                                                                          \
        const __m512i p0 = _mm512_mul_epu32(m0, x0), p1 = _mm512_mul_epu32(m1, x2);                            \
        x0 = XOR_3(_mm512_srli_epi64(p1, 32), x1, key0);                                                       \
        x2 = XOR_3(_mm512_srli_epi64(p0, 32), x3, key1);                                                       \
        x1 = p1;                                                                                               \
        x3 = p0;                                                                                               \
    }
            ROUND(a0, a1, a2, a3)
            ROUND(b0, b1, b2, b3)
            k0 += WEYL_0;
            k1 += WEYL_1;
        }
#define STORE(words, a, b)                                                                                     \
    _mm512_storeu_ps(lanes->words + lane, _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88))
        STORE(w0, a0, b0);
        STORE(w1, a1, b1);
        STORE(w2, a2, b2);
        STORE(w3, a3, b3);
    }
}
#undef LOAD
#undef XOR_3
#undef ROUND
#undef STORE
#define PHILOX_BEST                                                                                            \
    (__builtin_cpu_supports("avx512f") ? philox_avx512                                                         \
     : __builtin_cpu_supports("avx2")  ? philox_avx2                                                           \
                                       : philox_portable)
#else
#define PHILOX_BEST philox_portable
#endif

static void philox_portable(uint64_t seed, Lanes *lanes)
{
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t x0 = lanes->block[lane], x1 = lanes->particle[lane];
        uint32_t x2 = lanes->step_low[lane], x3 = lanes->step_high[lane];
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = (uint64_t)MULTIPLIER_0 * x0, p1 = (uint64_t)MULTIPLIER_1 * x2;
            x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
            x1 = (uint32_t)p1;
            x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
            x3 = (uint32_t)p0;
            k0 += WEYL_0;
            k1 += WEYL_1;
        }
        lanes->w0[lane] = x0;
        lanes->w1[lane] = x1;
        lanes->w2[lane] = x2;
        lanes->w3[lane] = x3;
    }
}

/* ------------------------------------------------------------------------------------------------- Box-Muller
 *
 * Radius: u in (0, 1] with -2 log u = -2 e log 2 - 4 artanh(s), s = (m - 1)/(m + 1), u = m 2^e, m in [1/sqrt 2, sqrt 2).
 * Angle: the two top bits are a quadrant, the rest a fraction t of it in [-1/2, 1/2).
 * The coefficients interpolate at Chebyshev nodes, worked out to 50 digits: artanh in s^2, sin and cos in t^2.
 *
 * Every loop is short on purpose. Its body is one chain of dependent operations, and the fewer there are, the more
 * lanes fit the processor's window and overlap: one long loop takes a sixth longer. */

INLINE float float_of(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
INLINE uint32_t bits_of_float(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
INLINE double double_of(uint64_t bits) { double x; memcpy(&x, &bits, sizeof x); return x; }
INLINE uint64_t bits_of_double(double x) { uint64_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

#define EACH_LANE for (int lane = 0; lane < LANES; lane++)

/* 31 bits, finest near 0: the largest normal is 6.66. */
INLINE void radius32(const uint32_t *word, float scale, float *restrict radius)
{
    float s[LANES], e[LANES];
    EACH_LANE
    {
        const uint32_t bits = bits_of_float(((float)(int32_t)(word[lane] >> 1) + 0.5f) * 0x1p-31f);
        const int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
        const float m = float_of(bits - ((uint32_t)exponent << 23));
        s[lane] = (m - 1.0f) / (m + 1.0f);
        e[lane] = (float)exponent;
    }
    EACH_LANE
    {
        const float z = s[lane] * s[lane];
        float p = -0.5984878f;
        p = p * z + -0.799497f;
        p = p * z + -1.3333364f;
        p = p * z + -4.0f;
        radius[lane] = sqrtf(e[lane] * -1.3862944f + s[lane] * p) * scale;
    }
}

INLINE void turn32(const uint32_t *word, const float *radius, float *restrict first, float *restrict second)
{
    float sine[LANES], cosine[LANES];
    EACH_LANE
    {
        const float t = (float)(int32_t)(word[lane] << 2) * 0x1p-32f, z = t * t;
        float p = -0.004602149f;
        p = p * z + 0.07968022f;
        p = p * z + -0.6459635f;
        sine[lane] = (p * z + 1.5707964f) * t;
    }
    EACH_LANE
    {
        const float t = (float)(int32_t)(word[lane] << 2) * 0x1p-32f, z = t * t;
        float p = 0.0009067399f;
        p = p * z + -0.020861529f;
        p = p * z + 0.2536694f;
        p = p * z + -1.2337005f;
        cosine[lane] = p * z + 1.0f;
    }
    EACH_LANE
    {
        const uint32_t odd = word[lane] << 1, sign = 0x80000000u;
        const float c = (int32_t)odd < 0 ? sine[lane] : cosine[lane];
        const float s = (int32_t)odd < 0 ? cosine[lane] : sine[lane];
        first[lane] = radius[lane] * float_of(bits_of_float(c) ^ ((word[lane] ^ odd) & sign));
        second[lane] = radius[lane] * float_of(bits_of_float(s) ^ (word[lane] & sign));
    }
}

/* Normal i of every lane's block, in plane i. */
VECTOR_CLONES static void planes32(const Lanes *lanes, float scale, float (*restrict plane)[LANES])
{
    float radius[LANES];
    radius32(lanes->w0, scale, radius);
    turn32(lanes->w1, radius, plane[0], plane[1]);
    radius32(lanes->w2, scale, radius);
    turn32(lanes->w3, radius, plane[2], plane[3]);
}

VECTOR_CLONES static void normals32(const Lanes *lanes, float scale, float *restrict out)
{
    float plane[4][LANES];
    planes32(lanes, scale, plane);
    EACH_LANE
    {
        out[4 * lane] = plane[0][lane];
        out[4 * lane + 1] = plane[1][lane];
        out[4 * lane + 2] = plane[2][lane];
        out[4 * lane + 3] = plane[3][lane];
    }
}

/* 52 bits: the largest normal is 8.49. */
INLINE void radius64(const uint32_t *high, const uint32_t *low, double scale, double *restrict radius)
{
    const uint64_t one = 0x3ff0000000000000u, root_half = 0x3fe6a09e667f3bcdu;
    double s[LANES], e[LANES];
    EACH_LANE
    {
        const uint64_t word = (uint64_t)high[lane] << 32 | low[lane];
        const uint64_t shifted = bits_of_double(2.0 - double_of(word >> 12 | one)) + (one - root_half);
        const double m = double_of((shifted & 0x000fffffffffffffu) + root_half);
        s[lane] = (m - 1.0) / (m + 1.0);
        e[lane] = double_of(shifted >> 52 | 0x4330000000000000u) - 4503599627371519.0; /* 2^52 + 1023 */
    }
    EACH_LANE
    {
        const double z = s[lane] * s[lane];
        double p = -0.2961942072131055;
        p = p * z + -0.3062505629672838;
        p = p * z + -0.36367263360458657;
        p = p * z + -0.44444394113452096;
        p = p * z + -0.5714285752128336;
        p = p * z + -0.7999999999860468;
        p = p * z + -1.333333333333353;
        p = p * z + -4.0;
        radius[lane] = sqrt(e[lane] * -1.3862943611198906 + s[lane] * p) * scale;
    }
}

VECTOR_CLONES static void planes64(const Lanes *lanes, double scale, double (*restrict plane)[LANES])
{
    double radius[LANES], t[LANES], sine[LANES], cosine[LANES];
    uint64_t word[LANES];
    radius64(lanes->w0, lanes->w1, scale, radius);
    EACH_LANE
    {
        word[lane] = (uint64_t)lanes->w2[lane] << 32 | lanes->w3[lane];
        t[lane] = double_of(word[lane] << 2 >> 12 | 0x3ff0000000000000u) - 1.5;
    }
    EACH_LANE
    {
        const double z = t[lane] * t[lane];
        double p = 5.633933781537854e-08;
        p = p * z + -3.59864335298231e-06;
        p = p * z + 0.0001604411507421909;
        p = p * z + -0.004681754132340976;
        p = p * z + 0.07969262624604301;
        p = p * z + -0.6459640975062443;
        sine[lane] = (p * z + 1.5707963267948966) * t[lane];
    }
    EACH_LANE
    {
        const double z = t[lane] * t[lane];
        double p = -6.329396344967424e-09;
        p = p * z + 4.710678405505227e-07;
        p = p * z + -2.5202039028029178e-05;
        p = p * z + 0.0009192602745468447;
        p = p * z + -0.020863480763340773;
        p = p * z + 0.2536695079010478;
        p = p * z + -1.2337005501361697;
        cosine[lane] = p * z + 1.0;
    }
    EACH_LANE
    {
        const uint64_t odd = word[lane] << 1, sign = 0x8000000000000000u;
        const double c = (int64_t)odd < 0 ? sine[lane] : cosine[lane];
        const double s = (int64_t)odd < 0 ? cosine[lane] : sine[lane];
        plane[0][lane] = radius[lane] * double_of(bits_of_double(c) ^ ((word[lane] ^ odd) & sign));
        plane[1][lane] = radius[lane] * double_of(bits_of_double(s) ^ (word[lane] & sign));
    }
}

VECTOR_CLONES static void normals64(const Lanes *lanes, double scale, double *restrict out)
{
    double plane[2][LANES];
    planes64(lanes, scale, plane);
    EACH_LANE
    {
        out[2 * lane] = plane[0][lane];
        out[2 * lane + 1] = plane[1][lane];
    }
}

static void words(const Lanes *lanes, uint32_t *restrict out)
{
    for (int lane = 0; lane < LANES; lane++) {
        out[4 * lane] = lanes->w0[lane];
        out[4 * lane + 1] = lanes->w1[lane];
        out[4 * lane + 2] = lanes->w2[lane];
        out[4 * lane + 3] = lanes->w3[lane];
    }
}

/* --------------------------------------------------------------------------------------- Walking over the output */

INLINE int64_t blocks_per_row(const Request *request)
{
    return (request->row_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static void place(const Request *request, int64_t index, Lanes *lanes)
{
    const int64_t blocks = blocks_per_row(request);
    for (int lane = 0; lane < LANES; lane++, index++) {
        const uint64_t step = request->first_step + (uint64_t)(index / blocks / request->particles);
        lanes->block[lane] = request->first_block + (uint32_t)(index % blocks);
        lanes->particle[lane] = request->first_particle + (uint32_t)(index / blocks % request->particles);
        lanes->step_low[lane] = (uint32_t)step;
        lanes->step_high[lane] = (uint32_t)(step >> 32) | request->stream << 16;
    }
}

/* The same LANES blocks further on, without a division: block, particle and step are digits of a mixed-radix
 * number, so advancing is adding digits and carrying. */
VECTOR_CLONES static void advance(const Request *request, Lanes *lanes)
{
    const uint32_t blocks = (uint32_t)blocks_per_row(request), particles = (uint32_t)request->particles;
    const uint32_t by_block = LANES % blocks, rows = LANES / blocks, by_particle = rows % particles;
    const uint32_t by_step = rows / particles, block0 = request->first_block, particle0 = request->first_particle;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t block = lanes->block[lane] - block0 + by_block;
        const uint32_t carry = block >= blocks;
        block -= carry ? blocks : 0;
        uint32_t particle = lanes->particle[lane] - particle0 + by_particle + carry;
        const uint32_t carry_step = particle >= particles;
        particle -= carry_step ? particles : 0;
        const uint32_t low = lanes->step_low[lane] + by_step + carry_step;
        lanes->step_high[lane] += low < lanes->step_low[lane];
        lanes->step_low[lane] = low;
        lanes->block[lane] = block + block0;
        lanes->particle[lane] = particle + particle0;
    }
}

static void draw(const Request *request, Lanes *lanes, void *out)
{
    PHILOX_BEST(request->seed, lanes);
    if (request->kind == FLOAT32)
        normals32(lanes, (float)request->scale, out);
    else if (request->kind == FLOAT64)
        normals64(lanes, request->scale, out);
    else
        words(lanes, out);
}

static void fill_rows(const Request *request, int64_t first_row, int64_t last_row)
{
    const int64_t blocks = blocks_per_row(request), end = last_row * blocks;
    const int whole = request->row_bytes % BLOCK_BYTES == 0;
    _Alignas(64) char buffer[LANES * BLOCK_BYTES];
    Lanes lanes;
    place(request, first_row * blocks, &lanes);
    for (int64_t index = first_row * blocks; index < end; index += LANES) {
        if (whole && index + LANES <= end) {
            draw(request, &lanes, request->out + index * BLOCK_BYTES);
        } else { /* the end of the request, or rows that end inside a block: draw aside, copy what is asked for */
            draw(request, &lanes, buffer);
            for (int lane = 0; lane < LANES && index + lane < end; lane++) {
                const int64_t row = (index + lane) / blocks, offset = (index + lane) % blocks * BLOCK_BYTES;
                const int64_t left = request->row_bytes - offset;
                memcpy(request->out + row * request->row_bytes + offset, buffer + lane * BLOCK_BYTES,
                       (size_t)(left < BLOCK_BYTES ? left : BLOCK_BYTES));
            }
        }
        advance(request, &lanes);
    }
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
    const Request request = {seed,  first_step, first_particle, first_block, stream, steps, particles,
                             row_bytes, scale,  kind,           out};
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

/* ------------------------------------------------------------------------------------------------------- Tiles
 *
 * The same normals for a few particles, laid out as compiled steps read them: (steps, components, row), particles
 * innermost. Lanes are dealt out particle first, then block, then step, so that a run of lanes is a row of the tile
 * and nothing is transposed. */

typedef struct {
    int64_t step, block, particle;
} Corner;

/* The next run of lanes that share step and block: its length, and the corner moved past it. ``whole`` says that
 * LANES is a multiple of the particles: then a run is all of them. */
INLINE int next_run(Corner *at, int64_t particles, int64_t blocks, int left, int whole)
{
    const int64_t row = particles - at->particle;
    const int length = whole ? (int)particles : row < left ? (int)row : left;
    if (!whole) {
        at->particle += length;
        if (at->particle < particles)
            return length;
        at->particle = 0;
    }
    if (++at->block == blocks) {
        at->block = 0;
        at->step++;
    }
    return length;
}

/* Particles are numbered ``apart`` from one another, and the tile has ``rows`` rows a step, of which the first are
 * filled: so tiles of several particles side by side are filled one after another. */
typedef struct {
    void *out;
    uint64_t seed, first_step;
    uint32_t first_particle, stream, apart;
    int64_t steps, components, row, rows;
    double scale;
} Tile;

/* Planes to rows of the tile. */
INLINE void scatter(const Tile *tile, const char *planes, Corner at, int64_t particles, int per_block, int whole)
{
    const size_t size = BLOCK_BYTES / (size_t)per_block;
    const int64_t blocks = (tile->components + per_block - 1) / per_block;
    for (int lane = 0; lane < LANES && at.step < tile->steps;) {
        const Corner from = at;
        const int length = next_run(&at, particles, blocks, LANES - lane, whole);
        const int64_t component = from.block * per_block, left = tile->components - component;
        for (int i = 0; i < per_block && i < left; i++) {
            const int64_t place = (from.step * tile->rows + component + i) * tile->row + from.particle;
            memcpy((char *)tile->out + (size_t)place * size, planes + (size_t)(i * LANES + lane) * size,
                   (size_t)length * size);
        }
        lane += length;
    }
}

/* All but the first argument are constants of the usual tiles, once this is inlined. */
INLINE void fill_tile(const Tile *tile, int kind, int64_t particles, int whole)
{
    const int per_block = kind == FLOAT32 ? 4 : 2;
    const int64_t blocks = (tile->components + per_block - 1) / per_block;
    _Alignas(64) char planes[4 * LANES * sizeof(float)];
    Lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    for (Corner at = {0, 0, 0}, from = at; at.step < tile->steps; from = at) {
        for (int lane = 0; lane < LANES && at.step < tile->steps;) {
            const uint64_t step = tile->first_step + (uint64_t)at.step;
            const uint32_t low = (uint32_t)step, high = (uint32_t)(step >> 32) | tile->stream << 16;
            const uint32_t block = (uint32_t)at.block, first = (uint32_t)at.particle;
            const int length = next_run(&at, particles, blocks, LANES - lane, whole);
            for (int i = 0; i < length; i++, lane++) {
                lanes.block[lane] = block;
                lanes.particle[lane] = tile->first_particle + (first + (uint32_t)i) * tile->apart;
                lanes.step_low[lane] = low;
                lanes.step_high[lane] = high;
            }
        }
        PHILOX_BEST(tile->seed, &lanes);
        if (kind == FLOAT32)
            planes32(&lanes, (float)tile->scale, (float(*)[LANES])planes);
        else
            planes64(&lanes, tile->scale, (double(*)[LANES])planes);
        scatter(tile, planes, from, particles, per_block, whole);
    }
}

void torchsrk_fill_tile(void *out, int kind, uint64_t seed, uint32_t first_particle, uint64_t first_step,
                        uint32_t stream, int64_t steps, int64_t particles, int64_t components, int64_t row,
                        double scale, uint32_t apart, int64_t rows)
{
    const Tile tile = {out, seed, first_step, first_particle, stream, apart, steps, components, row, rows, scale};
    if (particles == 1 && row == 1 && rows == components) /* nothing to lay out */
        torchsrk_fill(out, kind, seed, first_particle, first_step, stream, 0, steps, 1,
                      components * (BLOCK_BYTES / (kind == FLOAT32 ? 4 : 2)), scale, 1);
    else if (kind == FLOAT32 && particles == 16)
        fill_tile(&tile, FLOAT32, 16, 1);
    else if (kind == FLOAT32 && particles == 8)
        fill_tile(&tile, FLOAT32, 8, 1);
    else if (kind == FLOAT32)
        fill_tile(&tile, FLOAT32, particles, 0);
    else if (particles == 8)
        fill_tile(&tile, FLOAT64, 8, 1);
    else if (particles == 4)
        fill_tile(&tile, FLOAT64, 4, 1);
    else
        fill_tile(&tile, FLOAT64, particles, 0);
}
