/* SPDX-License-Identifier: MIT */
/*
 * Exhaustion of resources: connections that send nothing, descriptors passed unexpectedly, few
 * descriptors, few ports, sends without a receive.
 */
#include "peer.h"
#include "threads.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void limit_descriptors(rlim_t soft, rlim_t hard)
{
    struct rlimit limit = { soft, hard };

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* -- connections that send nothing ------------------------------------------------------------ */

enum { SILENT_CONNECTIONS = 200 };

static void few_descriptors(void)
{
    limit_descriptors(160, 160);
}

/* Among many silent connections the program can still open files and accept a proper one. */
static void serve_among_silent(struct side *s, int fd)
{
    DAT_EVENT e;
    int file;

    send_byte(fd, 'r');
    recv_byte(fd);
    for (int i = 0; i < 1000; i++)
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(s->cr, &e));
    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    close(file);
    send_byte(fd, 'o');
    peer_accept(s);
    send_byte(fd, 'd');
    peer_wait_end(s);
}

static void silent_connections(void **state)
{
    struct peer p;
    struct side s;
    int fd[SILENT_CONNECTIONS];

    (void)state;
    peer_start_prepared(&p, "soft0", serve_among_silent, few_descriptors);
    recv_byte(p.fd);
    for (int i = 0; i < SILENT_CONNECTIONS; i++) {
        fd[i] = raw_socket();
        raw_connect(fd[i], &p.addr, p.qual);
    }
    open_side(&s, "soft0");
    send_byte(p.fd, 'g');
    assert_int_equal(recv_byte(p.fd), 'o');
    peer_connect(&p, &s);
    assert_int_equal(recv_byte(p.fd), 'd');
    for (int i = 0; i < SILENT_CONNECTIONS; i++)
        close(fd[i]);
    OK(dat_ep_disconnect(s.ep, DAT_CLOSE_ABRUPT_FLAG));
    peer_end(&p);
    close_side(&s);
}

/* -- connections that send CONNECT late ------------------------------------------------------- */

enum { LATE_CONNECTIONS = 100 };

/* More callers than may be unidentified, as many processes that call one on a busy machine: each
 * CONNECT is sent after the service point has had time to drop the others. All are served. */
static void late_connections(void **state)
{
    static const struct softdat_frame connect_frame = { .magic = SOFTDAT_WIRE_MAGIC,
                                                        .type = SOFTDAT_CONNECT };
    struct world *w = *state;
    int fd[LATE_CONNECTIONS];

    for (int i = 0; i < LATE_CONNECTIONS; i++) {
        fd[i] = raw_socket();
        raw_connect(fd[i], w->addr, w->qual);
    }
    for (int i = 0; i < 20; i++)
        expect_nothing(w->b.cr);
    for (int i = 0; i < LATE_CONNECTIONS; i++) {
        DAT_EVENT e;

        assert_int_equal(send(fd[i], &connect_frame, sizeof(connect_frame), MSG_NOSIGNAL),
                         sizeof(connect_frame));
        e = next_event(w->b.cr);
        OK(dat_cr_reject(e.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
        close(fd[i]);
    }
}

/* -- responses that the peer does not read ---------------------------------------------------- */

enum { FLOOD_MAX = 1 << 24 };    /* bytes; their responses do not fit into the sockets' buffers */

static void set_buffer(int fd, int option)
{
    int size = 1 << 14;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, option, &size, sizeof(size)), 0);
}

