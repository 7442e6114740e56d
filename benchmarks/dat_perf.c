/* SPDX-License-Identifier: MIT */
/*
 * What a DAT provider does by itself, and what the machine does without one, in one program so that
 * both are measured the same way: two processes, pinned, polling.
 *
 *   dat_perf [-i IA] [-c CORE,CORE] [-n NETNS -a ADDRESS] [-e EPS] [-w WINDOW] [-b BUFFERS]
 *            TEST BYTES COUNT
 *
 *   TEST    send write read             latency: half a round trip of sends, of writes whose last
 *                                       byte is polled; a whole RDMA read (us)
 *           send_bw write_bw read_bw    bandwidth with WINDOW (16) transfers under way on each of
 *                                       EPS (1) endpoints (MB/s)
 *           connect                     the time until EPS endpoints, which are connected at the
 *                                       same time, are established at both ends (us); COUNT is 1
 *           vm_write_bw vm_read_bw      bare: process_vm_writev and process_vm_readv loops (MB/s)
 *           tcp tcp_bw                  bare: ping-pong and stream, both sides polling (us, MB/s)
 *
 * Transfers use one buffer of BYTES again and again, or BUFFERS in turn.
 *
 * With -n the second process runs in that network namespace (`ip netns`): another host; ADDRESS is
 * where the first process's host is reached. Prints one number. Needs a line of dat.conf for IA;
 * in a namespace the software provider's line chooses the interface (if=).
 */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_EPS = 1024, EVD = 4096, LIMIT_S = 120 };

static struct options {
    const char *ia, *netns, *addr;
    int core[2], eps, window, buffers;
    size_t bytes;
    long count;
} opt = { .ia = "soft0", .core = { -1, -1 }, .eps = 1, .window = 16, .buffers = 1 };

/* Between the two processes, for everything but the measurement. */
static struct shared {
    atomic_int ready;
    DAT_CONN_QUAL qual;
    uint16_t port;
    struct sockaddr_in addr;
    uint64_t va[2];
    DAT_RMR_CONTEXT key[2];
    pid_t pid[2];
} *sh;

static int me;                   /* 0: the parent, measures; 1: the child */

/* Both have come to the n-th point. */
static void meet(int n)
{
    atomic_fetch_add(&sh->ready, 1);
    while (atomic_load(&sh->ready) < 2 * n)
        sched_yield();
}

/* -- DAT -------------------------------------------------------------------------------------- */

static struct {
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE dto, conn, cr, async;
    DAT_EP_HANDLE ep[MAX_EPS];
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    volatile uint8_t *buf;       /* half to send from, half to receive into */
    size_t half;                 /* bytes of each */
    int next_send, next_recv;    /* which buffer of them */
} d;

static void next_conn(DAT_EVD_HANDLE evd, DAT_EVENT *e)
{
    DAT_COUNT more;

    TRY(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, e, &more));
}

static void established(void)
{
    DAT_EVENT e;

    next_conn(d.conn, &e);
    if (e.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
        fprintf(stderr, "dat_perf: connection event 0x%x\n", e.event_number);
        exit(1);
    }
}

