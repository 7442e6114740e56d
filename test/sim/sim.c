/* SPDX-License-Identifier: MIT */
#include "sim.h"

#include "dapl.h"
#include "err.h"
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STUCK = 20000,               /* rounds without an operation that ends */
    CONNECTING = 400000,         /* rounds until all are connected */
    UNTIL = 400000,              /* rounds until something is true */
    IDLE = 300,                  /* rounds in which nothing moves, before time passes */
    GUARD = 64,
    FILL = 0xc5,
};

struct envelope {
    uint32_t src, number, len;
};

struct sending {
    struct mdapl_op op;
    struct sim_rank *from;
    uint8_t *body;
};

struct reading {
    struct mdapl_op op;
    struct sim_rank *to;
    struct mdapl_rx *rx;
    struct envelope env;
    uint8_t *body;               /* between GUARD bytes at either end */
    uint32_t read, asked;        /* bytes that have been read; of the read in progress */
    struct reading *next;        /* on sim->kept */
};

void sim_check(uint64_t seed, bool cond, const char *text, const char *file, int line)
{
    if (cond)
        return;
    fprintf(stderr, "seed %llu: %s:%d: %s\n", (unsigned long long)seed, file, line, text);
    abort();
}

static uint8_t byte_of(const struct envelope *e, uint32_t i)
{
    return (uint8_t)(e->src * 31 + e->number * 7 + i * 13 + (i >> 8));
}

/* -- receiving -------------------------------------------------------------------------------- */

void sim_kept(const struct sim *s)
{
    for (const struct reading *r = s->kept; r; r = r->next)
        for (const uint8_t *p = r->body - GUARD; p < r->body + r->env.len + GUARD; p++)
            SIM_CHECK(s, *p == FILL);
}

static void free_kept(struct sim *s)
{
    struct reading *r;

    sim_kept(s);
    while ((r = s->kept)) {
        s->kept = r->next;
        free(r->body - GUARD);
        free(r);
    }
}

static void read_over(struct mdapl_op *op, int status);

/* Reads the body, or its next part. As mdapl_rx_read(). */
static int read_next(struct reading *r)
{
    struct sim *s = r->to->sim;
    uint32_t left = r->env.len - r->read;
    struct iovec v = { r->body + r->read, s->parts ? 1 + fake_random(left) : left };

    r->asked = (uint32_t)v.iov_len;
    r->op.done = read_over;
    return mdapl_rx_read(r->rx, &v, 1, &r->op);
}

/* A part has been read: there is another, unless the rest is dropped. */
static bool goes_on(struct reading *r)
{
    r->read += r->asked;
    if (!r->rx || r->read == r->env.len)
        return false;
    if (fake_random(4) > 0) {
        int rc = read_next(r);

        if (rc)
            read_over(&r->op, rc < 0 ? rc : 0);
        return true;
    }
    mdapl_rx_drop(r->rx);
    return false;
}

static void read_over(struct mdapl_op *op, int status)
{
    struct reading *r = (struct reading *)(void *)op;
    struct sim *s = r->to->sim;

    if (status == 0 && goes_on(r))
        return;
    if (status) {
        SIM_CHECK(s, s->may_fail);
        r->to->reads_failed++;
        mdapl_rx_drop(r->rx);
    }
    for (uint32_t i = 0; status == 0 && i < r->read; i++)
        SIM_CHECK(s, r->body[i] == byte_of(&r->env, i));
    r->to->reads++;
    memset(r->body, FILL, r->env.len);
    r->next = s->kept;
    s->kept = r;
    if (!s->keep)
        free_kept(s);
}

