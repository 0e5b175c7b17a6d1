/* Factors LU of small square matrices with their rows exchanged, one matrix in each lane, and what is solved by them.
 * ``rows`` says which row of the matrix a row of the factors was. */

/* In place. Gives the sign of the exchange. A column of zeros has the factor 0, and a determinant of 0. */
__attribute__((unused, noinline)) static V lu_factor(int n, V *restrict a, V *restrict rows)
{
    V sign = splat(1);
    for (int i = 0; i < n; i++)
        rows[i] = splat((REAL)i);
    for (int j = 0; j < n; j++) {
        for (int i = j + 1; i < n; i++) { /* the largest comes out on top */
            const M larger = v_fabs(a[i * n + j]) > v_fabs(a[j * n + j]);
            for (int k = 0; k < n; k++)
                exchange(larger, &a[i * n + k], &a[j * n + k]);
            exchange(larger, &rows[i], &rows[j]);
            sign = v_select(larger, -sign, sign);
        }
        const V pivot = a[j * n + j];
        for (int i = j + 1; i < n; i++) {
            const V factor = v_select(pivot == 0, splat(0), a[i * n + j] / pivot);
            a[i * n + j] = factor;
            for (int k = j + 1; k < n; k++)
                a[i * n + k] -= factor * a[j * n + k];
        }
    }
    return sign;
}

/* The column b, with entries ``stride`` apart, of A X = B or, transposed, of AᵀX = B; work holds n vectors. */
__attribute__((unused, noinline)) static void lu_solve(int n, const V *restrict lu, const V *restrict rows,
                                                       int transposed, V *restrict b, int stride, V *restrict work)
{
    if (!transposed) {
        for (int i = 0; i < n; i++) {
            work[i] = splat((REAL)NAN);
            for (int k = 0; k < n; k++)
                work[i] = v_select(rows[i] == (REAL)k, b[k * stride], work[i]);
        }
        for (int i = 0; i < n; i++)
            for (int k = 0; k < i; k++)
                work[i] -= lu[i * n + k] * work[k];
        for (int i = n - 1; i >= 0; i--) {
            for (int k = i + 1; k < n; k++)
                work[i] -= lu[i * n + k] * work[k];
            work[i] /= lu[i * n + i];
        }
        for (int i = 0; i < n; i++)
            b[i * stride] = work[i];
        return;
    }
    for (int i = 0; i < n; i++) {
        work[i] = b[i * stride];
        for (int k = 0; k < i; k++)
            work[i] -= lu[k * n + i] * work[k];
        work[i] /= lu[i * n + i];
    }
    for (int i = n - 1; i >= 0; i--)
        for (int k = i + 1; k < n; k++)
            work[i] -= lu[k * n + i] * work[k];
    for (int k = 0; k < n; k++) {
        b[k * stride] = splat((REAL)NAN);
        for (int i = 0; i < n; i++)
            b[k * stride] = v_select(rows[i] == (REAL)k, work[i], b[k * stride]);
    }
}