static void open_ia(void)
{
    DAT_REGION_DESCRIPTION region;
    DAT_EP_ATTR attr;
    DAT_VLEN len;
    DAT_VADDR va;
    DAT_IA_ATTR ia;

    d.async = DAT_HANDLE_NULL;
    TRY(dat_ia_open((char *)(uintptr_t)opt.ia, 8, &d.async, &d.ia));
    TRY(dat_pz_create(d.ia, &d.pz));
    TRY(dat_evd_create(d.ia, EVD, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &d.dto));
    TRY(dat_evd_create(d.ia, MAX_EPS, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &d.conn));
    TRY(dat_evd_create(d.ia, MAX_EPS, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &d.cr));
    d.half = opt.bytes * (size_t)opt.buffers;
    d.buf = mmap(NULL, 2 * d.half, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (d.buf == MAP_FAILED)
        die("memory", DAT_SUCCESS);
    region.for_va = (void *)(uintptr_t)d.buf;
    TRY(dat_lmr_create(d.ia, DAT_MEM_TYPE_VIRTUAL, region, 2 * d.half, d.pz,
                       DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &d.lmr, &d.local, &d.key, &len,
                       &va));
    memset(&attr, 0, sizeof(attr));
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_message_size = attr.max_rdma_size = (DAT_SEG_LENGTH)opt.bytes;
    attr.max_recv_dtos = attr.max_request_dtos = 2 * opt.window + 4;
    attr.max_recv_iov = attr.max_request_iov = 1;
    attr.max_rdma_read_in = attr.max_rdma_read_out = 16;
    attr.max_rdma_read_iov = attr.max_rdma_write_iov = 1;
    for (int i = 0; i < opt.eps; i++)
        TRY(dat_ep_create(d.ia, d.pz, d.dto, d.dto, d.conn, &attr, &d.ep[i]));
    TRY(dat_ia_query(d.ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &ia, 0, NULL));
    sh->va[me] = (uint64_t)(uintptr_t)d.buf;
    sh->key[me] = d.key;
    if (me == 0)
        memcpy(&sh->addr, ia.ia_address_ptr, sizeof(sh->addr));
}

static DAT_LMR_TRIPLET local_seg(size_t offset)
{
    return (DAT_LMR_TRIPLET){ .virtual_address = (DAT_VADDR)(uintptr_t)d.buf + offset,
                              .segment_length = (DAT_SEG_LENGTH)opt.bytes,
                              .lmr_context = d.local };
}

/* The buffers are used in turn. */
static size_t turn(int *next)
{
    size_t at = (size_t)*next * opt.bytes;

    *next = (*next + 1) % opt.buffers;
    return at;
}

static void post_recv(int ep, uint64_t cookie)
{
    DAT_LMR_TRIPLET seg = local_seg(d.half + turn(&d.next_recv));
    DAT_DTO_COOKIE c = { .as_64 = cookie };

    TRY(dat_ep_post_recv(d.ep[ep], 1, &seg, c, DAT_COMPLETION_DEFAULT_FLAG));
}

static void open_dat(void)
{
    DAT_PSP_HANDLE psp;

    open_ia();
    for (int i = 0; i < opt.eps; i++)
        for (int k = 0; k < 2 * opt.window; k++)
            post_recv(i, 1);
    if (me == 0)
        TRY(dat_psp_create_any(d.ia, &sh->qual, d.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    meet(1);
}

/* Starts the connection of an endpoint, or accepts one on it. */
static void connect_ep(DAT_EP_HANDLE ep)
{
    DAT_EVENT e;

    if (me == 0) {
        next_conn(d.cr, &e);
        TRY(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
    } else {
        TRY(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&sh->addr, sh->qual, DAT_TIMEOUT_INFINITE, 0,
                           NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    }
}

static void connect_dat(void)
{
    open_dat();
    for (int i = 0; i < opt.eps; i++) {
        connect_ep(d.ep[i]);
        established();
    }
    meet(2);
}

static void post(int ep, DAT_DTOS op)
{
    size_t at = turn(&d.next_send);
    DAT_LMR_TRIPLET seg = local_seg(at);
    DAT_RMR_TRIPLET far = { .virtual_address = sh->va[!me] + d.half + at,
                            .segment_length = (DAT_SEG_LENGTH)opt.bytes,
                            .rmr_context = sh->key[!me] };
    DAT_DTO_COOKIE c = { .as_64 = 0 };

    if (op == DAT_DTO_SEND)
        TRY(dat_ep_post_send(d.ep[ep], 1, &seg, c, DAT_COMPLETION_DEFAULT_FLAG));
    else if (op == DAT_DTO_RDMA_WRITE)
        TRY(dat_ep_post_rdma_write(d.ep[ep], 1, &seg, c, &far, DAT_COMPLETION_DEFAULT_FLAG));
    else
        TRY(dat_ep_post_rdma_read(d.ep[ep], 1, &seg, c, &far, DAT_COMPLETION_DEFAULT_FLAG));
}

/* The next completion; *ep_p: whose. Returns the cookie: 0 a request, 1 a receive. */
static uint64_t next_dto(int *ep_p)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *c;
    DAT_EVENT e;

    while (DAT_GET_TYPE(dat_evd_dequeue(d.dto, &e)) == DAT_QUEUE_EMPTY)
        ;
    c = &e.event_data.dto_completion_event_data;
    if (e.event_number != DAT_DTO_COMPLETION_EVENT || c->status != DAT_DTO_SUCCESS) {
        fprintf(stderr, "dat_perf: event 0x%x, status %d\n", e.event_number, c->status);
        exit(1);
    }
    for (*ep_p = 0; d.ep[*ep_p] != c->ep_handle; ++*ep_p)
        ;
    return c->user_cookie.as_64;
}

/* -- the tests: each returns the number ------------------------------------------------------- */

static double connect_time(void)
{
    double start;

    open_dat();
    start = now_us();
    for (int i = 0; i < opt.eps; i++)
        connect_ep(d.ep[i]);
    for (int i = 0; i < opt.eps; i++)
        established();
    meet(2);
    return now_us() - start;
}

static double send_lat(void)
{
    long sent = 0, heard = 0;
    double start;
    int ep;

    connect_dat();
    start = now_us();
    for (long i = 0; i < opt.count; i++) {
        if (me == 0)
            post(0, DAT_DTO_SEND);
        while (heard <= i || (me == 0 && sent <= i)) {
            if (next_dto(&ep) == 0) {
                sent++;
            } else {
                heard++;
                post_recv(0, 1);
            }
        }
        if (me == 1)
            post(0, DAT_DTO_SEND);
    }
    start = now_us() - start;
    for (; sent < opt.count; sent++)     /* the last answer is not to be cut off by the end */
        next_dto(&ep);
    return start / (double)opt.count / 2;
}

/* Reaps what has completed; the poll makes progress too, as an application's would. */
static void reap(void)
{
    DAT_EVENT e;

    while (dat_evd_dequeue(d.dto, &e) == DAT_SUCCESS)
        if (e.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS)
            die("a write failed", DAT_INTERNAL_ERROR);
}

static void write_one(uint8_t mark)
{
    d.buf[opt.bytes - 1] = mark;
    post(0, DAT_DTO_RDMA_WRITE);
}

static double write_lat(void)
{
    double start;

    connect_dat();
    start = now_us();
    for (long i = 1; i <= opt.count; i++) {
        uint8_t mark = (uint8_t)(i % 250 + 1);

        if (me == 0)
            write_one(mark);
        while (d.buf[2 * opt.bytes - 1] != mark)
            reap();
        if (me == 1)
            write_one(mark);
    }
    return (now_us() - start) / (double)opt.count / 2;
}

static void serve(void)
{
    DAT_EVENT e;

    while (atomic_load(&sh->ready) < 5)
        dat_evd_dequeue(d.dto, &e);
}

static double read_lat(void)
{
    double start;
    int ep;

    connect_dat();
    start = now_us();
    for (long i = 0; me == 0 && i < opt.count; i++) {
        post(0, DAT_DTO_RDMA_READ);
        next_dto(&ep);
    }
    start = (now_us() - start) / (double)opt.count;
    if (me == 0)
        atomic_fetch_add(&sh->ready, 1);
    else
        serve();
    return start;
}

/* Process 0 keeps the window full; process 1 serves (and gives receives back). */
static double stream(DAT_DTOS op)
{
    long total = opt.count * opt.eps, posted = 0, done = 0;
    double start;
    int ep;

    connect_dat();
    start = now_us();
    if (me == 0) {
        for (int i = 0; i < opt.eps; i++)
            for (int k = 0; k < opt.window && posted < total; k++, posted++)
                post(i, op);
        for (; done < total; done++) {
            next_dto(&ep);
            if (posted++ < total)
                post(ep, op);
        }
        start = now_us() - start;
        atomic_fetch_add(&sh->ready, 1);
    } else if (op == DAT_DTO_SEND) {
        for (; done < total; done++) {
            next_dto(&ep);
            post_recv(ep, 1);
        }
    }
    if (me == 1)
        serve();
    return (double)total * (double)opt.bytes / start;
}

static double send_bw(void) { return stream(DAT_DTO_SEND); }
static double write_bw(void) { return stream(DAT_DTO_RDMA_WRITE); }
static double read_bw(void) { return stream(DAT_DTO_RDMA_READ); }

static double vm_bw(ssize_t (*call)(pid_t, const struct iovec *, unsigned long,
                                    const struct iovec *, unsigned long, unsigned long))
{
    void *buf = mmap(NULL, opt.bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct iovec here = { buf, opt.bytes }, there;
    double start;

    sh->va[me] = (uint64_t)(uintptr_t)buf;
    sh->pid[me] = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    meet(1);
    there = (struct iovec){ (void *)(uintptr_t)sh->va[!me], opt.bytes };
    start = now_us();
    for (long i = 0; me == 0 && i < opt.count; i++)
        if (call(sh->pid[1], &here, 1, &there, 1, 0) != (ssize_t)opt.bytes)
            die("process_vm", DAT_SUCCESS);
    start = now_us() - start;
    meet(2);
    return (double)opt.count * (double)opt.bytes / start;
}

static double vm_write_bw(void) { return vm_bw(process_vm_writev); }
static double vm_read_bw(void) { return vm_bw(process_vm_readv); }

static int connect_tcp(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, got = fd;
    socklen_t len = sizeof(to);

    inet_pton(AF_INET, opt.addr ? opt.addr : "127.0.0.1", &to.sin_addr);
    if (me == 0) {
        if (bind(fd, (struct sockaddr *)&to, len) || listen(fd, 1)
            || getsockname(fd, (struct sockaddr *)&to, &len))
            die("tcp", DAT_SUCCESS);
        sh->port = to.sin_port;
    }
    meet(1);
    if (me == 0) {
        got = accept(fd, NULL, NULL);
    } else {
        to.sin_port = sh->port;
        if (connect(fd, (struct sockaddr *)&to, len))
            die("tcp connect", DAT_SUCCESS);
    }
    setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(got, F_SETFL, O_NONBLOCK);
    meet(2);
    return got;
}

static void move_all(int fd, uint8_t *buf, bool out)
{
    for (size_t at = 0; at < opt.bytes;) {
        ssize_t n = out ? send(fd, buf + at, opt.bytes - at, MSG_NOSIGNAL)
                        : recv(fd, buf + at, opt.bytes - at, 0);

        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            die("tcp", DAT_SUCCESS);
    }
}

static double tcp_lat(void)
{
    uint8_t *buf = calloc(1, opt.bytes);
    int fd = connect_tcp();
    double start = now_us();

    for (long i = 0; i < opt.count; i++) {
        move_all(fd, buf, me == 0);
        move_all(fd, buf, me == 1);
    }
    return (now_us() - start) / (double)opt.count / 2;
}

static double tcp_bw(void)
{
    uint8_t *buf = calloc(1, opt.bytes), end = 0;
    int fd = connect_tcp();
    double start = now_us();

    for (long i = 0; i < opt.count; i++)
        move_all(fd, buf, me == 0);
    opt.bytes = 1;               /* the receiver has all of it */
    move_all(fd, &end, me == 1);
    return now_us() - start;
}

static double tcp_stream(void)
{
    double bytes = (double)opt.count * (double)opt.bytes;

    return bytes / tcp_bw();
}

static const struct { const char *name; double (*run)(void); } tests[] = {
    { "send", send_lat }, { "write", write_lat }, { "read", read_lat },
    { "send_bw", send_bw }, { "write_bw", write_bw }, { "read_bw", read_bw },
    { "vm_write_bw", vm_write_bw }, { "vm_read_bw", vm_read_bw }, { "tcp", tcp_lat },
    { "tcp_bw", tcp_stream }, { "connect", connect_time },
};

/* -- starting --------------------------------------------------------------------------------- */

static void enter_netns(void)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "/run/netns/%s", opt.netns);
    fd = open(path, O_RDONLY);
    if (fd < 0 || setns(fd, CLONE_NEWNET))
        die(path, DAT_SUCCESS);
    close(fd);
}

static void usage(void)
{
    fprintf(stderr, "usage: dat_perf [-i IA] [-c CORE,CORE] [-n NETNS -a ADDRESS] [-e EPS] "
                    "[-w WINDOW] TEST BYTES COUNT\ntests:");
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        fprintf(stderr, " %s", tests[i].name);
    fprintf(stderr, "\n");
    exit(2);
}

static double (*arguments(int argc, char **argv))(void)
{
    int o;

    while ((o = getopt(argc, argv, "i:c:n:a:e:w:b:")) != -1) {
        if (o == 'i')
            opt.ia = optarg;
        else if (o == 'c' && sscanf(optarg, "%d,%d", &opt.core[0], &opt.core[1]) == 2)
            continue;
        else if (o == 'n')
            opt.netns = optarg;
        else if (o == 'a')
            opt.addr = optarg;
        else if (o == 'e')
            opt.eps = atoi(optarg);
        else if (o == 'w')
            opt.window = atoi(optarg);
        else if (o == 'b')
            opt.buffers = atoi(optarg);
        else
            usage();
    }
    if (argc - optind != 3 || opt.eps < 1 || opt.eps > MAX_EPS || opt.window < 1
        || opt.buffers < 1)
        usage();
    opt.bytes = strtoul(argv[optind + 1], NULL, 0);
    opt.count = atol(argv[optind + 2]);
    for (size_t i = 0; opt.bytes > 0 && opt.count > 0 && i < sizeof(tests) / sizeof(tests[0]); i++)
        if (strcmp(tests[i].name, argv[optind]) == 0)
            return tests[i].run;
    usage();
    return NULL;
}

int main(int argc, char **argv)
{
    double (*run)(void) = arguments(argc, argv), result;
    int status = 0;
    pid_t child;

    sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        die("memory", DAT_SUCCESS);
    alarm(LIMIT_S);
    child = fork();
    me = child == 0;
    if (me == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(LIMIT_S);
        if (opt.netns)
            enter_netns();
    }
    pin(opt.core[me]);
    result = run();
    if (me == 1)
        _exit(0);                /* what it has open ends with it: the parent has its number */
    if (waitpid(child, &status, 0) != child || status)
        return 1;
    printf("%.4f\n", result);
    return 0;
}
