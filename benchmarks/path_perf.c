/* SPDX-License-Identifier: MIT */
/*
 * What alternate paths cost (paper apm-over-infiniband, figures 5 to 9), through the DAT extension
 * and with nothing of ours between: two processes, and any number of endpoints between them.
 *
 *   path_perf [-i IA] [-c CORE,CORE] [-e EPS] [-t] [-n COUNT]
 *
 * Each endpoint is loaded and armed at both ends, then migrated on the request of one. Prints one
 * object of JSON, times in us:
 *
 *   load          from the first request until all EPS endpoints are armed at this end
 *   migrate       from the first request until all have migrated at this end
 *   latency       half a round trip of 8 bytes on one endpoint, median of COUNT, without all that
 *   loading       the mean of it while the other endpoints are loaded, one in 5 ms, as
 *                 src/dapl/path.c does it; plain: the mean without
 *   cost          of the calls that load one endpoint, at one end
 *   first         half of the first round trip after a request to migrate, median of 100
 *   stream        RDMA writes of 64 KiB on one endpoint, MB/s (10^6)
 *   stream_loading  the same while the other endpoints are loaded, one in 5 ms
 *
 * With -t a thread waits for the events in dat_evd_wait(), as the paper's does; else the process
 * looks at their queue between messages. Needs a line of dat.conf whose IA has two ports.
 */
#include "dat_path_extensions.h"
#include "pair.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_EPS = 1024, EVENTS = 8 * MAX_EPS, BYTES = 8, RECVS = 4, FIRSTS = 100, LIMIT_S = 170,
    BULK = 1 << 16, WINDOW = 4, WRITES = 4096,   /* of stream: bytes of a write, writes in flight */
};

static struct options {
    const char *ia;
    int core[2], eps;
    long count;
    bool thread;
} opt = { .ia = "soft0", .core = { -1, -1 }, .eps = 1, .count = 10000 };

static struct shared {
    atomic_int ready;
    atomic_int streamed;         /* the parent has written all */
    DAT_CONN_QUAL qual;
    DAT_VADDR va;                /* the child's buffer */
    DAT_RMR_CONTEXT key;
    DAT_UINT64 addr[16];         /* a socket address */
} *sh;

static int me;                   /* 0: the parent, which measures; 1: the child */

static struct {
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE dto, conn, cr, async;
    DAT_EP_HANDLE ep[MAX_EPS];
    DAT_LMR_CONTEXT local;
    uint8_t *buf;
    pthread_t thread;
    atomic_long armed, migrated; /* events */
} d;

/* -- events ----------------------------------------------------------------------------------- */

static void count_event(const DAT_EVENT *e)
{
    if (e->event_number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_ARMED) {
        d.armed++;
    } else if (e->event_number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_MIGRATED) {
        d.migrated++;
    } else {
        fprintf(stderr, "path_perf: asynchronous event 0x%x\n", e->event_number);
        exit(1);
    }
}

static void *wait_for_events(void *arg)
{
    DAT_EVENT e;
    DAT_COUNT more;

    (void)arg;
    while (dat_evd_wait(d.async, DAT_TIMEOUT_INFINITE, 1, &e, &more) == DAT_SUCCESS)
        count_event(&e);
    return NULL;
}

static void look(void)
{
    DAT_EVENT e;

    while (!opt.thread && dat_evd_dequeue(d.async, &e) == DAT_SUCCESS)
        count_event(&e);
}

/* Until this many events have been counted. The thread needs the core where there is one only. */
static void until(atomic_long *events, long n)
{
    while (*events < n) {
        look();
        if (opt.thread)
            sched_yield();
    }
}

/* Both have come to the next point. */
static void meet(void)
{
    static int points;

    points++;
    atomic_fetch_add(&sh->ready, 1);
    while (atomic_load(&sh->ready) < 2 * points) {
        look();
        sched_yield();
    }
}

/* -- connecting ------------------------------------------------------------------------------- */

