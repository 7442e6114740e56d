/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void send_byte(int fd, char c)
{
    assert_int_equal(send(fd, &c, 1, MSG_NOSIGNAL), 1);
}

int recv_byte(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char c;

    assert_int_equal(poll(&p, 1, 60000), 1);
    return recv(fd, &c, 1, 0) == 1 ? c : -1;
}

static void listen_and_advertise(struct side *s, int fd, DAT_PSP_HANDLE *psp)
{
    struct peer offer = { .va = (uint64_t)(uintptr_t)s->buf, .key = s->key };
    static DAT_IA_ATTR attr;

    OK(dat_psp_create_any(s->ia, &offer.qual, s->cr, DAT_PSP_CONSUMER_FLAG, psp));
    OK(dat_ia_query(s->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    memcpy(&offer.addr, attr.ia_address_ptr, sizeof(offer.addr));
    assert_int_equal(send(fd, &offer, sizeof(offer), MSG_NOSIGNAL), sizeof(offer));
}

static void run_peer(const char *name, peer_role *role, void (*prepare)(void), int fd)
{
    DAT_PSP_HANDLE psp;
    struct side s;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("CMOCKA_TEST_ABORT", "1", 1);      /* a failed assertion ends this process */
    if (prepare)
        prepare();
    open_side(&s, name);
    listen_and_advertise(&s, fd, &psp);
    role(&s, fd);
    _exit(0);
}

void peer_start_prepared(struct peer *p, const char *name, peer_role *role,
                         void (*prepare)(void))
{
    struct pollfd ready;
    int fd[2];
    pid_t pid;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    pid = test_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fd[0]);
        run_peer(name, role, prepare, fd[1]);
    }
    close(fd[1]);
    ready = (struct pollfd){ .fd = fd[0], .events = POLLIN };
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_int_equal(recv(fd[0], p, sizeof(*p), MSG_WAITALL), sizeof(*p));
    p->pid = pid;
    p->fd = fd[0];
}

void peer_start(struct peer *p, const char *name, peer_role *role)
{
    peer_start_prepared(p, name, role, NULL);
}

void peer_connect(struct peer *p, struct side *s)
{
    OK(dat_ep_connect(s->ep, (DAT_IA_ADDRESS_PTR)&p->addr, p->qual, ATMOST, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    expect_conn(s, DAT_CONNECTION_EVENT_ESTABLISHED);
}

void peer_stop(struct peer *p)
{
    kill(p->pid, SIGSTOP);
    waitpid(p->pid, NULL, WUNTRACED);
}

void peer_continue(struct peer *p)
{
    kill(p->pid, SIGCONT);
}

void peer_end(struct peer *p)
{
    int status = 0;
    pid_t ended = waitpid(p->pid, &status, WNOHANG);

    if (ended == 0) {
        kill(p->pid, SIGKILL);
        kill(p->pid, SIGCONT);
        waitpid(p->pid, NULL, 0);
    }
    close(p->fd);
    assert_true(ended == 0 || status == 0);
}

void peer_accept(struct side *s)
{
    DAT_EVENT e = next_event(s->cr);

    OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, s->ep, 0, NULL));
    expect_conn(s, DAT_CONNECTION_EVENT_ESTABLISHED);
}

void peer_wait_end(struct side *s)
{
    DAT_EVENT e;
    DAT_COUNT more;

    OK(dat_evd_wait(s->conn, ATMOST, 1, &e, &more));
}

DAT_RMR_TRIPLET peer_memory(const struct peer *p, size_t at, uint32_t len)
{
    return (DAT_RMR_TRIPLET){ p->va + at, len, p->key };
}
