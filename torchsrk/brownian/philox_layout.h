/* Cells laid out as they were asked for, turned into normals on the way: a part of philox_vector.h. */

#ifndef STORE_ROWS
#define STORE_ROWS NAME(store_rows)
INLINE_HERE void NAME(store_rows)(const U64 *planes, int kind, char *out, int64_t stride)
{
    const char *const from[4] = {(const char *)planes, (const char *)(planes + 1), (const char *)(planes + 2),
                                 (const char *)(planes + 3)};
    store_blocks(from, kind, BYTES / (int)size_of(kind), out, stride);
}
#endif

/* Blocks of a cell, ``stride`` behind one another. Of those that can't be whole a part is copied. */
INLINE_HERE void NAME(store_cell_along)(const U64 *planes, int kind, const Cells *cells, int cell, int64_t stride)
{
    char blocks[BYTES / 4 * BLOCK_BYTES];
    char *const out = cells->out[cell];
    const size_t lanes = cells->lanes[cell], bytes = cells->bytes[cell];
    const int whole = lanes == BYTES / size_of(kind) && bytes == BLOCK_BYTES;
    STORE_ROWS(planes, kind, whole ? out : blocks, whole ? stride : BLOCK_BYTES);
    for (size_t i = 0; !whole && i < lanes; i++)
        copy_few(out + (int64_t)i * stride, blocks + i * BLOCK_BYTES, bytes);
}

/* Planes of a cell, ``stride`` behind one another. */
INLINE_HERE void NAME(store_cell_across)(const U64 *planes, int kind, const Cells *cells, int cell, int64_t stride)
{
    const size_t size = size_of(kind), lanes = cells->lanes[cell], bytes = cells->bytes[cell];
    char *out = cells->out[cell];
    EACH(i, BLOCK_BYTES / (int)size)
    {
        if ((size_t)i * size >= bytes)
            break;
        if (lanes == BYTES / size) {
            STORE(NAME(Anywhere), out + i * stride, planes[i]);
        } else {
            const U64 plane = planes[i];
            copy_few(out + i * stride, (const char *)&plane, lanes * size);
        }
    }
}

INLINE_HERE void NAME(store_cells)(const Batch *batch, const Cells *cells, int kind, int halves, double scale,
                                   int along, int64_t stride)
{
    const int together = UNITS / halves;
    for (int first = 0; first < cells->count; first += together) {
        U64 left[UNITS], right[UNITS];
        NAME(turn)(batch, (size_t)first * BYTES, kind, halves, scale, left, right);
        EACH(i, together)
        {
            const int unit = i * halves, last = unit + halves - 1;
            const U64 planes[4] = {left[unit], right[unit], left[last], right[last]};
            if (first + i == cells->count)
                break;
            if (along)
                NAME(store_cell_along)(planes, kind, cells, first + i, stride);
            else
                NAME(store_cell_across)(planes, kind, cells, first + i, stride);
        }
    }
}

#define STORE_CELLS(along)                                                                                     \
    if (kind == FLOAT64)                                                                                       \
        NAME(store_cells)(batch, cells, FLOAT64, 1, scale, along, stride);                                     \
    else if (kind == WORDS)                                                                                    \
        NAME(store_cells)(batch, cells, WORDS, 2, scale, along, stride);                                       \
    else if (halves == 1)                                                                                      \
        NAME(store_cells)(batch, cells, FLOAT32, 1, scale, along, stride);                                     \
    else                                                                                                       \
        NAME(store_cells)(batch, cells, FLOAT32, 2, scale, along, stride);

TARGET static void NAME(store_along)(const Batch *batch, const Cells *cells, int kind, int halves, double scale,
                                     int64_t stride)
{
    STORE_CELLS(1)
}

TARGET static void NAME(store_across)(const Batch *batch, const Cells *cells, int kind, int halves, double scale,
                                      int64_t stride)
{
    STORE_CELLS(0)
}

#undef STORE_CELLS
#undef STORE_ROWS
