/* An assignment over some of the pairs, by shortest augmenting paths.
 *
 * Potentials u of rows and v of columns keep cost - u - v >= 0 on all arcs, and = 0 on those of the assignment.
 */
#define FREE (-1)

typedef struct {
    double cost;
    int32_t column;
} Arc;

/* beyond: cost - v is at least this at the columns that have no arc. It stays so, as v only falls. */
typedef struct {
    Arc *arcs;
    int32_t count, room;
    double beyond;
} Row;

typedef struct {
    double distance;
    int32_t column;
} Waiting;

typedef struct {
    int64_t count;
    Row *rows;
    double *u, *v;
    int32_t *column_of, *row_of;
    /* A search's own. */
    double *distance;
    int32_t *before, *touched, *settled, *free_rows;
    int64_t touched_count, settled_count, free_count;
    Waiting *heap;
    int64_t heap_count, heap_room;
} Problem;

/* An array of so many entries, each of a size and with these bytes. */
static void *array_of(int64_t count, size_t size, int byte)
{
    void *made = malloc((size_t)count * size);
    return made ? memset(made, byte, (size_t)count * size) : NULL;
}

static double *numbers(int64_t count, double value)
{
    double *made = malloc((size_t)count * sizeof *made);
    for (int64_t i = 0; made && i < count; i++)
        made[i] = value;
    return made;
}

static void drop_problem(Problem *problem)
{
    for (int64_t i = 0; problem->rows && i < problem->count; i++)
        free(problem->rows[i].arcs);
    void *owned[] = {problem->rows,     problem->u,      problem->v,       problem->column_of,
                     problem->row_of,   problem->before, problem->touched, problem->distance,
                     problem->settled,  problem->heap,   problem->free_rows};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
        free(owned[k]);
}

/* Nobody assigned and no arcs; potentials of -infinity, with some room to spare. 0 without memory. */
static int make_problem(Problem *problem, int64_t count, int64_t room)
{
    const size_t index = sizeof(int32_t);
    *problem = (Problem){.count = count, .heap_room = 1024};
    problem->rows = array_of(count, sizeof *problem->rows, 0);
    problem->u = numbers(room, -INFINITY);
    problem->v = numbers(room, -INFINITY);
    problem->distance = numbers(count, INFINITY);
    problem->column_of = array_of(count, index, 0xff); /* FREE */
    problem->row_of = array_of(count, index, 0xff);
    problem->before = array_of(count, index, 0);
    problem->touched = array_of(count, index, 0);
    problem->settled = array_of(count, index, 0);
    problem->free_rows = array_of(count, index, 0);
    problem->heap = array_of(problem->heap_room, sizeof *problem->heap, 0);
    const int potentials = problem->rows && problem->u && problem->v && problem->distance;
    const int indices = problem->column_of && problem->row_of && problem->before && problem->touched;
    return potentials && indices && problem->settled && problem->free_rows && problem->heap;
}

static int add_arc(Row *row, int32_t column, double cost)
{
    if (row->count == row->room) {
        const int32_t room = row->room ? row->room + row->room / 2 + 4 : 8;
        Arc *arcs = realloc(row->arcs, (size_t)room * sizeof *arcs);
        if (!arcs)
            return 0;
        row->arcs = arcs;
        row->room = room;
    }
    row->arcs[row->count++] = (Arc){cost, column};
    return 1;
}

