/* Work that several threads do at once, each by the floating-point rules of the caller: what they give is the same bits
 * as one thread's.
 *
 * They are those of torch's own team where it has one of OpenMP: these are there, often still awake from torch's last
 * operation, on a processor that another thread would have to share with them. Else they are started for the call. */
#include <fenv.h>

#define MOST_STARTED 64

/* GOMP_parallel: a team of so many threads does the work, the caller among them. */
typedef void (*Team)(void (*work)(void *), void *given, unsigned threads, unsigned flags);

typedef struct {
    void (*work)(void *);
    void *given;
    fenv_t rules;
} Shared;

static void take_part(void *argument)
{
    const Shared *const shared = argument;
    fenv_t own;
    fegetenv(&own);
    fesetenv(&shared->rules);
    shared->work(shared->given);
    fesetenv(&own);
}

static void *started(void *shared)
{
    take_part(shared);
    return 0;
}

/* Have so many threads call ``work(given)``, or fewer where they can't be had: whoever comes takes of its pieces what is
 * left to do. */
static void share(Team team, int threads, int64_t pieces, void (*work)(void *), void *given)
{
    if (threads < 2) {
        work(given);
        return;
    }
    Shared shared = {.work = work, .given = given};
    fegetenv(&shared.rules);
    if (team) {
        team(take_part, &shared, (unsigned)threads, 0);
        return;
    }
    pthread_t handles[MOST_STARTED];
    int count = 0;
    while (count < threads - 1 && count < pieces - 1 && count < MOST_STARTED && pthread_create(&handles[count], 0, started, &shared) == 0)
        count++;
    work(given);
    while (count > 0)
        pthread_join(handles[--count], 0);
}