static DAT_LMR_TRIPLET segment(void)
{
    return (DAT_LMR_TRIPLET){ .virtual_address = (DAT_VADDR)(uintptr_t)d.buf,
                              .segment_length = BYTES, .lmr_context = d.local };
}

static void post_recv(void)
{
    DAT_LMR_TRIPLET seg = segment();
    DAT_DTO_COOKIE c = { .as_64 = 1 };

    TRY(dat_ep_post_recv(d.ep[0], 1, &seg, c, DAT_COMPLETION_DEFAULT_FLAG));
}

static void next_conn(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number, DAT_EVENT *e)
{
    DAT_COUNT more;

    TRY(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, e, &more));
    if (e->event_number != number) {
        fprintf(stderr, "path_perf: connection event 0x%x\n", e->event_number);
        exit(1);
    }
}

static void open_ia(void)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_CONTEXT key;
    DAT_IA_ATTR ia;
    DAT_VLEN len;
    DAT_VADDR va;

    d.async = DAT_HANDLE_NULL;
    TRY(dat_ia_open((char *)(uintptr_t)opt.ia, EVENTS, &d.async, &d.ia));
    TRY(dat_pz_create(d.ia, &d.pz));
    TRY(dat_evd_create(d.ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &d.dto));
    TRY(dat_evd_create(d.ia, MAX_EPS, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &d.conn));
    TRY(dat_evd_create(d.ia, MAX_EPS, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &d.cr));
    d.buf = aligned_alloc(4096, BULK);
    if (!d.buf)
        die("memory", DAT_INSUFFICIENT_RESOURCES);
    memset(d.buf, 0, BULK);
    region.for_va = d.buf;
    TRY(dat_lmr_create(d.ia, DAT_MEM_TYPE_VIRTUAL, region, BULK, d.pz, DAT_MEM_PRIV_ALL_FLAG,
                       DAT_VA_TYPE_VA, &lmr, &d.local, &key, &len, &va));
    if (me == 1) {
        sh->va = va;
        sh->key = key;
    }
    TRY(dat_ia_query(d.ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &ia, 0, NULL));
    if (me == 0)
        memcpy(sh->addr, ia.ia_address_ptr, 16);
}

