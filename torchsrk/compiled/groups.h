/* A tile's particles: up to GROUPS vectors of them, each with a state, noise and storage of its own. A step runs group
 * by group, but for products (see products.h), which take them on together. The includer defines GROUPS and NOISES. */

typedef struct {
    const V *x, *noise[NOISES];
    V *work, *out;
} Group;

#define EACH_GROUP for (int g = 0; g < (GROUPS == 1 ? 1 : groups); g++)
/* What C calls the parts of a group. */
#define INPUT(name, part) const V *restrict const name = group[g].part; (void)name;
#define STORAGE V *restrict const work = group[g].work, *restrict const out = group[g].out; (void)work, (void)out;
/* What a step is given, or a section of it: the time, numbers, and tensors of numbers and of places. */
#define ARGUMENTS                                                                                              \
    const Group *group, const int groups, const V t, const REAL *restrict c, const REAL *const *restrict p,    \
        const int64_t *const *restrict q
#define GIVEN group, groups, t, c, p, q
#define UNUSED (void)groups, (void)t, (void)c, (void)p, (void)q;
#define SECTION(name) __attribute__((noinline, noclone)) static void name(ARGUMENTS)
