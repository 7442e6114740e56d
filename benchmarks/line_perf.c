/* SPDX-License-Identifier: MIT */
/*
 * What the machine does between two processes that share memory, without any MPI: the limits that
 * benchmarks/run shows beside what was measured. Two processes, each pinned to its core, polling.
 *
 *   line_perf -c CORE,CORE TEST BYTES COUNT [WINDOW]
 *
 *   line      a cache line that goes back and forth: half a round trip (us); BYTES is not used
 *   message   the same with a body of BYTES that one side copies into shared memory and the other
 *             one out of it (us)
 *   memcpy    one process copies BYTES from one of WINDOW (1) buffers into one of as many others,
 *             each in its turn (MB/s, 10^6): what one copy of each byte allows
 *   ahead     the same, the destination 16 bytes ahead of the source modulo a page, as a buffer of
 *             malloc() is of a page: memcpy() is slow there on some processors (src/util/bytes.h)
 *   copies    one process copies bodies of BYTES into cells of shared memory, eight of 32 KiB, and
 *             the other one at the same time out of them (MB/s, 10^6)
 *   kernel    each process has the kernel copy BYTES from one of the other one's WINDOW (1) buffers
 *             into one of as many of its own, each in its turn (process_vm_readv), both at the same
 *             time (MB/s of both together, 10^6)
 *
 * Prints one number.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 120, CELLS = 8, CELL = 1 << 15 };

/* Starts a page, so that a short body is in the line of the number that announces it. */
struct shared {
    atomic_long turn;            /* grows by one with each body; odd: it is for the child */
    unsigned char body[];
};

/* In its place for `copies`: so many cells have been filled, and emptied. */
struct ring {
    _Alignas(128) atomic_long filled;
    _Alignas(128) atomic_long emptied;
    _Alignas(4096) unsigned char cell[CELLS][CELL];
};

/* In its place for `kernel`. */
struct pair {
    atomic_long there;           /* grows by one with each process that is at the same point */
    struct {
        pid_t pid;
        unsigned char *buffers;  /* in its memory */
    } end[2];
};

static struct {
    int core[2];
    size_t bytes, window;
    long count;
} opt = { .window = 1 };

static struct shared *sh;
static int me;                   /* 0: the parent, measures; 1: the child */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void *memory(size_t bytes, int sharing)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die("line_perf: memory");
    memset(p, 1, bytes);         /* no first touch while time is taken */
    return p;
}

static void put(const void *body, size_t bytes, long turn)
{
    memcpy(sh->body, body, bytes);
    atomic_store_explicit(&sh->turn, turn, memory_order_release);
}

static void get(void *body, size_t bytes, long turn)
{
    while (atomic_load_explicit(&sh->turn, memory_order_acquire) != turn)
        ;
    memcpy(body, sh->body, bytes);
}

static double ping_pong(size_t bytes)
{
    void *body = memory(opt.bytes, MAP_PRIVATE);
    long warm = opt.count / 10;
    double start = 0;

    for (long i = 0; i < warm + opt.count; i++) {
        if (i == warm)
            start = now_us();
        if (me == 1)
            get(body, bytes, 2 * i + 1);
        put(body, bytes, 2 * i + 1 + me);
        if (me == 0)
            get(body, bytes, 2 * i + 2);
    }
    return (now_us() - start) / (double)opt.count / 2;
}

static double line(void)
{
    return ping_pong(0);
}

static double message(void)
{
    return ping_pong(opt.bytes);
}

static double copied(size_t by)
{
    unsigned char *from = memory(opt.window * opt.bytes, MAP_PRIVATE);
    unsigned char *to = (unsigned char *)memory(opt.window * opt.bytes + by, MAP_PRIVATE) + by;
    long warm = opt.count / 10;
    double start = 0;

    for (long i = 0; me == 0 && i < warm + opt.count; i++) {
        size_t at = (size_t)i % opt.window * opt.bytes;

        if (i == warm)
            start = now_us();
        memcpy(to + at, from + at, opt.bytes);
        atomic_signal_fence(memory_order_seq_cst);       /* no copy is left out */
    }
    return (double)opt.bytes * (double)opt.count / (now_us() - start);
}

static double copy(void)
{
    return copied(0);
}

static double ahead(void)
{
    return copied(16);
}

