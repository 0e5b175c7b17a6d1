// A library in this process asks the processor what it has, and is told of no AVX-512.
//
// Its cpuid instructions become ud2, as long and unknown to every processor; what the kernel sends for those is answered
// here as cpuid would have been, less a few bits.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { LENGTH = 2 };
static const uint8_t CPUID[LENGTH] = {0x0f, 0xa2}, UD2[LENGTH] = {0x0f, 0x0b};

// Leaf 7 of cpuid. F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT,
// FP16; and in its part 1 BF16.
static const unsigned EBX = 0xdc230000, ECX = 0x00005842, EDX = 0x0080010c, EAX_OF_1 = 0x00000020;

static struct sigaction before;

static void answer(int number, siginfo_t *information, void *context)
{
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (memcmp((const void *)at[REG_RIP], UD2, LENGTH)) {
        sigaction(number, &before, NULL);  // not ours: it happens again, to who was there before
        return;
    }
    unsigned leaf = at[REG_RAX], part = at[REG_RCX], a, b, c, d;
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0)
        b &= ~EBX, c &= ~ECX, d &= ~EDX;
    if (leaf == 7 && part == 1)
        a &= ~EAX_OF_1;
    at[REG_RAX] = a, at[REG_RBX] = b, at[REG_RCX] = c, at[REG_RDX] = d;
    at[REG_RIP] += LENGTH;
}

// Bytes that look like a cpuid may be a part of another instruction. rbx is the caller's, so that compilers exchange it
// with another register before and after (or copy it first): with these around, it is one.
static int is_question(const uint8_t *at)
{
    const uint8_t *first = at - 3, *last = at + LENGTH;
    int exchanged = first[1] == 0x87 && !memcmp(first, last, 3);
    int copied = first[1] == 0x89 && last[1] == 0x87 && first[2] == last[2];
    return !memcmp(at, CPUID, LENGTH) && (exchanged || copied);
}

// How many questions were found in the code of a library; -1 if it can't be written to.
int hide_avx512(uint8_t *code, int64_t bytes)
{
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, &before);
    int found = 0;
    uintptr_t page = sysconf(_SC_PAGESIZE);
    for (uint8_t *at = code + 3; at + LENGTH + 3 <= code + bytes; at++) {
        if (!is_question(at))
            continue;
        uint8_t *from = (uint8_t *)((uintptr_t)at / page * page);
        if (mprotect(from, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC))
            return -1;
        memcpy(at, UD2, LENGTH);
        mprotect(from, 2 * page, PROT_READ | PROT_EXEC);
        found++;
    }
    return found;
}
