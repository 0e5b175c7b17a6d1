/* Points assigned to points so that the sum of squared distances is least, exactly, and without the matrix of pairs.
 *
 * Successive shortest paths (Jonker and Volgenant, 1987) over the few pairs that can matter: for every point those of
 * least cost in the potentials of a coarser problem, whose points are the means of groups of neighbours. All other
 * pairs are then priced; a point that has a better offer among them is let go and assigned again, until none has one.
 * Potentials prove it: the assignment's cost less the dual's, over all pairs, is what the caller gets to see.
 */
#include "assignment_costs.h"
#include "assignment_order.h"
#include "assignment_search.h"

#define GROUP 4         /* points that the coarser problem takes for one */
#define SMALL 64        /* points that need no coarser problem */
#define ROW_ARCS 16     /* of least cost, for a row */
#define COLUMN_ARCS 4   /* the same for a column: some are nobody's first choices */
#define PRICED_ARCS 6   /* better offers that a row takes up in the first round; then twice as many, and so on */
#define BIDS 8          /* a row, on average */
#define COARSE_ROUNDS 1 /* of pricing: a guess is wanted there */
#define ROUNDS 100      /* more than were ever needed */
#define ROUNDING (16 * DBL_EPSILON)

static int add_chosen(Row *row, const Scan *scan, int64_t found, const double *v)
{
    for (int64_t k = 0; k < found; k++)
        if (!add_arc(row, scan->columns[k], scan->values[k] + v[scan->columns[k]]))
            return 0;
    return 1;
}

static int has_arc(const Row *row, int32_t column)
{
    for (int32_t k = 0; k < row->count; k++)
        if (row->arcs[k].column == column)
            return 1;
    return 0;
}

/* Arcs from potentials u of the rows, which is a guess; partners give every row an arc to a column of its own, so that
 * there is an assignment. Potentials then are feasible for all pairs. */
static int choose_arcs(Problem *problem, const Cloud *x, const Cloud *y, const int32_t *partners, Scan *scan)
{
    Row *rows = problem->rows;
    for (int64_t j = 0; j < y->count; j++) {
        problem->v[j] = scan_from(y, j, x, problem->u, scan);
        const int64_t found = choose_least(x, scan, COLUMN_ARCS, INFINITY);
        for (int64_t k = 0; k < found; k++)
            if (!add_arc(&rows[scan->columns[k]], (int32_t)j, scan->values[k] + problem->u[scan->columns[k]]))
                return 0;
    }
    for (int64_t i = 0; i < x->count; i++) {
        problem->u[i] = scan_from(x, i, y, problem->v, scan);
        const int64_t found = choose_least(y, scan, ROW_ARCS, INFINITY);
        rows[i].beyond = problem->u[i];
        for (int64_t k = 0; k < found; k++) {
            const int32_t column = scan->columns[k];
            rows[i].beyond = fmax(rows[i].beyond, scan->values[k]);
            if (!has_arc(&rows[i], column) && !add_arc(&rows[i], column, scan->values[k] + problem->v[column]))
                return 0;
        }
        if (!has_arc(&rows[i], partners[i]) && !add_arc(&rows[i], partners[i], squared_distance(x, i, y, partners[i])))
            return 0;
        problem->free_rows[problem->free_count++] = (int32_t)i;
    }
    return 1;
}

static int augment_all(Problem *problem)
{
    while (problem->free_count)
        if (!augment(problem, problem->free_rows[--problem->free_count]))
            return 0;
    return 1;
}

/* The least cost at columns without an arc, of a row that was just scanned. */
static double least_elsewhere(const Row *row, const Cloud *y, Scan *scan)
{
    for (int32_t k = 0; k < row->count; k++)
        scan->costs[row->arcs[k].column] = INFINITY;
    for (int32_t k = 0; k < row->count; k++) {
        const int64_t block = row->arcs[k].column / LANES;
        const double *costs = scan->costs + block * LANES;
        scan->least[block] = INFINITY;
        for (int lane = 0; lane < LANES; lane++)
            scan->least[block] = costs[lane] < scan->least[block] ? costs[lane] : scan->least[block];
    }
    double least = INFINITY;
    for (int64_t block = 0; block < y->blocks; block++)
        least = scan->least[block] < least ? scan->least[block] : least;
    return least;
}

