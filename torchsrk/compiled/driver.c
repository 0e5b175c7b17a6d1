/* The loop around a compiled step, included after it: tiles of particles, each taken through all its steps by one
 * thread, with its state and noise in that core's cache. The includer defines DIM, BROWNIAN, WORKSPACE (vectors of
 * temporaries a step uses), KIND (the noise kernel's name for REAL), the noise's streams INCREMENT_STREAM and
 * AREA_STREAM, and, if the scheme reads it, SPACE_TIME_AREA. */

#define MAX_THREADS 64
#define NOISE_BLOCKS 1024 /* Philox blocks drawn at a time: enough for the kernel's lanes, few enough for the cache */
#define MAX_NOISE_STEPS 64

/* torchsrk_fill_tile of the noise kernel. */
typedef void (*Draw)(void *out, int kind, uint64_t seed, uint32_t first_particle, uint64_t first_step, uint32_t stream,
                     int64_t steps, int64_t particles, int64_t components, int64_t row, double scale);

typedef struct {
    const REAL *source;
    REAL *out;
    int64_t particles, steps;
    uint64_t seed, first_step;
    uint32_t first_particle;
    double step_size, increment_scale, area_scale;
    const REAL *literals;
    const REAL *const *uniforms;
    Draw draw;
} Run;

typedef struct {
    const Run *run;
    int64_t next_tile;
    int failed;
} Queue;

static int64_t steps_drawn_together(int64_t particles)
{
    const int64_t block = 16 / sizeof(REAL), blocks = (BROWNIAN + block - 1) / block * particles;
    const int64_t steps = NOISE_BLOCKS / blocks;
    return steps < 1 ? 1 : steps > MAX_NOISE_STEPS ? MAX_NOISE_STEPS : steps;
}

/* The noise of some steps. Lanes beyond the last particle live the first one's life, and are never written out. */
static void draw(const Run *run, V *noise, uint32_t stream, uint32_t particle, uint64_t step0, int64_t steps,
                 int64_t particles, double scale)
{
    run->draw(noise, KIND, run->seed, particle, step0, stream, steps, particles, BROWNIAN, TILE, scale);
    if (particles < TILE)
        for (int64_t i = 0; i < steps * BROWNIAN; i++) {
            REAL *const row = (REAL *)(noise + i);
            EACH_LANE row[lane] = row[lane < particles ? lane : 0];
        }
}

static void run_tile(const Run *run, int64_t tile, V *workspace, V *x, V *next, V *W, V *H)
{
    const int64_t first = tile * TILE;
    const int64_t count = run->particles - first < TILE ? run->particles - first : TILE;
    const int64_t together = steps_drawn_together(count);
    const uint32_t particle = run->first_particle + (uint32_t)first;
    const REAL *source = run->source + first * DIM;
    for (int i = 0; i < DIM; i++)
        EACH_LANE ((REAL *)x)[i * TILE + lane] = source[(lane < count ? lane : 0) * DIM + i];
    for (int64_t done = 0; done < run->steps; done += together) {
        const int64_t steps = run->steps - done < together ? run->steps - done : together;
        const uint64_t step0 = run->first_step + (uint64_t)done;
        draw(run, W, INCREMENT_STREAM, particle, step0, steps, count, run->increment_scale);
#ifdef SPACE_TIME_AREA
        draw(run, H, AREA_STREAM, particle, step0, steps, count, run->area_scale);
#endif
        for (int64_t k = 0; k < steps; k++) {
            const V t = splat((REAL)((double)(step0 + (uint64_t)k) * run->step_size));
            step(x, W + k * BROWNIAN, H + k * BROWNIAN, t, run->literals, run->uniforms, workspace, next);
            V *const swap = x;
            x = next;
            next = swap;
        }
    }
    REAL *const out = run->out + first * DIM;
    for (int i = 0; i < DIM; i++)
        for (int64_t lane = 0; lane < count; lane++)
            out[lane * DIM + i] = ((const REAL *)x)[i * TILE + lane];
}

static void *run_tiles(void *argument)
{
    Queue *const queue = argument;
    const int64_t particles = queue->run->particles, tiles = (particles + TILE - 1) / TILE;
    /* The last tile has the fewest particles, and so the most steps of noise at a time. */
    const int64_t noise = BROWNIAN * steps_drawn_together(particles - (tiles - 1) * TILE);
    const size_t vectors = (size_t)(WORKSPACE + 2 * DIM + 2 * noise);
    V *memory = 0;
    if (posix_memalign((void **)&memory, 64, vectors * sizeof(V)) != 0) {
        __atomic_store_n(&queue->failed, 1, __ATOMIC_RELAXED);
        return 0;
    }
    V *const x = memory + WORKSPACE, *const next = x + DIM, *const W = next + DIM, *const H = W + noise;
    for (;;) {
        const int64_t tile = __atomic_fetch_add(&queue->next_tile, 1, __ATOMIC_RELAXED);
        if (tile >= tiles)
            break;
        run_tile(queue->run, tile, memory, x, next, W, H);
    }
    free(memory);
    return 0;
}

/* 0, or 1 if there was no memory. Threads are started for the call, so nothing outlives it. */
int torchsrk_run(const Run *run, int threads)
{
    Queue queue = {run, 0, 0};
    pthread_t handles[MAX_THREADS];
    int started = 0;
    const int64_t tiles = (run->particles + TILE - 1) / TILE;
    threads = threads > MAX_THREADS ? MAX_THREADS : threads;
    threads = threads > tiles ? (int)tiles : threads;
    while (started < threads - 1 && pthread_create(&handles[started], 0, run_tiles, &queue) == 0)
        started++;
    run_tiles(&queue);
    for (int i = 0; i < started; i++)
        pthread_join(handles[i], 0);
    return queue.failed;
}