static void connect_all(void)
{
    DAT_PSP_HANDLE psp;
    DAT_EP_ATTR attr;
    DAT_EVENT e;

    memset(&attr, 0, sizeof(attr));
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_message_size = attr.max_rdma_size = BULK;
    attr.max_recv_dtos = attr.max_request_dtos = RECVS;
    attr.max_recv_iov = attr.max_request_iov = attr.max_rdma_write_iov = 1;
    for (int i = 0; i < opt.eps; i++)
        TRY(dat_ep_create(d.ia, d.pz, d.dto, d.dto, d.conn, &attr, &d.ep[i]));
    for (int i = 0; i < RECVS; i++)
        post_recv();
    if (me == 0)
        TRY(dat_psp_create_any(d.ia, &sh->qual, d.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    meet();
    for (int i = 0; i < opt.eps; i++) {
        if (me == 0) {
            next_conn(d.cr, DAT_CONNECTION_REQUEST_EVENT, &e);
            TRY(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, d.ep[i], 0, NULL));
        } else {
            TRY(dat_ep_connect(d.ep[i], (DAT_IA_ADDRESS_PTR)sh->addr, sh->qual,
                               DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
                               DAT_CONNECT_DEFAULT_FLAG));
        }
        next_conn(d.conn, DAT_CONNECTION_EVENT_ESTABLISHED, &e);
    }
    meet();
}

/* -- messages --------------------------------------------------------------------------------- */

/* Waits for the next completion of this kind: 0 a send, 1 a receive. */
static void next_dto(uint64_t kind)
{
    static long early[2];
    DAT_EVENT e;

    while (early[kind] == 0) {
        const DAT_DTO_COMPLETION_EVENT_DATA *c = &e.event_data.dto_completion_event_data;

        if (dat_evd_dequeue(d.dto, &e) != DAT_SUCCESS)
            continue;
        if (c->status != DAT_DTO_SUCCESS)
            die("a message failed", DAT_INTERNAL_ERROR);
        early[c->user_cookie.as_64]++;
    }
    early[kind]--;
}

static void send_one(void)
{
    DAT_LMR_TRIPLET seg = segment();
    DAT_DTO_COOKIE c = { .as_64 = 0 };

    TRY(dat_ep_post_send(d.ep[0], 1, &seg, c, DAT_COMPLETION_DEFAULT_FLAG));
}

static void receive_one(void)
{
    next_dto(1);
    post_recv();
}

/* Half a round trip, us. */
static double ping(void)
{
    double start = now_us();

    if (me == 0) {
        send_one();
        receive_one();
    } else {
        receive_one();
        send_one();
    }
    next_dto(0);
    look();
    return (now_us() - start) / 2;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double *v, long n)
{
    qsort(v, (size_t)n, sizeof(*v), by_size);
    return v[n / 2];
}

/* -- the measurements ------------------------------------------------------------------------- */

static void load_one(int i)
{
    TRY(dat_path_set_alternate(d.ep[i], NULL));
    TRY(dat_path_rearm(d.ep[i]));
}

static double load_all(void)
{
    long before = d.armed;
    double start;

    meet();
    start = now_us();
    for (int i = 0; i < opt.eps; i++)
        load_one(i);
    until(&d.armed, before + opt.eps);
    start = now_us() - start;
    meet();
    return start;
}

static double migrate_all(void)
{
    long before = d.migrated;
    double start;

    meet();
    start = now_us();
    for (int i = 0; me == 0 && i < opt.eps; i++)
        TRY(dat_path_migrate(d.ep[i]));
    until(&d.migrated, before + opt.eps);
    start = now_us() - start;
    meet();
    return start;
}

/* -- loading in 1 % of the time --------------------------------------------------------------- */

enum { PAUSE_US = 5000 };        /* from one endpoint to the next; src/dapl/path.c has the same */

static struct {
    int loaded;                  /* endpoints, from the second one on */
    int n;                       /* of them, slowly */
    double next, cost;           /* us: when the next one may be loaded; of all n */
} pace;

/* Loads the next endpoint, if it is time. */
static void load_slowly(void)
{
    double start = now_us();

    if (pace.loaded == opt.eps - 1 || start < pace.next)
        return;
    load_one(++pace.loaded);
    pace.cost += now_us() - start;
    pace.n++;
    pace.next = start + PAUSE_US;
}

/* What is left of it, and until all are armed. */
static void load_rest(long before)
{
    while (pace.loaded < opt.eps - 1)
        load_one(++pace.loaded);
    load_one(0);
    until(&d.armed, before + opt.eps);
    meet();
}

/* The median latency; *mean. load: the other endpoints are loaded meanwhile. */
static double latency(long n, bool load, double *mean)
{
    double *v = calloc((size_t)n, sizeof(*v)), m;

    if (!v)
        die("memory", DAT_INSUFFICIENT_RESOURCES);
    meet();
    *mean = 0;
    for (long i = 0; i < n; i++) {
        if (load)
            load_slowly();
        v[i] = ping();
        *mean += v[i] / (double)n;
    }
    meet();
    m = median(v, n);
    free(v);
    return m;
}

/* The first message after a request to migrate. All endpoints have migrated before. */
static double first_latency(void)
{
    double v[FIRSTS];

    for (int k = 0; k < FIRSTS; k++) {
        long armed = d.armed, migrated = d.migrated;

        meet();
        load_one(0);
        until(&d.armed, armed + 1);
        meet();
        if (me == 0)
            TRY(dat_path_migrate(d.ep[0]));
        v[k] = ping();
        until(&d.migrated, migrated + 1);
    }
    return median(v, FIRSTS);
}

static void write_bulk(void)
{
    DAT_LMR_TRIPLET from = segment();
    DAT_RMR_TRIPLET to = { .virtual_address = sh->va, .segment_length = BULK,
                           .rmr_context = sh->key };
    DAT_DTO_COOKIE c = { .as_64 = 0 };

    from.segment_length = BULK;
    TRY(dat_ep_post_rdma_write(d.ep[0], 1, &from, c, &to, DAT_COMPLETION_DEFAULT_FLAG));
}

/* MB/s; load: the other endpoints are loaded meanwhile, at both ends. */
static double stream(bool load)
{
    double start;

    meet();
    start = now_us();
    for (int i = 0; me == 0 && i < WRITES; i++) {
        if (load)
            load_slowly();
        write_bulk();
        if (i >= WINDOW - 1)
            next_dto(0);
        look();
    }
    for (int i = 0; me == 0 && i < WINDOW - 1; i++)
        next_dto(0);
    start = now_us() - start;
    atomic_store(&sh->streamed, me == 0);
    while (me == 1 && !atomic_load(&sh->streamed)) {
        if (load)
            load_slowly();
        look();
    }
    meet();
    return (double)WRITES * BULK / start;
}

/* Measures f() while the other endpoints are loaded, and migrates all of them. */
static double while_loading(double (*f)(bool load))
{
    long before = d.armed;
    double measured;

    memset(&pace, 0, sizeof(pace));
    measured = f(true);
    load_rest(before);
    migrate_all();
    return measured;
}

static double mean_latency(bool load)
{
    double mean;

    latency(10 * opt.count, load, &mean);
    return mean;
}

static void measure(void)
{
    double load, migrate, median_us, plain, loading, first, bulk, bulk_loading, cost, mean;

    open_ia();
    if (opt.thread && pthread_create(&d.thread, NULL, wait_for_events, NULL))
        die("no thread", DAT_INSUFFICIENT_RESOURCES);
    connect_all();
    median_us = latency(opt.count, false, &mean);
    load = load_all();
    migrate = migrate_all();
    plain = mean_latency(false);
    loading = while_loading(mean_latency);
    cost = pace.n ? pace.cost / pace.n : 0;
    stream(false);               /* touches the memory */
    bulk = stream(false);
    bulk_loading = while_loading(stream);
    first = first_latency();
    meet();
    if (me == 0)
        printf("{\"load\": %.2f, \"migrate\": %.2f, \"latency\": %.3f, \"plain\": %.3f, "
               "\"loading\": %.3f, \"cost\": %.1f, \"first\": %.3f, \"stream\": %.1f, "
               "\"stream_loading\": %.1f}\n", load, migrate, median_us, plain, loading, cost, first,
               bulk, bulk_loading);
    fflush(stdout);
    meet();
}

/* -- the two processes ------------------------------------------------------------------------ */

static void read_options(int argc, char **argv)
{
    int c;

    while ((c = getopt(argc, argv, "i:c:e:tn:")) != -1) {
        if (c == 'i')
            opt.ia = optarg;
        else if (c == 'c' && sscanf(optarg, "%d,%d", &opt.core[0], &opt.core[1]) == 2)
            continue;
        else if (c == 'e' && (opt.eps = atoi(optarg)) >= 1 && opt.eps <= MAX_EPS)
            continue;
        else if (c == 't')
            opt.thread = true;
        else if (c == 'n' && (opt.count = atol(optarg)) >= 1)
            continue;
        else
            exit(2);
    }
}

int main(int argc, char **argv)
{
    int status = 0;
    pid_t child;

    read_options(argc, argv);
    sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return 1;
    child = fork();
    me = child == 0;
    prctl(PR_SET_PDEATHSIG, me ? SIGKILL : 0);
    alarm(LIMIT_S);
    pin(opt.core[me]);
    measure();
    if (me == 1)
        _exit(0);                /* the thread waits without end */
    waitpid(child, &status, 0);
    _exit(status != 0);
}