/* Up to how much a cost of the scan may be below u by rounding alone. */
static double rounding_at(double u, const double *v, int32_t own, const Scan *scan, int64_t found)
{
    double size = fabs(u) + fabs(v[own]);
    for (int64_t k = 0; k < found; k++)
        size = fmax(size, fabs(v[scan->columns[k]]));
    return ROUNDING * size;
}

/* Rows that a pair without an arc would suit better, by more than rounding, get arcs for so many and are let go.
 * Rows that can't have such a pair are looked at only where all are asked for, and then the assignment's cost less the
 * dual's is what this gives; -1 without memory. */
static double price(Problem *problem, const Cloud *x, const Cloud *y, int all, int64_t most, Scan *scan)
{
    double gap = 0.0;
    for (int64_t i = 0; i < x->count; i++) {
        Row *row = &problem->rows[i];
        const int32_t own = problem->column_of[i];
        const double u = problem->u[i] = squared_distance(x, i, y, own) - problem->v[own];
        if (!all && u <= row->beyond)
            continue;
        const double least = scan_from(x, i, y, problem->v, scan);
        gap += fmax(0.0, u - least);
        if (least < u) {
            const int64_t found = choose_least(y, scan, most, u);
            if (least < u - rounding_at(u, problem->v, own, scan, found)) {
                if (!add_chosen(row, scan, found, problem->v))
                    return -1.0;
                release(problem, (int32_t)i);
            }
        }
        row->beyond = least_elsewhere(row, y, scan);
    }
    return gap;
}

/* An optimal assignment from a guess of u; with few rounds a nearly optimal one. 0 if there is none to show. */
static int solve_level(Problem *problem, const Cloud *x, const Cloud *y, const int32_t *partners, int64_t rounds,
                       Scan *scan, double *gap)
{
    if (!choose_arcs(problem, x, y, partners, scan))
        return 0;
    bid(problem, BIDS * x->count);
    int all = 0;
    int64_t most = PRICED_ARCS;
    for (int64_t round = 0; round < rounds; round++) {
        if (!augment_all(problem))
            return 0;
        *gap = price(problem, x, y, all, most, scan);
        if (*gap < 0.0)
            return 0;
        most = 2 * most < y->count ? 2 * most : y->count;
        if (problem->free_count)
            all = 0;
        else if (all || rounds == COARSE_ROUNDS)
            return 1;
        else
            all = 1;
    }
    *gap = INFINITY; /* of what follows nothing is known */
    return augment_all(problem);
}

/* The means of groups of neighbours. */
static int make_coarser(const Cloud *cloud, Cloud *coarse)
{
    const int64_t groups = (cloud->count + GROUP - 1) / GROUP;
    *coarse = (Cloud){groups, cloud->dim, blocks_of(groups), NULL};
    coarse->at = numbers(coarse->blocks * LANES * cloud->dim, 0.0);
    for (int64_t group = 0; coarse->at && group < groups; group++) {
        const int64_t from = group * GROUP, end = from + GROUP < cloud->count ? from + GROUP : cloud->count;
        for (int64_t k = 0; k < cloud->dim; k++) {
            double sum = 0.0;
            for (int64_t i = from; i < end; i++)
                sum += *coordinate(cloud, i, k);
            *coordinate(coarse, group, k) = sum / (double)(end - from);
        }
    }
    return coarse->at != NULL;
}

static int solve(Problem *problem, const Cloud *x, const Cloud *y, int64_t rounds, Scan *scan, double *gap);