/* The process that a peer is. */
static int process_of(const struct mdapl_peer *peer)
{
    struct sim_job *job = mdapl_peer_group(peer)->owner;

    SIM_CHECK(job->sim, peer->rank < job->n);
    return job->first + peer->rank;
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct sim_rank *me = owner;
    struct sim *s = me->sim;
    struct reading *r = calloc(1, sizeof(*r));
    int from = process_of(peer);
    int rc;

    SIM_CHECK(s, r && m->hdr_len == sizeof(r->env));
    if (s->rank[from].job != me->job)            /* that of a visitor is not known before */
        me->other = mdapl_peer_group(peer);
    if (mdapl_peer_group(peer)->visitor)
        SIM_CHECK(s, mdapl_peer_locate(peer, s->card[from]) == 0);
    memcpy(&r->env, m->hdr, sizeof(r->env));
    SIM_CHECK(s, r->env.src == (uint32_t)from);
    SIM_CHECK(s, r->env.number == me->announced[from]++);
    r->to = me;
    r->rx = m->rx;
    r->body = malloc(r->env.len + 2 * GUARD);
    SIM_CHECK(s, r->body && m->len == r->env.len);
    memset(r->body, FILL, r->env.len + 2 * GUARD);
    r->body += GUARD;
    SIM_CHECK(s, (m->rx != NULL) + (m->data != NULL) == (m->len > 0));
    if (m->data)
        memcpy(r->body, m->data, m->len);
    r->asked = m->rx ? 0 : r->env.len;
    rc = m->rx ? read_next(r) : MDAPL_DONE;
    if (rc)
        read_over(&r->op, rc < 0 ? rc : 0);
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    struct sim_rank *me = owner;

    (void)peer;
    if (!me->sim->may_fail)
        fprintf(stderr, "rank %d: %s\n", me->rank, why);
    SIM_CHECK(me->sim, me->sim->may_fail && status < 0);
    me->faults++;
    me->status = status;
    snprintf(me->why, sizeof(me->why), "%s", why);
}

/* -- sending ---------------------------------------------------------------------------------- */

static void send_over(struct mdapl_op *op, int status)
{
    struct sending *m = (struct sending *)(void *)op;

    SIM_CHECK(m->from->sim, status == 0 || m->from->sim->may_fail);
    m->from->sends_failed += status != 0;
    m->from->sends++;
    free(m->body);
    free(m);
}

int sim_peer(struct sim *s, int rank, int to, struct mdapl_peer **peer_p)
{
    struct sim_rank *me = &s->rank[rank];
    struct sim_job *job = s->rank[to].job;
    struct mdapl_group *group = job == me->job ? mdapl_ctx_job(me->ctx) : me->other;

    return mdapl_group_peer(group, to - job->first, peer_p);
}

struct mdapl_dapl_peer *sim_dapl_peer(struct sim *s, int rank, int to)
{
    struct mdapl_peer *peer;

    SIM_CHECK(s, sim_peer(s, rank, to, &peer) == 0);
    return mdapl_dapl_peer_of(peer);
}

static int start_sending(struct sim *s, int from, int to, uint32_t len, bool synchronous, bool now)
{
    struct sim_rank *me = &s->rank[from];
    struct envelope env = { (uint32_t)from, me->sent[to], len };
    struct sending *m = calloc(1, sizeof(*m));
    struct mdapl_peer *peer;
    struct mdapl_msg msg;
    struct iovec v;
    int rc;

    SIM_CHECK(s, m && sim_peer(s, from, to, &peer) == 0);
    *m = (struct sending){ .op.done = send_over, .from = me, .body = malloc(len + 1) };
    SIM_CHECK(s, m->body);
    for (uint32_t i = 0; i < len; i++)
        m->body[i] = byte_of(&env, i);
    v = (struct iovec){ m->body, len };
    msg = (struct mdapl_msg){ &env, sizeof(env), &v, 1, synchronous };
    rc = mdapl_send(peer, &msg, now ? NULL : &m->op);
    if (rc == -EAGAIN) {
        free(m->body);
        free(m);
        return rc;
    }
    me->sent[to]++;
    s->started++;
    if (rc)
        send_over(&m->op, rc < 0 ? rc : 0);
    return 0;
}

void sim_send(struct sim *s, int from, int to, uint32_t len, bool synchronous)
{
    SIM_CHECK(s, start_sending(s, from, to, len, synchronous, false) == 0);
}

bool sim_try(struct sim *s, int from, int to, uint32_t len)
{
    return start_sending(s, from, to, len, false, true) == 0;
}

/* -- the world -------------------------------------------------------------------------------- */

static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
static const struct mdapl_channel *const channels[] = { &mdapl_dapl_channel, NULL };

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    struct sim_job *job = owner;

    snprintf(buf, len, "%s", job->sim->card[job->first + rank]);
    return 0;
}

