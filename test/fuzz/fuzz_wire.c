/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the decoder of the software provider's protocol.
 *
 *   fuzz_wire [--seed=N] [--runs=N] [--seconds=N] FILE.hex...
 *
 * Each run connects to an adapter of this process by a raw socket, with or without a shared
 * segment, and sends a mutated corpus file. Then it checks that the connection has ended with one
 * event, that memory which is not registered is unchanged, and that a healthy pair on the same
 * adapter still works. Runs with the same seed are the same. In a corpus file KEY, ADDR and END are
 * the key, the start and the last bytes of registered memory. A build with sanitizers checks more.
 */
#include "softdat.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    MEMORY = 4096, GUARD = 4096, RECVS = 4, RECV_BYTES = 64,
    INPUT_MAX = 4096, MAX_FILES = 64,
    WAIT_US = 10 * 1000 * 1000,  /* maximum wait for an event */
    HEALTH_EVERY = 64,
};

static struct input {
    const char *name;
    size_t len;
    uint8_t bytes[INPUT_MAX];
} corpus[MAX_FILES];
static int n_corpus;

/* The adapter under test; buf: guard, registered memory, guard. */
static struct {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE dto, conn, cr;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep, pair[2];
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    uint8_t *buf, *memory;
    struct sockaddr_in addr;
} t;

static uint64_t seed = 1, rng, run;

static void die(const char *what)
{
    printf("not ok 1 - fuzz: %s (--seed=%llu, run %llu)\n", what, (unsigned long long)seed,
           (unsigned long long)run);
    fflush(stdout);
    _exit(1);
}