/* Sends READ frames until the connection is closed. */
static void flood_reads(struct world *w, int fd)
{
    struct softdat_frame burst[64];
    size_t sent = 0;
    ssize_t n;
    DAT_EVENT e;

    for (int i = 0; i < 64; i++)
        burst[i] = (struct softdat_frame){ .magic = SOFTDAT_WIRE_MAGIC, .type = SOFTDAT_READ };
    do {
        size_t at = sent % sizeof(burst);

        n = send(fd, (const char *)burst + at, sizeof(burst) - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        dat_evd_dequeue(w->b.cr, &e);    /* the adapter reads them */
    } while (sent < FLOOD_MAX && (n > 0 || errno == EAGAIN));
}

/* A peer that sends READs without end and reads no response: each waits in memory for its turn. No
 * adapter has more than its limit in flight, so the connection is broken. */
static void reads_without_end(void **state)
{
    static const struct softdat_frame connect_frame = { .magic = SOFTDAT_WIRE_MAGIC,
                                                        .type = SOFTDAT_CONNECT };
    static const struct softdat_frame ready = { .magic = SOFTDAT_WIRE_MAGIC,
                                                .type = SOFTDAT_READY };
    struct world *w = *state;
    int fd = raw_socket();
    DAT_EVENT e;

    set_buffer(fd, SO_RCVBUF);
    raw_connect(fd, w->addr, w->qual);
    assert_int_equal(send(fd, &connect_frame, sizeof(ready), MSG_NOSIGNAL), sizeof(ready));
    e = next_event(w->b.cr);
    OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, w->b.ep, 0, NULL));
    assert_int_equal(send(fd, &ready, sizeof(ready), MSG_NOSIGNAL), sizeof(ready));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ESTABLISHED);
    flood_reads(w, fd);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_BROKEN);
    close(fd);
}

/* -- passed descriptors ----------------------------------------------------------------------- */

static void count_descriptors(struct side *s, int fd)
{
    int before = open_descriptors();

    (void)s;
    send_byte(fd, 'r');
    recv_byte(fd);
    assert_int_equal(open_descriptors(), before);
    send_byte(fd, 'd');
}

/* Sends one byte of a CONNECT with two descriptors through the unix socket, and ends the stream.
 * Returns when the adapter has closed the connection. */
static void pass_two(const struct peer *p)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    union { struct cmsghdr align; char room[CMSG_SPACE(2 * sizeof(int))]; } control;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), two[2] = { 0, 0 };
    int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "daplsoft.127.0.0.1.%u",
                     (unsigned)p->qual);
    char byte = 0x5d;
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                        .msg_controllen = sizeof(control.room) };

    memset(&control, 0, sizeof(control));
    control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                      .cmsg_len = CMSG_LEN(sizeof(two)) };
    memcpy(CMSG_DATA(&control.align), two, sizeof(two));
    assert_int_equal(connect(fd, (struct sockaddr *)&un,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
                     0);
    assert_int_equal(sendmsg(fd, &m, MSG_NOSIGNAL), 1);
    shutdown(fd, SHUT_WR);
    assert_int_equal(recv_byte(fd), -1);
    close(fd);
}

static void passed_descriptors_are_closed(void **state)
{
    struct peer p;

    (void)state;
    peer_start(&p, "soft0", count_descriptors);
    recv_byte(p.fd);
    for (int i = 0; i < 20; i++)
        pass_two(&p);
    send_byte(p.fd, 'g');
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
}

/* -- limits of the process -------------------------------------------------------------------- */

static void exhaust_descriptors(int keep)
{
    rlim_t limit = (rlim_t)open_descriptors() + (rlim_t)keep;

    limit_descriptors(limit, limit);
    while (dup(0) >= 0)
        ;
}