void sim_start(struct sim *s, uint64_t seed, int n, const struct fake_faults *faults,
               const struct fake_limits *limits)
{
    memset(s, 0, sizeof(*s));
    s->seed = seed;
    s->n = n;
    s->job[0] = (struct sim_job){ .sim = s, .n = n, .id = 77 };
    fake_start(seed, faults, limits);
}

void sim_split(struct sim *s, int n)
{
    s->job[0].n = n;
    s->job[1] = (struct sim_job){ .sim = s, .first = n, .n = s->n - n, .id = 78 };
}

static struct sim_job *job_of(struct sim *s, int rank)
{
    return &s->job[s->job[1].n > 0 && rank >= s->job[1].first];
}

void sim_join(struct sim *s, int rank, const char key[MDAPL_KEY_BYTES])
{
    struct sim_rank *me = &s->rank[rank];
    struct sim_job *other = &s->job[me->job == &s->job[0]];
    struct mdapl_group group = { .size = other->n, .id = other->id, .card = get_card,
                                 .owner = other };

    memcpy(group.key, key, sizeof(group.key));
    SIM_CHECK(s, mdapl_group_add(me->ctx, &group, &me->other) == 0);
}

/* That of this process: the visitor's is not known. */
static int port_card(void *owner, int rank, char *buf, size_t len)
{
    struct sim_job *visitor = owner;
    struct sim *s = visitor->sim;

    return get_card(&s->job[visitor == &s->job[0]], rank, buf, len);
}

void sim_open_port(struct sim *s, int rank, uint32_t id, const char key[MDAPL_KEY_BYTES])
{
    struct sim_rank *me = &s->rank[rank];
    struct mdapl_group visitors = { .size = 1, .card = port_card, .self = { id, 0 },
                                    .owner = &s->job[me->job == &s->job[0]] };

    memcpy(visitors.key, key, sizeof(visitors.key));
    SIM_CHECK(s, mdapl_port_open(me->ctx, &visitors) == 0);
}

void sim_visit(struct sim *s, int rank, uint32_t port, uint32_t as,
               const char key[MDAPL_KEY_BYTES])
{
    struct sim_rank *me = &s->rank[rank];
    struct mdapl_group group = { .size = 1, .id = port ^ as, .card = get_card, .self = { as, 0 },
                                 .owner = &s->job[me->job == &s->job[0]] };

    memcpy(group.key, key, sizeof(group.key));
    SIM_CHECK(s, mdapl_group_add(me->ctx, &group, &me->other) == 0);
}

static void set_knobs(struct sim *s, struct mdapl_cfg *cfg, const char *knobs)
{
    char text[512], *save = NULL;
    struct mdapl_err err;

    snprintf(text, sizeof(text), "%s", knobs);
    for (char *k = strtok_r(text, " ", &save); k; k = strtok_r(NULL, " ", &save)) {
        char *value = strchr(k, '=');

        SIM_CHECK(s, value != NULL);
        *value++ = 0;
        SIM_CHECK(s, mdapl_cfg_set(cfg, k, value, &err) == 0);
    }
}

int sim_open(struct sim *s, int i, const char *knobs, struct mdapl_err *err)
{
    struct sim_rank *me = &s->rank[i];
    struct sim_job *job = job_of(s, i);
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &me->cfg,
        .clock = mdapl_clock_manual(fake_time()),
        .job = { .rank = i - job->first, .size = job->n, .id = job->id, .key = "sixteen bytes..",
                 .card = get_card, .owner = job },
    };
    int rc;

    *me = (struct sim_rank){ .sim = s, .rank = i, .job = job };
    mdapl_cfg_init(&me->cfg);
    /* What is kept depends on the machine: not here. All bodies longer than a frame travel by
     * rendezvous, unless the test says more. */
    set_knobs(s, &me->cfg, "ia=fake reg_cache=off eager_bytes=0 vbuf_size=8192");
    set_knobs(s, &me->cfg, knobs);
    if (s->verbose)
        set_knobs(s, &me->cfg, "verbose=3");
    rc = mdapl_ctx_open(&args, &me->ctx, err);
    if (!rc)
        SIM_CHECK(s, mdapl_ctx_card(me->ctx, s->card[i], sizeof(s->card[i])) > 0);
    return rc;
}