/* Copies a body to or from the cells; *n counts those that this process has used. */
static void through_cells(struct ring *r, unsigned char *body, long *n)
{
    for (size_t at = 0; at < opt.bytes; at += CELL, ++*n) {
        size_t len = opt.bytes - at < CELL ? opt.bytes - at : CELL;
        unsigned char *cell = r->cell[*n % CELLS];
        atomic_long *mine = me == 0 ? &r->filled : &r->emptied;
        atomic_long *theirs = me == 0 ? &r->emptied : &r->filled;
        long wanted = me == 0 ? *n - CELLS + 1 : *n + 1;

        while (atomic_load_explicit(theirs, memory_order_acquire) < wanted)
            ;
        memcpy(me == 0 ? cell : body + at, me == 0 ? body + at : cell, len);
        atomic_store_explicit(mine, *n + 1, memory_order_release);
    }
}

static double copies(void)
{
    unsigned char *body = memory(opt.bytes, MAP_PRIVATE);
    struct ring *r = (struct ring *)(void *)sh;
    long warm = opt.count / 10, n = 0;
    double start = 0;

    for (long i = 0; i < warm + opt.count; i++) {
        if (i == warm)
            start = now_us();
        through_cells(r, body, &n);
    }
    while (atomic_load_explicit(&r->emptied, memory_order_acquire) < n)
        ;
    return (double)opt.bytes * (double)opt.count / (now_us() - start);
}

/* Both processes are at their n-th such point. */
static void meet(struct pair *p, long n)
{
    atomic_fetch_add(&p->there, 1);
    while (atomic_load_explicit(&p->there, memory_order_acquire) < 2 * n)
        ;
}

static double kernel(void)
{
    unsigned char *to = memory(opt.window * opt.bytes, MAP_PRIVATE);
    struct pair *p = (struct pair *)(void *)sh;
    long warm = opt.count / 10;
    double start = 0;

    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    p->end[me].pid = getpid();
    p->end[me].buffers = memory(opt.window * opt.bytes, MAP_PRIVATE);
    meet(p, 1);
    for (long i = 0; i < warm + opt.count; i++) {
        size_t at = (size_t)i % opt.window * opt.bytes;
        struct iovec here = { to + at, opt.bytes }, there = { p->end[!me].buffers + at, opt.bytes };

        if (i == warm) {
            meet(p, 2);
            start = now_us();
        }
        if (process_vm_readv(p->end[!me].pid, &here, 1, &there, 1, 0) != (ssize_t)opt.bytes)
            die("line_perf: process_vm_readv");
    }
    meet(p, 3);
    return 2 * (double)opt.bytes * (double)opt.count / (now_us() - start);
}

static const struct { const char *name; double (*run)(void); } tests[] = {
    { "line", line }, { "message", message }, { "memcpy", copy }, { "ahead", ahead },
    { "copies", copies }, { "kernel", kernel },
};

static void usage(void)
{
    fprintf(stderr, "usage: line_perf -c CORE,CORE line|message|memcpy|ahead|copies|kernel "
                    "BYTES COUNT [WINDOW]\n");
    exit(2);
}

static double (*arguments(int argc, char **argv))(void)
{
    if (argc < 6 || strcmp(argv[1], "-c")
        || sscanf(argv[2], "%d,%d", &opt.core[0], &opt.core[1]) != 2)
        usage();
    opt.bytes = strtoul(argv[4], NULL, 0);
    opt.count = atol(argv[5]);
    opt.window = argc > 6 ? strtoul(argv[6], NULL, 0) : 1;
    for (size_t i = 0; opt.bytes && opt.count > 0 && opt.window
                       && i < sizeof(tests) / sizeof(tests[0]); i++)
        if (strcmp(tests[i].name, argv[3]) == 0)
            return tests[i].run;
    usage();
    return NULL;
}

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        die("line_perf: core");
}

int main(int argc, char **argv)
{
    double (*run)(void) = arguments(argc, argv), result;
    int status = 0;
    pid_t child;

    sh = memory(sizeof(struct ring) + opt.bytes, MAP_SHARED);
    memset(sh, 0, sizeof(struct ring));
    alarm(LIMIT_S);
    child = fork();
    me = child == 0;
    if (me == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(LIMIT_S);
    }
    pin(opt.core[me]);
    result = run();
    if (me == 1)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status)
        return 1;
    printf("%.4f\n", result);
    return 0;
}
