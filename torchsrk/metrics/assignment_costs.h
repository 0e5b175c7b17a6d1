/* Squared distances of one point to all of a cloud less the cloud's potentials; the matrix of pairs is never held. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES 16

/* Points in blocks of LANES, coordinate by coordinate. A block that is not full ends in points at 0, whose potential is
 * -infinity: nothing is ever least there. */
typedef struct {
    int64_t count, dim, blocks;
    double *at;
} Cloud;

/* A row of costs, and the least of each block. */
typedef struct {
    double *costs, *least, *point;
    double *values; /* of the columns that were chosen */
    int32_t *columns;
} Scan;

INLINE int64_t blocks_of(int64_t count) { return (count + LANES - 1) / LANES; }

INLINE double *coordinate(const Cloud *cloud, int64_t i, int64_t k)
{
    return cloud->at + (i / LANES * cloud->dim + k) * LANES + i % LANES;
}

INLINE void read_point(const Cloud *cloud, int64_t i, double *point)
{
    for (int64_t k = 0; k < cloud->dim; k++)
        point[k] = *coordinate(cloud, i, k);
}

INLINE double squared_distance(const Cloud *a, int64_t i, const Cloud *b, int64_t j)
{
    double sum = 0.0;
    for (int64_t k = 0; k < a->dim; k++) {
        const double apart = *coordinate(a, i, k) - *coordinate(b, j, k);
        sum += apart * apart;
    }
    return sum;
}

typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t Mask __attribute__((vector_size(32)));
#define FOURS (LANES / 4)

INLINE void keep_lesser(Four *a, const Four *b)
{
    const Mask lesser = *b < *a;
    *a = (Four)(((Mask)*b & lesser) | ((Mask)*a & ~lesser));
}

INLINE double scan_blocks(const Cloud *to, int64_t dim, const double *potentials, Scan *scan)
{
    const double *point = scan->point;
    const Four *at = (const Four *)to->at, *less = (const Four *)potentials;
    Four *out = (Four *)scan->costs;
    double all = INFINITY;
    for (int64_t block = 0; block < to->blocks; block++, at += dim * FOURS, less += FOURS, out += FOURS) {
        Four sums[FOURS] = {{0.0}};
        for (int64_t k = 0; k < dim; k++) {
            const Four here = {point[k], point[k], point[k], point[k]};
#pragma GCC unroll 4
            for (int q = 0; q < FOURS; q++) {
                const Four apart = here - at[k * FOURS + q];
                sums[q] += apart * apart;
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < FOURS; q++)
            out[q] = sums[q] -= less[q];
        keep_lesser(&sums[0], &sums[1]);
        keep_lesser(&sums[2], &sums[3]);
        keep_lesser(&sums[0], &sums[2]);
        const double first = sums[0][0] < sums[0][1] ? sums[0][0] : sums[0][1];
        const double second = sums[0][2] < sums[0][3] ? sums[0][2] : sums[0][3];
        scan->least[block] = first < second ? first : second;
        all = scan->least[block] < all ? scan->least[block] : all;
    }
    return all;
}

INLINE double scan_any(const Cloud *to, const double *potentials, Scan *scan)
{
    switch (to->dim) { /* loops of known length stay in registers */
    case 2:
        return scan_blocks(to, 2, potentials, scan);
    case 3:
        return scan_blocks(to, 3, potentials, scan);
    default:
        return scan_blocks(to, to->dim, potentials, scan);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double scan_by_avx2(const Cloud *to, const double *potentials, Scan *scan)
{
    return scan_any(to, potentials, scan);
}
#endif

/* |point - to_j|^2 - potentials[j] for all j, and the least of them. */
static double scan_from(const Cloud *from, int64_t i, const Cloud *to, const double *potentials, Scan *scan)
{
    read_point(from, i, scan->point);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return scan_by_avx2(to, potentials, scan);
#endif
    return scan_any(to, potentials, scan);
}

/* Moves the least so many of the values to the front, with their columns (Hoare's selection). */
static void bring_least_forward(double *values, int32_t *columns, int64_t count, int64_t most)
{
    int64_t from = 0, end = count;
    while (end - from > 1) {
        const double pivot = values[from + (end - from) / 2];
        int64_t low = from, high = end - 1;
        while (low <= high) {
            while (values[low] < pivot)
                low++;
            while (values[high] > pivot)
                high--;
            if (low > high)
                break;
            const double value = values[low];
            const int32_t column = columns[low];
            values[low] = values[high];
            columns[low++] = columns[high];
            values[high] = value;
            columns[high--] = column;
        }
        if (most <= high)
            end = high + 1;
        else if (most >= low)
            from = low;
        else
            return;
    }
}

/* Up to so many columns of least value among those of at most limit, into values and columns; gives how many. */
static int64_t choose_least(const Cloud *to, Scan *scan, int64_t most, double limit)
{
    if (to->blocks > most) { /* so many blocks have one of at most this value */
        memcpy(scan->values, scan->least, (size_t)to->blocks * sizeof *scan->values);
        bring_least_forward(scan->values, scan->columns, to->blocks, most);
        double bound = scan->values[0];
        for (int64_t k = 1; k < most; k++)
            bound = fmax(bound, scan->values[k]);
        limit = fmin(limit, bound);
    }
    int64_t found = 0;
    for (int64_t block = 0; block < to->blocks; block++) {
        if (!(scan->least[block] <= limit))
            continue;
        for (int64_t j = block * LANES; j < (block + 1) * LANES && j < to->count; j++)
            if (scan->costs[j] <= limit) {
                scan->values[found] = scan->costs[j];
                scan->columns[found++] = (int32_t)j;
            }
    }
    if (found <= most)
        return found;
    bring_least_forward(scan->values, scan->columns, found, most);
    return most;
}