void sim_open_all(struct sim *s, const char *knobs)
{
    struct mdapl_err err;

    for (int i = 0; i < s->n; i++)
        if (sim_open(s, i, knobs, &err)) {
            fprintf(stderr, "%s\n", err.text);
            SIM_CHECK(s, false);
        }
    sim_connect(s);
}

/* Time passes when nothing has moved for many rounds. */
struct idle {
    uint64_t moved;
    int rounds;
};

static void pass_time(struct sim *s, struct idle *idle)
{
    uint64_t now = SIM_SUM(s, rx_frames) + SIM_SUM(s, connects) + SIM_SUM(s, breaks);

    idle->rounds = now == idle->moved ? idle->rounds + 1 : 0;
    idle->moved = now;
    if (idle->rounds > IDLE)
        *fake_time() += 1000000;
}

void sim_connect(struct sim *s)
{
    struct idle idle = { 0 };
    bool done[SIM_RANKS] = { false };
    int n = 0;

    for (int rounds = 0; n < s->n; rounds++) {
        int i = (int)fake_random((uint64_t)s->n), rc = mdapl_wire(s->rank[i].ctx);

        SIM_CHECK(s, rc >= 0 && rounds < CONNECTING);
        n += rc == MDAPL_DONE && !done[i];
        done[i] |= rc == MDAPL_DONE;
        pass_time(s, &idle);
        sim_round(s);
    }
}

void sim_round(struct sim *s)
{
    uint64_t i = fake_random((uint64_t)s->n);

    fake_step();
    if (s->rank[i].ctx && (s->n - 1 != (int)i || fake_random(1 + (uint64_t)s->lazy) == 0))
        mdapl_progress(s->rank[i].ctx);
}

void sim_rounds(struct sim *s, int n)
{
    while (n-- > 0)
        sim_round(s);
}

/* Operations that have ended. */
static int ended(const struct sim *s)
{
    int n = 0;

    for (int i = 0; i < s->n; i++)
        n += s->rank[i].sends + s->rank[i].reads;
    return n;
}

bool sim_settled(struct sim *s)
{
    int sends = 0, reads = 0, announced = 0;

    for (int i = 0; i < s->n; i++) {
        sends += s->rank[i].sends;
        reads += s->rank[i].reads;
        for (int k = 0; k < s->n; k++)
            announced += (int)s->rank[i].announced[k];
    }
    return sends == s->started && reads == announced && (s->may_fail || announced == s->started);
}

void sim_until(struct sim *s, bool (*is_true)(struct sim *s))
{
    struct idle idle = { 0 };

    for (int rounds = 0; !is_true(s); rounds++) {
        pass_time(s, &idle);
        SIM_CHECK(s, rounds < UNTIL);
        sim_round(s);
    }
}

void sim_run(struct sim *s)
{
    int before = ended(s);

    for (int idle = 0; !sim_settled(s); idle++) {
        sim_round(s);
        if (ended(s) != before)
            idle = 0;
        before = ended(s);
        SIM_CHECK(s, idle < STUCK);
    }
}

void sim_end(struct sim *s)
{
    size_t left = 1;

    for (int rounds = 0; left > 0; rounds++) {
        SIM_CHECK(s, rounds < STUCK);
        left = 0;
        for (int i = 0; i < s->n; i++) {
            left += mdapl_drain(s->rank[i].ctx);
            mdapl_progress(s->rank[i].ctx);
        }
        fake_step();
    }
    sim_close(s);
}

void sim_close(struct sim *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].ctx)
            mdapl_ctx_close(s->rank[i].ctx);
    SIM_CHECK(s, fake_not_ready() == 0);
    SIM_CHECK(s, fake_stop() == 0 || s->unclosed);
    SIM_CHECK(s, sim_settled(s));
    free_kept(s);
}

void sim_leave(struct sim *s, int rank)
{
    s->rank[rank].ctx = NULL;
}

uint64_t sim_sum(const struct sim *s, size_t offset)
{
    uint64_t n = 0;

    for (int i = 0; i < s->n; i++)
        if (s->rank[i].ctx)
            n += *(uint64_t *)(void *)((char *)mdapl_ctx_stats(s->rank[i].ctx) + offset);
    return n;
}