/* u from a coarser problem, and as partners the columns of the group that a row's own was assigned to. */
static int guess(Problem *problem, const Cloud *x, const Cloud *y, int32_t *partners, Scan *scan)
{
    double gap;
    int whole = 0;
    Problem coarse = {0};
    Cloud coarse_x = {0}, coarse_y = {0};
    if (make_coarser(x, &coarse_x) && make_coarser(y, &coarse_y) &&
        solve(&coarse, &coarse_x, &coarse_y, COARSE_ROUNDS, scan, &gap)) {
        for (int64_t i = 0; i < x->count; i++)
            problem->u[i] = scan_from(x, i, &coarse_y, coarse.v, scan);
        int64_t next = 0;
        for (int64_t group = 0; group < coarse.count; group++)
            for (int64_t k = 0; k < GROUP && coarse.column_of[group] * GROUP + k < y->count; k++)
                partners[next++] = (int32_t)(coarse.column_of[group] * GROUP + k);
        whole = 1;
    }
    drop_problem(&coarse);
    free(coarse_x.at);
    free(coarse_y.at);
    return whole;
}

/* Makes the problem, which is the caller's to drop. */
static int solve(Problem *problem, const Cloud *x, const Cloud *y, int64_t rounds, Scan *scan, double *gap)
{
    int32_t *partners = array_of(x->count, sizeof *partners, 0);
    int whole = make_problem(problem, x->count, x->blocks * LANES) && partners;
    for (int64_t i = 0; whole && i < x->count; i++) {
        partners[i] = (int32_t)i;
        problem->u[i] = problem->v[i] = 0.0;
    }
    if (whole && x->count > SMALL)
        whole = guess(problem, x, y, partners, scan);
    whole = whole && solve_level(problem, x, y, partners, rounds, scan, gap);
    free(partners);
    return whole;
}

/* A cloud of points (count, dim) in an order in which neighbours are near. */
static int make_cloud(Cloud *cloud, int32_t *order, const double *points, int64_t count, int64_t dim)
{
    *cloud = (Cloud){count, dim, blocks_of(count), NULL};
    cloud->at = numbers(cloud->blocks * LANES * dim, 0.0);
    double *values = numbers(count * dim, 0.0);
    const int whole = cloud->at && values;
    if (whole) {
        int64_t unit = 1;
        while (count / unit > SMALL)
            unit *= GROUP;
        for (int64_t i = 0; i < count; i++) {
            order[i] = (int32_t)i;
            for (int64_t k = 0; k < dim; k++)
                values[k * count + i] = points[i * dim + k];
        }
        sort_nearby(values, count, dim, order, 0, count, unit);
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < dim; k++)
                *coordinate(cloud, i, k) = points[order[i] * dim + k];
    }
    free(values);
    return whole;
}

/* x and y are (count, dim). Gives in to[i] the point of y for point i of x, and in gap by how much the sum of squared
 * distances may at most be above the least one, rounding apart; 0 if there was not the memory. */
int torchsrk_assign(int64_t count, int64_t dim, const double *x, const double *y, int64_t *to, double *gap)
{
    Cloud clouds[2] = {{0}, {0}};
    Problem problem = {0};
    const int64_t room = blocks_of(count) * LANES;
    int32_t *orders[2] = {array_of(count, sizeof **orders, 0), array_of(count, sizeof **orders, 0)};
    Scan scan = {numbers(room, 0.0), numbers(room, 0.0), numbers(dim, 0.0), numbers(room, 0.0),
                 array_of(room, sizeof *scan.columns, 0)};
    const int whole = orders[0] && orders[1] && scan.costs && scan.least && scan.point && scan.values && scan.columns &&
                      make_cloud(&clouds[0], orders[0], x, count, dim) &&
                      make_cloud(&clouds[1], orders[1], y, count, dim) &&
                      solve(&problem, &clouds[0], &clouds[1], ROUNDS, &scan, gap);
    for (int64_t i = 0; whole && i < count; i++)
        to[orders[0][i]] = orders[1][problem.column_of[i]];
    drop_problem(&problem);
    void *owned[] = {clouds[0].at, clouds[1].at, orders[0],   orders[1],   scan.costs,
                     scan.least,   scan.point,   scan.values, scan.columns};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
        free(owned[k]);
    return whole;
}
