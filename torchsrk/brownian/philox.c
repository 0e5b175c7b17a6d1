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

#include "philox_batch.h"
#include "philox_sets.h"

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
    const char *const planes[4] = {plane(&batch, 0, 0, request->kind), plane(&batch, 1, 0, request->kind),
                                   plane(&batch, 2, 0, request->kind), plane(&batch, 3, 0, request->kind)};
    memset(&counters, 0, sizeof counters);
    count_up(request, first_row, end - first_row * blocks < LANES ? (int)(end - first_row * blocks) : LANES, &counters);
    int64_t row = first_row, block = 0;
    for (int64_t index = first_row * blocks; index < end; index += LANES) {
        const int lanes = end - index < LANES ? (int)(end - index) : LANES;
        kernel->draw_counters(request->seed, &counters, request->kind, lanes, request->halves, request->scale, &batch);
        char *const out = whole && lanes == LANES ? request->out + index * BLOCK_BYTES : buffer;
        store_blocks(planes, request->kind, lanes, out, BLOCK_BYTES);
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

/* There are so many: vectors end beyond the last one. */
INLINE void end_cells(Cells *cells, int count)
{
    cells->count = count;
    for (int cell = count; cell < count + ROOM - MAX_CELLS; cell++)
        cells->step[cell] = cells->block[cell] = cells->particle[cell] = 0;
}

static void draw_rows(const Kernel *kernel, const Request *request, const Cells *cells)
{
    Batch batch;
    kernel->draw_cells(request->seed, cells, 1, request->kind, request->halves, &batch);
    kernel->store_along(&batch, cells, request->kind, request->halves, request->scale, request->row_bytes);
}

/* Cells that wait until there are as many as a batch holds. */
typedef struct {
    Cells cells;
    int count, most;
} Collected;

/* The blocks of consecutive rows: upwards, which memory likes better, or if rows end inside a block, from the last to
 * the first: the whole block spills into the next rows, which are written later, as long as those are asked for too. */
INLINE void collect_rows(const Kernel *kernel, const Request *request, Collected *collected, uint64_t step,
                         uint32_t particle, char *out, int64_t lanes, const char *end)
{
    const int64_t blocks = blocks_per_row(request), row_bytes = request->row_bytes, last = blocks - 1;
    const int up = row_bytes % BLOCK_BYTES == 0;
    const int spills_inside = out + (lanes - 1) * row_bytes + blocks * BLOCK_BYTES <= end;
    int64_t block = up ? 0 : last, bytes = up || spills_inside ? BLOCK_BYTES : row_bytes - last * BLOCK_BYTES;
    out += block * BLOCK_BYTES;
    for (int64_t left = blocks; left > 0; left--) {
        const uint32_t number = request->first_block + (uint32_t)block;
        set_cell(&collected->cells, collected->count, step, number, particle, out, lanes, bytes);
        block += up ? 1 : -1;
        out += up ? BLOCK_BYTES : -BLOCK_BYTES;
        bytes = BLOCK_BYTES;
        if (++collected->count < collected->most)
            continue;
        draw_rows(kernel, request, &collected->cells);
        collected->count = 0;
    }
}

/* Lanes go across particles. */
static void fill_across(const Kernel *kernel, const Request *request, int64_t first_row, int64_t last_row)
{
    const int64_t particles = request->particles, row_bytes = request->row_bytes;
    const int64_t width = kernel->bytes / (int64_t)size_of(request->kind);
    const char *const end = request->out + last_row * row_bytes;
    Collected collected;
    collected.count = 0;
    collected.most = LANES / (int)width;
    end_cells(&collected.cells, collected.most);
    int64_t row = first_row;
    for (int64_t step = first_row / particles; row < last_row; step++) {
        const uint64_t word = with_stream(request->first_step + (uint64_t)step, request->stream);
        const uint32_t first = request->first_particle - (uint32_t)(step * particles);
        const int64_t stop = (step + 1) * particles < last_row ? (step + 1) * particles : last_row;
        for (; row < stop; row += width)
            collect_rows(kernel, request, &collected, word, first + (uint32_t)row, request->out + row * row_bytes,
                         stop - row < width ? stop - row : width, end);
        row = stop;
    }
    end_cells(&collected.cells, collected.count);
    draw_rows(kernel, request, &collected.cells);
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

static void draw_tile(const Kernel *kernel, const Tile *tile, const Cells *cells)
{
    Batch batch;
    kernel->draw_cells(tile->seed, cells, tile->apart, tile->kind, tile->halves, &batch);
    const int64_t stride = tile->row * (int64_t)size_of(tile->kind);
    kernel->store_across(&batch, cells, tile->kind, tile->halves, tile->scale, stride);
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
    end_cells(&cells, most);
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
                draw_tile(kernel, tile, &cells);
                count = 0;
            }
        }
    end_cells(&cells, count);
    draw_tile(kernel, tile, &cells);
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