/* No descriptor is free for listening: the error is not DAT_CONN_QUAL_IN_USE. */
static void no_descriptor_to_listen(struct side *s, int fd)
{
    DAT_CONN_QUAL qual;
    DAT_PSP_HANDLE psp;

    exhaust_descriptors(0);
    IS(DAT_INSUFFICIENT_RESOURCES,
       dat_psp_create_any(s->ia, &qual, s->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    IS(DAT_INSUFFICIENT_RESOURCES, dat_psp_create(s->ia, 40000, s->cr, DAT_PSP_CONSUMER_FLAG,
                                                  &psp));
    send_byte(fd, 'd');
}

/* The provider raises a soft limit below the hard one when descriptors run out. */
static void soft_limit_is_raised(struct side *s, int fd)
{
    enum { EPS = 16 };
    DAT_EP_HANDLE ep[EPS];
    struct peer p;

    assert_int_equal(recv(fd, &p, sizeof(p), MSG_WAITALL), sizeof(p));
    limit_descriptors((rlim_t)open_descriptors() + 2, 4096);
    for (int i = 0; i < EPS; i++) {
        OK(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, NULL, &ep[i]));
        OK(dat_ep_connect(ep[i], (DAT_IA_ADDRESS_PTR)&p.addr, p.qual, ATMOST, 0, NULL,
                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
        assert_int_equal(next_event(s->conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    send_byte(fd, 'd');
}

static void accept_all(struct side *s, int fd)
{
    (void)fd;
    for (;;) {
        DAT_EVENT e;
        DAT_COUNT more;
        DAT_EP_HANDLE ep;

        if (dat_evd_wait(s->cr, ATMOST, 1, &e, &more) != DAT_SUCCESS)
            return;
        OK(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, NULL, &ep));
        OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
    }
}

static void listening_without_descriptors(void **state)
{
    struct peer p;

    (void)state;
    peer_start(&p, "soft0", no_descriptor_to_listen);
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
}

static void many_connections_few_descriptors(void **state)
{
    struct peer there, p;

    (void)state;
    peer_start(&there, "soft0", accept_all);
    peer_start(&p, "soft0", soft_limit_is_raised);
    assert_int_equal(send(p.fd, &there, sizeof(there), MSG_NOSIGNAL), sizeof(there));
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
    peer_end(&there);
}

/* -- few ports -------------------------------------------------------------------------------- */

static void few_ports(void)
{
    static const char range[] = "40000 40009";
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    int s, fd;

    if (unshare(CLONE_NEWNET))
        _exit(77);
    s = socket(AF_INET, SOCK_DGRAM, 0);
    fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY);
    if (ioctl(s, SIOCSIFFLAGS, &lo) || fd < 0 || write(fd, range, strlen(range)) < 0)
        _exit(77);
    close(s);
    close(fd);
}

enum { CONNECTS = 16 };

/* Accepts connections on CONNECTS qualifiers. */
static void many_qualifiers(struct side *s, int fd)
{
    DAT_CONN_QUAL qual[CONNECTS];
    DAT_PSP_HANDLE psp;

    for (int i = 0; i < CONNECTS; i++)
        OK(dat_psp_create_any(s->ia, &qual[i], s->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    assert_int_equal(send(fd, qual, sizeof(qual), MSG_NOSIGNAL), sizeof(qual));
    accept_all(s, fd);
}

/* More TCP connections than local ports: connections to different ports may share a local port. */
static void connect_with_few_ports(struct side *s, int fd)
{
    DAT_CONN_QUAL qual[CONNECTS];
    struct peer p;
    DAT_EP_HANDLE ep;

    peer_start(&p, "soft0", many_qualifiers);
    assert_int_equal(recv(p.fd, qual, sizeof(qual), MSG_WAITALL), sizeof(qual));
    for (int i = 0; i < CONNECTS; i++) {
        OK(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, NULL, &ep));
        OK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&p.addr, qual[i], ATMOST, 0, NULL,
                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
        assert_int_equal(next_event(s->conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    peer_end(&p);
    send_byte(fd, 'd');
}

static void more_connections_than_ports(void **state)
{
    struct peer p;

    (void)state;
    if (getuid() != 0)
        SKIP_TEST("only root can make a network of its own");
    peer_start_prepared(&p, "soft0", connect_with_few_ports, few_ports);
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
}

/* The port that the kernel chose for this process's TCP connection to qualifier qual. */
static in_port_t local_port(DAT_CONN_QUAL qual)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in sin = { .sin_family = AF_UNSPEC };
        socklen_t len = sizeof(sin);

        if (getpeername(fd, (struct sockaddr *)&sin, &len) == 0 && sin.sin_family == AF_INET
            && ntohs(sin.sin_port) == qual
            && getsockname(fd, (struct sockaddr *)&sin, &len) == 0)
            return ntohs(sin.sin_port);
    }
    fail_msg("no TCP connection to qualifier %llu", (unsigned long long)qual);
    return 0;
}

/* A port that the kernel has chosen for a connection can be a qualifier at the same time, and for
 * the minute of TIME_WAIT after the connection has ended. */
static void port_of_a_connection_is_a_free_qualifier(void **state)
{
    struct world *w = *state;
    DAT_PSP_HANDLE psp;
    in_port_t port;

    connect_pair(w);
    port = local_port(w->qual);
    OK(dat_psp_create(w->b.ia, port, w->b.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_psp_free(psp));
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_psp_create(w->b.ia, port, w->b.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_psp_free(psp));
}

/* -- sends without a receive ------------------------------------------------------------------ */

/* Many times what may be buffered; a sanitizer copies slowly. Beside 30 other processes that poll,
 * each buffer of TCP takes some tenths of a second. */
enum { LONG_SEND = (SANITIZED ? 32 : 256) << 20, LONG_S = 400 };

static long resident_mib(void)
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_int_equal(fscanf(f, "%ld %ld", &all, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
}

/* Waits for a completion by polling, which is the fastest way to receive. */
static void expect_polled(struct side *s, uint64_t n)
{
    time_t end = time(NULL) + LONG_S;
    DAT_EVENT e;

    while (dat_evd_dequeue(s->dto, &e) != DAT_SUCCESS)
        assert_true(time(NULL) < end);
    assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, n);
    assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_SUCCESS);
}

/* Posts the receive late, while a long send is in flight. */
static void receive_late(struct side *s, int fd)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_TRIPLET t = { 0, LONG_SEND, 0 };
    DAT_RMR_CONTEXT key;
    DAT_LMR_HANDLE lmr;
    DAT_VLEN len;
    DAT_VADDR at;
    long before;

    peer_accept(s);
    before = resident_mib();
    send_byte(fd, 'r');
    recv_byte(fd);
    for (int i = 0; i < 40; i++) {
        expect_nothing(s->dto);
        assert_in_range(resident_mib(), 0, before + 12);
    }
    region.for_va = mmap(NULL, LONG_SEND, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    OK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, LONG_SEND, s->pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &lmr, &t.lmr_context, &key, &len, &at));
    t.virtual_address = at;
    OK(dat_ep_post_recv(s->ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    post_recv(s, 64, 64, 2);
    expect_polled(s, 1);
    expect_polled(s, 2);
    for (size_t i = 0; i < LONG_SEND; i += 4096)
        assert_int_equal(((uint8_t *)region.for_va)[i], (uint8_t)(i >> 12));
    assert_memory_equal(s->buf + 64, "behind", 7);
    send_byte(fd, 'd');
    recv_byte(fd);
}

static void long_send_without_receive(void **state)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_TRIPLET t = { 0, LONG_SEND, 0 };
    DAT_RMR_CONTEXT key;
    DAT_LMR_HANDLE lmr;
    struct peer p;
    struct side s;
    DAT_VLEN len;
    DAT_VADDR at;

    (void)state;
    peer_start(&p, "soft0", receive_late);
    open_side(&s, "soft0");
    peer_connect(&p, &s);
    region.for_va = mmap(NULL, LONG_SEND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                         0);
    for (size_t i = 0; i < LONG_SEND; i += 4096)
        ((uint8_t *)region.for_va)[i] = (uint8_t)(i >> 12);
    OK(dat_lmr_create(s.ia, DAT_MEM_TYPE_VIRTUAL, region, LONG_SEND, s.pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &lmr, &t.lmr_context, &key, &len, &at));
    t.virtual_address = at;
    recv_byte(p.fd);
    strcpy((char *)s.buf, "behind");
    OK(dat_ep_post_send(s.ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    post_send(&s, 0, 7, 2);
    send_byte(p.fd, 'p');
    expect_polled(&s, 1);
    expect_polled(&s, 2);
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
    OK(dat_lmr_free(lmr));
    munmap(region.for_va, LONG_SEND);
    close_side(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_connections),
        CASE(late_connections),
        CASE(reads_without_end),
        cmocka_unit_test(passed_descriptors_are_closed),
        cmocka_unit_test(listening_without_descriptors),
        cmocka_unit_test(many_connections_few_descriptors),
        cmocka_unit_test(more_connections_than_ports),
        CASE_ON(port_of_a_connection_is_a_free_qualifier, "tcp0"),
        cmocka_unit_test(long_send_without_receive),
    };

    return RUN(tests);
}
