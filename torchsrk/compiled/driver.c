/* The loop around a compiled step, included after it: tiles of particles, each taken through all its steps by one
 * thread, with its state and noise in that core's cache. The includer defines WIDTH, WORKSPACE (vectors of temporaries a
 * step uses for a group), KIND (the noise kernel's name for REAL), the noise inputs of a step: NOISES, how many, and the
 * lists STREAMS and COMPONENTS; and MEMBERS: how many particles of the noise, numbered one after another, are one
 * particle here, with as many times the components; and SUBSTEPS: how many steps of noise a step reads, side by side. */

/* Philox blocks drawn at a time: enough for the kernel's lanes, few enough for the cache. */
#define NOISE_BLOCKS (1024 / GROUPS)
#define MAX_NOISE_STEPS 64
/* Nanoseconds of work a thread that are worth sharing: to wake a thread, or to start one, takes some ten thousand. */
#define WORTH_A_THREAD 30000

static const uint32_t streams[NOISES] = {STREAMS};
static const int64_t components[NOISES] = {COMPONENTS};

/* torchsrk_fill_tile of the noise kernel. */
typedef void (*Draw)(void *out, int kind, uint64_t seed, uint32_t first_particle, uint64_t first_step, uint32_t stream,
                     int64_t steps, int64_t particles, int64_t components, int64_t row, double scale,
                     uint32_t apart, int64_t rows);

typedef struct {
    const REAL *source;
    REAL *out;
    int64_t particles, steps;
    uint64_t seed, first_step;
    uint32_t first_particle;
    double step_size;
    const double *times;  /* when every step begins; null if that is a multiple of the step size */
    const double *scales; /* of the noise inputs */
    const REAL *literals;
    const REAL *const *uniforms;
    const int64_t *const *tables;
    /* From those of a step to those of the next: 0 where all steps have the same. */
    int64_t scales_apart, literals_apart, uniforms_apart, tables_apart;
    Draw draw;
} Run;

typedef struct {
    const Run *run;
    int64_t next_tile;
    int failed;
} Queue;

/* Nanoseconds of a step of a group, as the last call saw them: a density's own. 0 before any. */
static int64_t group_takes;

/* What a thread works in: for each group of a tile. */
typedef struct {
    V *temporaries, *x, *next, *noise[NOISES];
} Desk;

#define TILE_PARTICLES (GROUPS * TILE)

static int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

static int64_t steps_drawn_together(int64_t particles)
{
    const int64_t in_block = 16 / sizeof(REAL);
    int64_t most = 1;
    for (int i = 0; i < NOISES; i++)
        most = components[i] > most ? components[i] : most;
    most *= MEMBERS * SUBSTEPS;
    const int64_t steps = NOISE_BLOCKS / ((most + in_block - 1) / in_block * at_most(particles, TILE));
    return steps < 1 ? 1 : at_most(steps, MAX_NOISE_STEPS);
}

/* Noise that was drawn without a scale, times the scale that it has in every step. */
static void scale(const Run *run, V *noise, int input, int64_t done, int64_t steps)
{
    const int64_t rows = SUBSTEPS * MEMBERS * components[input];
    for (int64_t k = 0; k < steps; k++) {
        const V factor = splat((REAL)run->scales[(done + k) * run->scales_apart + input]);
        for (int64_t row = 0; row < rows; row++)
            noise[k * rows + row] = noise[k * rows + row] * factor;
    }
}

/* The noise of some steps. Lanes beyond the last particle live the first one's life, and are never written out. */
static void draw(const Run *run, const Desk *desk, int64_t first, int64_t particles, int64_t done, int64_t count)
{
    const uint64_t step0 = (run->first_step + (uint64_t)done) * SUBSTEPS;
    const int64_t steps = count * SUBSTEPS;
    const uint32_t particle = run->first_particle + (uint32_t)first * MEMBERS;
    for (int i = 0; i < NOISES; i++) {
        for (uint32_t member = 0; member < MEMBERS; member++)
            run->draw(desk->noise[i] + member * components[i], KIND, run->seed, particle + member, step0, streams[i],
                      steps, particles, components[i], TILE, run->scales_apart ? 1.0 : run->scales[i], MEMBERS,
                      MEMBERS * components[i]);
        if (particles < TILE)
            for (int64_t k = 0; k < steps * MEMBERS * components[i]; k++) {
                REAL *const row = (REAL *)(desk->noise[i] + k);
                EACH_LANE row[lane] = row[lane < particles ? lane : 0];
            }
        if (run->scales_apart)
            scale(run, desk->noise[i], i, done, count);
    }
}

