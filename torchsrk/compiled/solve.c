/* The loop around the steps of a solve, included after them in the place of driver.c: every state is kept. With ADJOINT
 * the step is the one back: from (x, slope) at its end to the slope at its start, followed by EMITTED - WIDTH vectors
 * of which the gradients of parameters are sums over particles and steps; REDUCTIONS lists them, TOTALS their entries.
 *
 * Particles are shared out to SLOTS by number, not by thread: so sums are the same bits for any number of threads. */

#define SLOTS 8
#define EMITTED_BYTES (1 << 18) /* of a tile's steps, before they are summed: half of a second-level cache */
#define MOST_TOGETHER 32
#ifndef ADJOINT
#define EMITTED WIDTH
#define TOTALS 1
#endif

static const uint32_t streams[NOISES] = {STREAMS};
static const int64_t components[NOISES] = {COMPONENTS};

/* torchsrk_fill_tile of the noise kernel. */
typedef void (*Draw)(void *out, int kind, uint64_t seed, uint32_t first_particle, uint64_t first_step, uint32_t stream,
                     int64_t steps, int64_t particles, int64_t components, int64_t row, double scale,
                     uint32_t apart, int64_t rows);

typedef struct {
    REAL *states;           /* (steps + 1, particles, WIDTH) */
    REAL *slope;            /* (particles, WIDTH): of the last state, then of the first */
    const REAL *slopes;     /* (reported, particles, WIDTH) */
    const int64_t *reports; /* of each step, the slope of the state after it; -1 if that is not reported */
    double *totals;         /* (SLOTS, TOTALS) */
    const double *times;    /* of each step */
    int64_t particles, steps;
    uint64_t seed, first_step;
    uint32_t first_particle;
    const double *scales;
    const REAL *literals;
    const REAL *const *uniforms;
    const int64_t *const *tables;
    Draw draw;
} Solve;

typedef struct {
    const Solve *solve;
    int64_t next_slot;
    int failed;
} Queue;

typedef struct {
    V *temporaries, *x, *emitted, *noise[NOISES];
} Desk;

static int64_t steps_together(void)
{
    const int64_t steps = EMITTED_BYTES / ((int64_t)EMITTED * (int64_t)sizeof(V));
    return steps < 1 ? 1 : steps > MOST_TOGETHER ? MOST_TOGETHER : steps;
}

/* Lanes beyond the last particle live the first one's life. */
static void draw(const Solve *solve, const Desk *desk, int64_t first, int64_t particles, int64_t step, int64_t steps)
{
    for (int i = 0; i < NOISES; i++) {
        solve->draw(desk->noise[i], KIND, solve->seed, solve->first_particle + (uint32_t)first,
                    solve->first_step + (uint64_t)step, streams[i], steps, particles, components[i], TILE,
                    solve->scales[i], 1, components[i]);
        if (particles < TILE)
            for (int64_t k = 0; k < steps * components[i]; k++) {
                REAL *const row = (REAL *)(desk->noise[i] + k);
                EACH_LANE row[lane] = row[lane < particles ? lane : 0];
            }
    }
}

static void load(V *x, const REAL *rows, int64_t count)
{
    for (int i = 0; i < WIDTH; i++)
        EACH_LANE ((REAL *)x)[i * TILE + lane] = rows[(lane < count ? lane : 0) * WIDTH + i];
}

static void save(const V *x, REAL *rows, int64_t count)
{
    for (int i = 0; i < WIDTH; i++)
        for (int64_t lane = 0; lane < count; lane++)
            rows[lane * WIDTH + i] = ((const REAL *)x)[i * TILE + lane];
}

static void step_at(const Solve *solve, const Desk *desk, int64_t k, int64_t drawn_from, V *out)
{
    Group group[1] = {{.x = desk->x, .work = desk->temporaries, .out = out}};
    for (int i = 0; i < NOISES; i++)
        group[0].noise[i] = desk->noise[i] + (k - drawn_from) * components[i];
    step(group, 1, splat((REAL)solve->times[k]), solve->literals, solve->uniforms, solve->tables);
}

#ifdef ADJOINT
/* totals[total + row * columns + column] is the sum of left[row] * right[column] over particles, steps and `terms`, one
 * of them after another, and that in each of `batch`; or of left[row] alone, if there are no columns. */
typedef struct {
    int64_t batch, terms, rows, columns, left, right, total;
} Reduction;

static const Reduction reductions[] = {REDUCTIONS};

INLINE void add_block(const V *emitted, int64_t steps, const Reduction *r, int64_t b, int64_t row, int64_t column,
                      int rows, int columns, double *totals)
{
    V sums[4][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            sums[i][j] = splat(0);
    for (int64_t k = 0; k < steps; k++) {
        const V *left = emitted + k * EMITTED + r->left + b * r->terms * r->rows + row;
        const V *right = emitted + k * EMITTED + r->right + b * r->terms * r->columns + column;
        for (int64_t term = 0; term < r->terms; term++, left += r->rows, right += r->columns)
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < columns; j++)
                    sums[i][j] += r->columns ? left[i] * right[j] : left[i];
    }
    const int64_t width = r->columns ? r->columns : 1;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double total = 0;
            EACH_LANE total += ((const REAL *)&sums[i][j])[lane];
            totals[r->total + (b * r->rows + row + i) * width + column + j] += total;
        }
}