static int push(Problem *problem, double distance, int32_t column)
{
    if (problem->heap_count == problem->heap_room) {
        const int64_t room = 2 * problem->heap_room;
        Waiting *heap = realloc(problem->heap, (size_t)room * sizeof *heap);
        if (!heap)
            return 0;
        problem->heap = heap;
        problem->heap_room = room;
    }
    Waiting *heap = problem->heap;
    int64_t at = problem->heap_count++;
    while (at > 0 && heap[(at - 1) / 4].distance > distance) {
        heap[at] = heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    heap[at] = (Waiting){distance, column};
    return 1;
}

static Waiting pop(Problem *problem)
{
    Waiting *heap = problem->heap;
    const Waiting first = heap[0], last = heap[--problem->heap_count];
    const int64_t count = problem->heap_count;
    int64_t at = 0;
    for (;;) {
        const int64_t child = 4 * at + 1, end = child + 4 < count ? child + 4 : count;
        int64_t least = child;
        if (child >= count)
            break;
        for (int64_t other = child + 1; other < end; other++)
            least = heap[other].distance < heap[least].distance ? other : least;
        if (heap[least].distance >= last.distance)
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    return first;
}

static void release(Problem *problem, int32_t row)
{
    if (problem->column_of[row] != FREE) {
        problem->row_of[problem->column_of[row]] = FREE;
        problem->column_of[row] = FREE;
    }
    problem->free_rows[problem->free_count++] = row;
}

static void forget_search(Problem *problem)
{
    for (int64_t k = 0; k < problem->touched_count; k++)
        problem->distance[problem->touched[k]] = INFINITY;
    problem->touched_count = problem->settled_count = problem->heap_count = 0;
}

/* Dijkstra's search from a free row to the nearest free column, which lets the row in: 0 without memory, or where no
 * free column can be reached. */
static int augment(Problem *problem, int32_t start)
{
    double *restrict distance = problem->distance, nearest = INFINITY, walked = 0.0;
    const double *restrict v = problem->v;
    int32_t end = FREE, row = start;
    double least = INFINITY;
    for (int32_t k = 0; k < problem->rows[start].count; k++) {
        const Arc arc = problem->rows[start].arcs[k];
        least = fmin(least, arc.cost - v[arc.column]);
    }
    problem->u[start] = least;
    for (;;) {
        const Row *own = &problem->rows[row];
        const double offset = walked - problem->u[row];
        for (int32_t k = 0; k < own->count; k++) {
            const int32_t column = own->arcs[k].column;
            double reached = offset + own->arcs[k].cost - v[column];
            if (reached >= distance[column] || reached >= nearest)
                continue;
            reached = reached < walked ? walked : reached; /* rounding */
            if (reached >= distance[column])
                continue;
            if (distance[column] == INFINITY)
                problem->touched[problem->touched_count++] = column;
            distance[column] = reached;
            problem->before[column] = row;
            if (problem->row_of[column] == FREE) {
                nearest = reached;
                end = column;
            } else if (!push(problem, reached, column))
                return 0;
        }
        Waiting next = {INFINITY, FREE};
        while (problem->heap_count) {
            next = pop(problem);
            if (next.distance == distance[next.column])
                break;
            next = (Waiting){INFINITY, FREE};
        }
        if (next.column == FREE || next.distance >= nearest)
            break;
        problem->settled[problem->settled_count++] = next.column;
        walked = next.distance;
        row = problem->row_of[next.column];
    }
    if (end == FREE)
        return 0;
    problem->u[start] += nearest;
    for (int64_t k = 0; k < problem->settled_count; k++) {
        const int32_t column = problem->settled[k];
        const double moved = nearest - distance[column];
        problem->v[column] -= moved;
        problem->u[problem->row_of[column]] += moved;
    }
    for (int32_t column = end; column != FREE;) {
        row = problem->before[column];
        const int32_t next = problem->column_of[row];
        problem->row_of[column] = row;
        problem->column_of[row] = column;
        column = row == start ? FREE : next;
    }
    forget_search(problem);
    return 1;
}

/* Rows bid for columns up to the second best, and who is outbid bids again (Jonker and Volgenant's row reduction). */
static void bid(Problem *problem, int64_t most)
{
    int64_t waiting = problem->free_count, kept = 0;
    while (waiting > 0) {
        const int32_t row = problem->free_rows[--waiting];
        if (most-- <= 0) {
            problem->settled[kept++] = row;
            continue;
        }
        const Row *own = &problem->rows[row];
        double best = INFINITY, second = INFINITY;
        int32_t column = FREE, other = FREE;
        for (int32_t k = 0; k < own->count; k++) {
            const double value = own->arcs[k].cost - problem->v[own->arcs[k].column];
            if (value < best) {
                second = best;
                other = column;
                best = value;
                column = own->arcs[k].column;
            } else if (value < second) {
                second = value;
                other = own->arcs[k].column;
            }
        }
        if (other == FREE || !(second > best)) {
            if (column != FREE && problem->row_of[column] != FREE && other != FREE)
                column = other;
            if (column == FREE || problem->row_of[column] != FREE) {
                problem->settled[kept++] = row;
                continue;
            }
            second = best;
        }
        const int32_t outbid = problem->row_of[column];
        problem->v[column] -= second - best;
        problem->u[row] = second;
        problem->row_of[column] = row;
        problem->column_of[row] = column;
        if (outbid != FREE) {
            problem->column_of[outbid] = FREE;
            problem->free_rows[waiting++] = outbid;
        }
    }
    memcpy(problem->free_rows, problem->settled, (size_t)kept * sizeof *problem->settled);
    problem->free_count = kept;
}