static void run_tile(const Run *run, int64_t tile, Desk *desks)
{
    const int64_t first = tile * TILE_PARTICLES, count = at_most(run->particles - first, TILE_PARTICLES);
    const int groups = (int)((count + TILE - 1) / TILE);
    const int64_t together = steps_drawn_together(count);
    EACH_GROUP {
        const REAL *source = run->source + (first + g * TILE) * WIDTH;
        for (int i = 0; i < WIDTH; i++)
            EACH_LANE ((REAL *)desks[g].x)[i * TILE + lane] = source[(g * TILE + lane < count ? lane : 0) * WIDTH + i];
    }
    for (int64_t done = 0; done < run->steps; done += together) {
        const int64_t steps = at_most(run->steps - done, together);
        const uint64_t step0 = run->first_step + (uint64_t)done;
        EACH_GROUP draw(run, desks + g, first + g * TILE, at_most(count - g * TILE, TILE), done, steps);
        for (int64_t k = 0; k < steps; k++) {
            const double start = run->times ? run->times[done + k] : (double)(step0 + (uint64_t)k) * run->step_size;
            const V t = splat((REAL)start);
            Group group[GROUPS];
            EACH_GROUP {
                Desk *const desk = desks + g;
                group[g] = (Group){.x = desk->x, .work = desk->temporaries, .out = desk->next};
                for (int i = 0; i < NOISES; i++)
                    group[g].noise[i] = desk->noise[i] + k * SUBSTEPS * MEMBERS * components[i];
                desk->next = desk->x;
                desk->x = group[g].out;
            }
            step(group, groups, t, run->literals + (done + k) * run->literals_apart,
                 run->uniforms + (done + k) * run->uniforms_apart,
                 run->tables + (done + k) * run->tables_apart);
        }
    }
    EACH_GROUP {
        REAL *const out = run->out + (first + g * TILE) * WIDTH;
        for (int i = 0; i < WIDTH; i++)
            for (int64_t lane = 0; lane < at_most(count - g * TILE, TILE); lane++)
                out[lane * WIDTH + i] = ((const REAL *)desks[g].x)[i * TILE + lane];
    }
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static int64_t groups_of(int64_t particles) { return (particles + TILE - 1) / TILE; }

static int64_t tiles_of(int64_t particles) { return (particles + TILE_PARTICLES - 1) / TILE_PARTICLES; }

/* A tile's work space, and ``desks`` in it; null if there is no memory. */
static void *furnished(const Run *run, Desk *desks)
{
    /* The last tile may have the fewest particles, and so the most steps of noise at a time. */
    const int64_t together = steps_drawn_together(run->particles - (tiles_of(run->particles) - 1) * TILE_PARTICLES);
    int64_t vectors = WORKSPACE + 2 * WIDTH;
    for (int i = 0; i < NOISES; i++)
        vectors += together * SUBSTEPS * MEMBERS * components[i];
    void *memory = 0;
    if (posix_memalign(&memory, 64, (size_t)(GROUPS * vectors) * sizeof(V)) != 0)
        return 0;
    V *free_from = memory;
    for (int g = 0; g < GROUPS; g++) {
        desks[g].temporaries = free_from;
        desks[g].x = free_from + WORKSPACE;
        desks[g].next = desks[g].x + WIDTH;
        free_from = desks[g].next + WIDTH;
        for (int i = 0; i < NOISES; i++) {
            desks[g].noise[i] = free_from;
            free_from += together * SUBSTEPS * MEMBERS * components[i];
        }
    }
    return memory;
}

static void run_tiles(void *argument)
{
    Queue *const queue = argument;
    const Run *const run = queue->run;
    const int64_t tiles = tiles_of(run->particles);
    Desk desks[GROUPS];
    void *memory = 0;
    for (;;) {
        const int64_t tile = __atomic_fetch_add(&queue->next_tile, 1, __ATOMIC_RELAXED);
        if (tile >= tiles)
            break;
        if (!memory && !(memory = furnished(run, desks))) {
            __atomic_store_n(&queue->failed, 1, __ATOMIC_RELAXED);
            break;
        }
        const int64_t start = nanoseconds();
        run_tile(run, tile, desks);
        if (tile == 0 && run->steps > 0) {
            const int64_t steps = run->steps * groups_of(at_most(run->particles, TILE_PARTICLES));
            __atomic_store_n(&group_takes, 1 + (nanoseconds() - start) / steps, __ATOMIC_RELAXED);
        }
    }
    free(memory);
}

/* 0, or 1 if there was no memory. */
int torchsrk_run(const Run *run, int threads, Team team)
{
    Queue queue = {run, 0, 0};
    const double takes = (double)__atomic_load_n(&group_takes, __ATOMIC_RELAXED);
    const double work = takes * (double)(groups_of(run->particles) * run->steps);
    /* All or none: a team that is called with fewer ends the others, and torch has to start them again. */
    const int is_worth_it = tiles_of(run->particles) > 1 && (!takes || work > (double)WORTH_A_THREAD * threads);
    share(team, is_worth_it ? threads : 1, tiles_of(run->particles), run_tiles, &queue);
    return queue.failed;
}