static void reduce(const V *emitted, int64_t steps, double *totals)
{
    for (size_t n = 0; n < sizeof reductions / sizeof *reductions; n++) {
        const Reduction *const r = reductions + n;
        const int64_t width = r->columns ? r->columns : 1;
        for (int64_t b = 0; b < r->batch; b++)
            for (int64_t row = 0; row < r->rows; row += 4)
                for (int64_t column = 0; column < width; column += 2) {
                    const int64_t rows = r->rows - row, columns = width - column;
                    if (rows >= 4 && columns >= 2)
                        add_block(emitted, steps, r, b, row, column, 4, 2, totals);
                    else if (rows >= 4)
                        add_block(emitted, steps, r, b, row, column, 4, 1, totals);
                    else
                        for (int64_t i = 0; i < rows; i++)
                            if (columns >= 2)
                                add_block(emitted, steps, r, b, row + i, column, 1, 2, totals);
                            else
                                add_block(emitted, steps, r, b, row + i, column, 1, 1, totals);
                }
    }
}

static void run_tile(const Solve *solve, int64_t tile, const Desk *desk, double *totals)
{
    const int64_t first = tile * TILE, stride = solve->particles * WIDTH, together = steps_together();
    const int64_t count = solve->particles - first < TILE ? solve->particles - first : TILE;
    REAL *const slope = (REAL *)(desk->x + WIDTH);
    load(desk->x + WIDTH, solve->slope + first * WIDTH, count);
    for (int i = 0; i < WIDTH; i++)
        for (int64_t lane = count; lane < TILE; lane++)
            slope[i * TILE + lane] = 0;
    for (int64_t last = solve->steps; last > 0; last -= together) {
        const int64_t from = last > together ? last - together : 0;
        draw(solve, desk, first, count, from, last - from);
        for (int64_t k = last - 1; k >= from; k--) {
            if (solve->reports[k] >= 0) {
                const REAL *const more = solve->slopes + solve->reports[k] * stride + first * WIDTH;
                for (int i = 0; i < WIDTH; i++)
                    for (int64_t lane = 0; lane < count; lane++)
                        slope[i * TILE + lane] += more[lane * WIDTH + i];
            }
            load(desk->x, solve->states + k * stride + first * WIDTH, count);
            V *const out = desk->emitted + (k - from) * EMITTED;
            step_at(solve, desk, k, from, out);
            memcpy(slope, out, WIDTH * sizeof(V));
        }
        reduce(desk->emitted, last - from, totals);
    }
    save(desk->x + WIDTH, solve->slope + first * WIDTH, count);
}
#else
static void run_tile(const Solve *solve, int64_t tile, const Desk *desk, double *totals)
{
    (void)totals;
    const int64_t first = tile * TILE, stride = solve->particles * WIDTH, together = steps_together();
    const int64_t count = solve->particles - first < TILE ? solve->particles - first : TILE;
    load(desk->x, solve->states + first * WIDTH, count);
    for (int64_t from = 0; from < solve->steps; from += together) {
        const int64_t steps = solve->steps - from < together ? solve->steps - from : together;
        draw(solve, desk, first, count, from, steps);
        for (int64_t k = from; k < from + steps; k++) {
            step_at(solve, desk, k, from, desk->emitted);
            memcpy(desk->x, desk->emitted, WIDTH * sizeof(V));
            save(desk->x, solve->states + (k + 1) * stride + first * WIDTH, count);
        }
    }
}
#endif

/* A tile's work space, and ``desk`` in it; null if there is no memory. */
static void *furnished(Desk *desk)
{
    const int64_t together = steps_together();
    int64_t vectors = WORKSPACE + 2 * WIDTH + together * EMITTED;
    for (int i = 0; i < NOISES; i++)
        vectors += together * components[i];
    void *memory = 0;
    if (posix_memalign(&memory, 64, (size_t)vectors * sizeof(V)) != 0)
        return 0;
    desk->temporaries = memory;
    desk->x = desk->temporaries + WORKSPACE;
    desk->emitted = desk->x + 2 * WIDTH;
    V *free_from = desk->emitted + together * EMITTED;
    for (int i = 0; i < NOISES; i++) {
        desk->noise[i] = free_from;
        free_from += together * components[i];
    }
    return memory;
}

static void run_slots(void *argument)
{
    Queue *const queue = argument;
    const Solve *const solve = queue->solve;
    const int64_t tiles = (solve->particles + TILE - 1) / TILE;
    Desk desk;
    void *memory = 0;
    for (;;) {
        const int64_t slot = __atomic_fetch_add(&queue->next_slot, 1, __ATOMIC_RELAXED);
        if (slot >= SLOTS)
            break;
        if (!memory && !(memory = furnished(&desk))) {
            __atomic_store_n(&queue->failed, 1, __ATOMIC_RELAXED);
            break;
        }
        for (int64_t tile = slot; tile < tiles; tile += SLOTS)
            run_tile(solve, tile, &desk, solve->totals + slot * TOTALS);
    }
    free(memory);
}

/* 0, or 1 if there was no memory. */
int torchsrk_run(const Solve *solve, int threads, Team team)
{
    Queue queue = {solve, 0, 0};
    share(team, threads, SLOTS, run_slots, &queue);
    return queue.failed;
}
