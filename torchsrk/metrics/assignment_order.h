/* Points in an order in which neighbours are near: aligned runs of them are boxes of a k-d tree. */

static double width_along(const double *values, const int32_t *order, int64_t from, int64_t end)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = from; i < end; i++) {
        low = fmin(low, values[order[i]]);
        high = fmax(high, values[order[i]]);
    }
    return high - low;
}

/* Partitions order[from:end] so that what is before the middle is not above what comes after (Hoare's selection). */
static void split(const double *values, int32_t *order, int64_t from, int64_t end, int64_t middle)
{
    while (end - from > 1) {
        const double pivot = values[order[from + (end - from) / 2]];
        int64_t low = from, high = end - 1;
        while (low <= high) {
            while (values[order[low]] < pivot)
                low++;
            while (values[order[high]] > pivot)
                high--;
            if (low > high)
                break;
            const int32_t kept = order[low];
            order[low++] = order[high];
            order[high--] = kept;
        }
        if (middle <= high)
            end = high + 1;
        else if (middle >= low)
            from = low;
        else
            return;
    }
}

/* values is (dim, count). Cuts fall on multiples of a unit, a power of 2, as long as there are that many points. */
static void sort_nearby(const double *values, int64_t count, int64_t dim, int32_t *order, int64_t from, int64_t end,
                        int64_t unit)
{
    const int64_t own = end - from;
    if (own < 2)
        return;
    while (unit > 1 && unit >= own)
        unit /= 2;
    const int64_t cut = from + (own / 2 + unit - 1) / unit * unit;
    int64_t along = 0;
    double widest = -1.0;
    for (int64_t k = 0; k < dim; k++) {
        const double width = width_along(values + k * count, order, from, end);
        if (width > widest) {
            widest = width;
            along = k;
        }
    }
    split(values + along * count, order, from, end, cut);
    sort_nearby(values, count, dim, order, from, cut, unit);
    sort_nearby(values, count, dim, order, cut, end, unit);
}