#define TRY(call)                                                                                \
    do {                                                                                         \
        if (DAT_GET_TYPE(call) != DAT_SUCCESS)                                                   \
            die(#call);                                                                          \
    } while (0)

static uint64_t draw(uint64_t n)
{
    uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % n;
}

static uint64_t now_us(void)
{
    return softdat_now() / 1000;
}

uint64_t softdat_now(void)       /* the provider does not export its own */
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* -- the adapter under test ------------------------------------------------------------------- */

static DAT_EVENT next_event(DAT_EVD_HANDLE evd)
{
    DAT_EVENT e;
    DAT_COUNT more;

    TRY(dat_evd_wait(evd, WAIT_US, 1, &e, &more));
    return e;
}

static void accept_on(DAT_EP_HANDLE ep)
{
    DAT_EVENT e = next_event(t.cr);

    TRY(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
}

static void connect_pair(void)
{
    for (int i = 0; i < 2; i++)
        TRY(dat_ep_create(t.ia, t.pz, t.dto, t.dto, t.conn, NULL, &t.pair[i]));
    TRY(dat_ep_connect(t.pair[0], (DAT_IA_ADDRESS_PTR)&t.addr, t.qual, WAIT_US, 0, NULL,
                       DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    accept_on(t.pair[1]);
    next_event(t.conn);
    next_event(t.conn);
}

static void open_adapter(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_IA_ATTR attr;
    DAT_VLEN len;
    DAT_VADDR at;

    TRY(dat_ia_open("soft0", 8, &async, &t.ia));
    TRY(dat_pz_create(t.ia, &t.pz));
    TRY(dat_evd_create(t.ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &t.dto));
    TRY(dat_evd_create(t.ia, 64, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &t.conn));
    TRY(dat_evd_create(t.ia, 64, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &t.cr));
    t.buf = aligned_alloc(4096, 2 * GUARD + MEMORY);
    memset(t.buf, 0xa5, 2 * GUARD + MEMORY);
    t.memory = t.buf + GUARD;
    region.for_va = t.memory;
    TRY(dat_lmr_create(t.ia, DAT_MEM_TYPE_VIRTUAL, region, MEMORY, t.pz,
                       DAT_MEM_PRIV_ALL_FLAG | (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC,
                       DAT_VA_TYPE_VA, &lmr, &t.local, &t.key, &len, &at));
    TRY(dat_ep_create(t.ia, t.pz, t.dto, t.dto, t.conn, NULL, &t.ep));
    TRY(dat_psp_create_any(t.ia, &t.qual, t.cr, DAT_PSP_CONSUMER_FLAG, &t.psp));
    TRY(dat_ia_query(t.ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    memcpy(&t.addr, attr.ia_address_ptr, sizeof(t.addr));
    connect_pair();
}

static void post_recv(DAT_EP_HANDLE ep, uint64_t n)
{
    DAT_LMR_TRIPLET seg = { (DAT_VADDR)(uintptr_t)t.memory, RECV_BYTES, t.local };
    DAT_DTO_COOKIE cookie = { .as_64 = n };

    TRY(dat_ep_post_recv(ep, 1, &seg, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void check_health(void)
{
    DAT_LMR_TRIPLET seg = { (DAT_VADDR)(uintptr_t)t.memory, 8, t.local };
    DAT_DTO_COOKIE cookie = { .as_64 = 1 };

    post_recv(t.pair[1], 2);
    TRY(dat_ep_post_send(t.pair[0], 1, &seg, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    for (int i = 0; i < 2; i++)
        if (next_event(t.dto).event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS)
            die("the healthy pair no longer works");
}

static void check_guards(void)
{
    for (size_t i = 0; i < GUARD; i++)
        if (t.buf[i] != 0xa5 || t.buf[GUARD + MEMORY + i] != 0xa5)
            die("memory that is not registered has been written");
}

/* -- inputs ----------------------------------------------------------------------------------- */

static void put(struct input *in, const void *from, size_t n)
{
    if (in->len + n > INPUT_MAX)
        die("a corpus file is too long");
    memcpy(in->bytes + in->len, from, n);
    in->len += n;
}

static void put_word(struct input *in, const char *word)
{
    uint64_t at = (uint64_t)(uintptr_t)t.memory, end = at + MEMORY - 2;
    unsigned byte;

    if (strcmp(word, "KEY") == 0)
        put(in, &t.key, 4);
    else if (strcmp(word, "ADDR") == 0)
        put(in, &at, 8);
    else if (strcmp(word, "END") == 0)
        put(in, &end, 8);
    else
        for (; sscanf(word, "%2x", &byte) == 1 && word[1]; word += 2) {
            uint8_t b = (uint8_t)byte;

            put(in, &b, 1);
        }
}

static void load(const char *path)
{
    struct input *in = &corpus[n_corpus++];
    FILE *f = fopen(path, "r");
    char line[512];

    if (!f || n_corpus >= MAX_FILES)
        die(path);
    in->name = path;
    while (fgets(line, sizeof(line), f))
        for (char *w = strtok(line, " \n"); w && *w != '#'; w = strtok(NULL, " \n"))
            put_word(in, w);
    fclose(f);
}

static void mutate_once(struct input *in)
{
    static const uint64_t odd[] = { 0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000,
                                    0xffffffff, UINT64_MAX, UINT64_MAX - 7 };
    size_t at = in->len ? draw(in->len) : 0, n = 1 + draw(8);
    const struct input *other = &corpus[draw((uint64_t)n_corpus)];
    uint64_t v = odd[draw(sizeof(odd) / sizeof(odd[0]))];

    if (in->len < 16)
        return;
    if (n > in->len - at)
        n = in->len - at;
    switch (draw(7)) {
    case 0:
        in->bytes[at] ^= (uint8_t)(1 << draw(8));
        break;
    case 1:
        in->bytes[at] = (uint8_t)draw(256);
        break;
    case 2:
        memcpy(in->bytes + at, &v, n);
        break;
    case 3:
        in->len = at;
        break;
    case 4:                      /* removes bytes */
        memmove(in->bytes + at, in->bytes + at + n, in->len - at - n);
        in->len -= n;
        break;
    case 5:                      /* changes the type of a frame */
        in->bytes[at / 32 * 32 + (at / 32 * 32 + 1 < in->len)] = (uint8_t)draw(20);
        break;
    default:                     /* appends another file */
        if (in->len + other->len <= INPUT_MAX)
            put(in, other->bytes, other->len);
    }
}

static struct input make_input(void)
{
    struct input in = corpus[draw((uint64_t)n_corpus)];

    for (uint64_t n = draw(5); n > 0; n--)
        mutate_once(&in);
    return in;
}

/* -- the attacking connection ----------------------------------------------------------------- */

static int raw_connect(void)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    char text[INET_ADDRSTRLEN];
    int n, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_ntop(AF_INET, &t.addr.sin_addr, text, sizeof(text));
    n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "daplsoft.%s.%u", text,
                 (unsigned)t.qual);
    if (connect(fd, (struct sockaddr *)&un,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)))
        die("connect");
    return fd;
}

static struct softdat_segment *make_segment(int *fd_p)
{
    struct softdat_segment *seg;

    *fd_p = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd_p < 0 || ftruncate(*fd_p, sizeof(*seg))
        || fcntl(*fd_p, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        die("memfd");
    seg = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, *fd_p, 0);
    seg->magic = SOFTDAT_SEGMENT_MAGIC;
    seg->ring = SOFTDAT_RING;
    /* The probe address is never mapped. A valid one would be in this process, which is both sides,
     * and its memory would then be overwritten. */
    seg->access[0].probe_addr = draw(2) ? draw(4096) : 0;
    return seg;
}

static void send_bytes(int fd, const void *p, size_t n, int with)
{
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec v = { (void *)(uintptr_t)p, n };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

    if (with >= 0) {
        control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                          .cmsg_len = CMSG_LEN(sizeof(int)) };
        memcpy(CMSG_DATA(&control.align), &with, sizeof(int));
        m.msg_control = &control;
        m.msg_controllen = sizeof(control.room);
    }
    sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One frame without payload. */
static void send_head(int fd, enum softdat_frame_type type, int with)
{
    struct softdat_frame f = { .magic = SOFTDAT_WIRE_MAGIC, .type = (uint8_t)type };

    send_bytes(fd, &f, sizeof(f), with);
}

/* Writes READY and the input to the ring, and in some runs invalid counters. */
static void write_ring(struct softdat_segment *seg, const struct input *in)
{
    struct softdat_frame f = { .magic = SOFTDAT_WIRE_MAGIC, .type = SOFTDAT_READY };
    struct softdat_half *half = &seg->half[0];
    uint32_t any = draw(2) ? (uint32_t)draw(UINT32_MAX) : (uint32_t)draw(200);
    _Atomic uint64_t *const wide[] = { &half->counters, &half->in_line };
    _Atomic uint32_t *const narrow[] = { &half->head, &half->armed };

    memcpy(seg->bytes[0], &f, sizeof(f));
    memcpy(seg->bytes[0] + sizeof(f), in->bytes, in->len);
    atomic_store(&half->counters, sizeof(f) + in->len);
    if (draw(3))
        return;
    if (draw(3) == 0)
        atomic_store(narrow[draw(2)], any);
    else if (draw(2))
        atomic_fetch_add(wide[draw(2)], softdat_both(0, any));
    else
        atomic_store(wide[draw(2)], any);
}

/* -- a run ------------------------------------------------------------------------------------ */

/* Makes progress until the adapter has read the bytes, or `rounds` rounds. Returns the number of
 * events that end the connection. */
static int progress(int fd, int rounds)
{
    DAT_EVENT e;
    int ends = 0, unread = 1;
    char answer[512];

    for (int i = 0; i < rounds && unread; i++) {
        while (dat_evd_dequeue(t.conn, &e) == DAT_SUCCESS)
            ends += e.event_number != DAT_CONNECTION_EVENT_ESTABLISHED;
        while (dat_evd_dequeue(t.dto, &e) == DAT_SUCCESS)
            ;
        while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) > 0)
            ;
        if (ioctl(fd, SIOCOUTQ, &unread))
            unread = 0;
    }
    return ends;
}

static void end_run(int ends)
{
    while (ends == 0)            /* it may be established only now */
        ends = next_event(t.conn).event_number != DAT_CONNECTION_EVENT_ESTABLISHED;
    if (ends != 1 || progress(-1, 2) != 0)
        die("more than one event has ended the connection");
    TRY(dat_ep_reset(t.ep));
    check_guards();
}

static void attack(void)
{
    struct input in = make_input();
    int fd = raw_connect(), seg_fd = -1, ends;
    struct softdat_segment *seg = draw(2) ? make_segment(&seg_fd) : NULL;

    for (uint64_t i = 0; i < RECVS; i++)
        post_recv(t.ep, i);
    if (draw(16) == 0) {         /* instead of CONNECT */
        send_bytes(fd, in.bytes, in.len, seg_fd);
        progress(fd, 4);
    } else {
        send_head(fd, SOFTDAT_CONNECT, seg_fd);
        accept_on(t.ep);
        if (seg) {
            write_ring(seg, &in);
            send_bytes(fd, "", 1, -1);
        } else {
            send_head(fd, SOFTDAT_READY, -1);
            send_bytes(fd, in.bytes, in.len, -1);
        }
        ends = progress(fd, 64);
        for (int i = 0; seg && i < 4; i++)
            ends += progress(fd, 1);
        shutdown(fd, SHUT_WR);
        end_run(ends);
    }
    close(fd);
    if (seg_fd >= 0)
        close(seg_fd);
    if (seg)
        munmap(seg, sizeof(*seg));
}

/* Rejects the connection requests that the run has caused. */
static void reject_all(void)
{
    DAT_EVENT e;

    while (dat_evd_dequeue(t.cr, &e) == DAT_SUCCESS)
        dat_cr_reject(e.event_data.cr_arrival_event_data.cr_handle, 0, NULL);
    TRY(dat_ep_reset(t.ep));
    progress(-1, 1);
}

int main(int argc, char **argv)
{
    uint64_t runs = UINT64_MAX, seconds = 5, start = now_us();
    unsigned long long n;

    open_adapter();
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "--seed=%llu", &n) == 1)
            seed = n;
        else if (sscanf(argv[i], "--runs=%llu", &n) == 1)
            runs = n;
        else if (sscanf(argv[i], "--seconds=%llu", &n) == 1)
            seconds = n;
        else
            load(argv[i]);
    if (n_corpus == 0)
        die("no corpus");
    for (run = 0; run < runs && now_us() - start < seconds * 1000000; run++) {
        rng = seed * UINT64_C(1000003) + run;
        attack();
        reject_all();
        if (run % HEALTH_EVERY == 0)
            check_health();
    }
    check_health();
    TRY(dat_ia_close(t.ia, DAT_CLOSE_ABRUPT_FLAG));
    free(t.buf);
    printf("ok 1 - fuzz: the wire decoder, %llu runs of seed %llu\n1..1\n",
           (unsigned long long)run, (unsigned long long)seed);
    return 0;
}
