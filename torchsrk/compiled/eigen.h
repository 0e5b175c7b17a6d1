/* Eigenvalues and eigenvectors of symmetric matrices, one in each lane, by Jacobi's rotations: a rotation of two axes
 * makes their entry off the diagonal 0, and sweeps over all pairs of axes take the rest with it. Lanes that need no
 * rotation are turned by none, which changes no bit of theirs: so nothing here depends on a lane's neighbours. */

#define EIGEN_SWEEPS 40 /* six to ten do; no matrix may run for ever */

INLINE int some_lane(M condition)
{
#ifdef ONE_BY_ONE
    return condition != 0;
#else
    int found = 0;
    EACH_LANE found |= condition[lane] != 0;
    return found;
#endif
}

/* The pair (x, y) turned. */
INLINE void rotate(V *x, V *y, V c, V s)
{
    const V turned = c * *x - s * *y;
    *y = s * *x + c * *y;
    *x = turned;
}

/* Of the n×n matrix a, whose upper triangle is read and lost: the eigenvalues, the least first, and in the rows of
 * ``vectors`` the eigenvectors. All are NaN for a matrix that is not finite. */
__attribute__((unused, noinline)) static void eigen(int n, V *restrict a, V *restrict values, V *restrict vectors)
{
    const REAL epsilon = REAL_BYTES == 4 ? (REAL)0x1p-23 : (REAL)0x1p-52;
    V largest = splat(0);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            vectors[i * n + j] = splat(i == j);
            if (i <= j)
                largest = v_maximum(v_fabs(a[i * n + j]), largest);
        }
    const M is_finite = largest < (REAL)INFINITY;
    const V unit = v_select(is_finite & (largest > 0), largest, splat(1));
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            a[i * n + j] /= unit; /* so that no square overflows */
    /* What is left of a row is then within half a rounding of the largest entry. */
    const REAL negligible = epsilon / (REAL)(2 * (n > 0 ? n : 1));
    int rotates = n > 1;
    for (int sweep = 0; rotates && sweep < EIGEN_SWEEPS; sweep++) {
        rotates = 0;
        for (int p = 0; p < n - 1; p++)
            for (int q = p + 1; q < n; q++) {
                const V off = a[p * n + q];
                const M is_large = is_finite & (v_fabs(off) > negligible);
                if (!some_lane(is_large))
                    continue;
                rotates = 1;
                /* The smaller angle of the two: t is its tangent. */
                const V ratio = (a[q * n + q] - a[p * n + p]) / (2 * v_select(is_large, off, splat(1)));
                const V slope = 1 / (v_fabs(ratio) + v_sqrt(ratio * ratio + 1));
                const V t = v_select(is_large, v_select(ratio < 0, -slope, slope), splat(0));
                const V c = 1 / v_sqrt(t * t + 1), s = t * c;
                a[p * n + p] -= t * off;
                a[q * n + q] += t * off;
                a[p * n + q] = v_select(is_large, splat(0), off);
                for (int r = 0; r < p; r++)
                    rotate(a + r * n + p, a + r * n + q, c, s);
                for (int r = p + 1; r < q; r++)
                    rotate(a + p * n + r, a + r * n + q, c, s);
                for (int r = q + 1; r < n; r++)
                    rotate(a + p * n + r, a + q * n + r, c, s);
                for (int r = 0; r < n; r++)
                    rotate(vectors + p * n + r, vectors + q * n + r, c, s);
            }
    }
    for (int i = 0; i < n; i++)
        values[i] = v_select(is_finite, a[i * n + i] * unit, splat((REAL)NAN));
    for (int i = 0; i < n; i++) /* the least of the rest comes to place i */
        for (int j = i + 1; j < n; j++) {
            const M is_less = values[j] < values[i];
            if (!some_lane(is_less))
                continue;
            const V value = values[i];
            values[i] = v_select(is_less, values[j], value);
            values[j] = v_select(is_less, value, values[j]);
            for (int r = 0; r < n; r++) {
                const V x = vectors[i * n + r], y = vectors[j * n + r];
                vectors[i * n + r] = v_select(is_less, y, x);
                vectors[j * n + r] = v_select(is_less, x, y);
            }
        }
    for (int i = 0; i < n * n; i++)
        vectors[i] = v_select(is_finite, vectors[i], splat((REAL)NAN));
}
