/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into an MPI program: counts what its MPI asks of verbs between MPI_Pcontrol(1) and
 * MPI_Pcontrol(0), and writes it, an object of JSON on a line, to the file VERBS_COUNT.RANK;
 * without VERBS_COUNT nowhere. After a round of polls that were all empty it gives the core away,
 * as a program that polls without system calls keeps the only core of a node from the other end.
 *
 * Post and poll are functions of a context, which libibverbs' inline functions call: they are
 * replaced in each context that is opened. Needs one kind of device in a process.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define COUNTS(_)                                                                                 \
    _(doorbells)     /* calls that post requests */                                               \
    _(requests)                                                                                   \
    _(receive_calls) /* calls that post receives, also shared ones */                             \
    _(receives)                                                                                   \
    _(completions)   /* polled */                                                                 \
    _(arms)          /* calls that ask for a notification */                                      \
    _(registrations)

#define COUNT(name) atomic_ulong name;
static struct {
    COUNTS(COUNT)
} now, begun;

static struct ibv_context_ops real;

/* -- calls ------------------------------------------------------------------------------------- */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    now.doorbells++;
    for (const struct ibv_send_wr *w = wr; w; w = w->next)
        now.requests++;
    return real.post_send(qp, wr, bad);
}

static void count_receives(const struct ibv_recv_wr *wr)
{
    now.receive_calls++;
    for (; wr; wr = wr->next)
        now.receives++;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    count_receives(wr);
    return real.post_recv(qp, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    count_receives(wr);
    return real.post_srq_recv(srq, wr, bad);
}

/* A round ends when the queue is polled again that was the first one found empty. */
static void yield_after_round(struct ibv_cq *cq, int found)
{
    static _Thread_local struct ibv_cq *first;

    if (found)
        first = NULL;
    else if (!first)
        first = cq;
    else if (cq == first)
        sched_yield();
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    int found = real.poll_cq(cq, n, wc);

    if (found > 0)
        now.completions += (unsigned long)found;
    yield_after_round(cq, found);
    return found;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    now.arms++;
    return real.req_notify_cq(cq, solicited_only);
}

/* -- what libibverbs exports ------------------------------------------------------------------- */

/* The function of this name behind the one here. */
#define NEXT(type, name) ((union { void *p; type *f; }){ dlsym(RTLD_NEXT, name) }.f)

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *c = NEXT(__typeof__(ibv_open_device), "ibv_open_device")(device);

    if (!c || c->ops.post_send == post_send)
        return c;
    if (real.post_send && real.post_send != c->ops.post_send) {
        fprintf(stderr, "verbs_count: devices of two kinds\n");
        abort();
    }
    real = c->ops;
    c->ops.post_send = post_send;
    c->ops.post_recv = post_recv;
    c->ops.post_srq_recv = post_srq_recv;
    c->ops.poll_cq = poll_cq;
    c->ops.req_notify_cq = req_notify_cq;
    return c;
}

/* Counted once, though libibverbs' own may call the next one. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
    unsigned long before = now.registrations;
    struct ibv_mr *mr = NEXT(__typeof__(ibv_reg_mr), "ibv_reg_mr")(pd, addr, bytes, access);

    now.registrations = before + 1;
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova,
                                unsigned access)
{
    now.registrations++;
    return NEXT(__typeof__(ibv_reg_mr_iova2), "ibv_reg_mr_iova2")(pd, addr, bytes, iova, access);
}

/* -- the program's ----------------------------------------------------------------------------- */

static void write_counts(void)
{
    const char *name = getenv("VERBS_COUNT"), *rank = getenv("PMI_RANK");
    const char *sep = "{";
    char path[4096];
    FILE *f;

    if (!name)
        return;
    snprintf(path, sizeof(path), "%s.%s", name, rank ? rank : getenv("OMPI_COMM_WORLD_RANK"));
    f = fopen(path, "w");
    if (!f) {
        perror(path);
        abort();
    }
#define WRITE(count) fprintf(f, "%s\"" #count "\": %lu", sep, now.count - begun.count), sep = ", ";
    COUNTS(WRITE)
    fprintf(f, "}\n");
    fclose(f);
}

int MPI_Pcontrol(const int level, ...);
int MPI_Pcontrol(const int level, ...)
{
#define BEGIN(count) begun.count = now.count;
    if (level) {
        COUNTS(BEGIN)
    } else {
        write_counts();
    }
    return 0;
}
