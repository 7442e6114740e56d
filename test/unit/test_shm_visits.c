/* SPDX-License-Identifier: MIT */
/*
 * Visits of ports through shared memory: the process of the port does not know the visitor before.
 * All processes are contexts of this one, but for visitors that die, which are children of it.
 */
#include "unit.h"

#include "cfg.h"
#include "channel.h"
#include "ctx.h"
#include "err.h"
#include "peer.h"
#include "shm.h"
#include "stats.h"
#include "transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORT = 0x1234, SECOND = 0x4321, VISIT = 0xabc0 };
enum { LONG = 200000, ROUNDS = 100000, LIMIT_S = 60, DEATHS = 3 };

static const char port_key[MDAPL_KEY_BYTES] = "key of the port";
static const char wrong_key[MDAPL_KEY_BYTES] = "another's key..";

static uint64_t now;

/* A job of one process, and what it has seen. */
struct process {
    struct mdapl_ctx *ctx;
    struct mdapl_shm_chan *s;
    struct mdapl_peer *last;     /* that has sent a message */
    int got, faults;
    size_t bytes;
    char fault[512];
    char card[MDAPL_CARD_MAX];
};

/* What one process knows of a port: its name. */
struct name {
    uint32_t id;
    const char *key;
    char card[MDAPL_CARD_MAX];
};

/* -- the owner --------------------------------------------------------------------------------- */

static char sink[LONG];

static void read_done(struct mdapl_op *op, int status)
{
    assert_int_equal(status, 0);
    free(op);
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct process *me = owner;
    struct mdapl_op *op = m->rx ? malloc(sizeof(*op)) : NULL;
    struct iovec v = { sink, m->len };

    me->got++;
    me->bytes += m->len;
    me->last = peer;
    if (!op)
        return MDAPL_NEXT_GO;
    op->done = read_done;
    if (mdapl_rx_read(m->rx, &v, 1, op) == MDAPL_DONE)
        read_done(op, 0);
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    struct process *me = owner;

    (void)peer, (void)status;
    me->faults++;
    snprintf(me->fault, sizeof(me->fault), "%s", why);
}

static int job_card(void *owner, int rank, char *buf, size_t len)
{
    (void)rank;
    snprintf(buf, len, "%s", ((struct process *)owner)->card);
    return 0;
}

static int named_card(void *owner, int rank, char *buf, size_t len)
{
    (void)rank;
    snprintf(buf, len, "%s", ((struct name *)owner)->card);
    return 0;
}

/* -- processes --------------------------------------------------------------------------------- */

static void open_job(struct process *me, uint32_t job)
{
    static const struct mdapl_channel *const channels[] = { &mdapl_shm_channel, NULL };
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &cfg,
        .clock = mdapl_clock_manual(&now),
        .job = { .size = 1, .id = job, .key = "key of each job", .card = job_card },
    };

    memset(me, 0, sizeof(*me));
    mdapl_cfg_init(&cfg);
    assert_int_equal(mdapl_ctx_open(&args, &me->ctx, &err), 0);
    me->s = me->ctx->channel[0].state;
    assert_true(mdapl_ctx_card(me->ctx, me->card, sizeof(me->card)) > 0);
    mdapl_probe(me->ctx);
    assert_int_equal(mdapl_wire(me->ctx), MDAPL_DONE);
}

/* Opens a port and writes its name. */
static void open_port(struct process *me, uint32_t id, struct name *name)
{
    struct mdapl_group visitors = { .size = 1, .card = named_card, .owner = name,
                                    .self = { id, 0 } };

    name->id = id;
    name->key = port_key;
    assert_true(mdapl_port_card(me->ctx, name->card, sizeof(name->card)) > 0);
    memcpy(visitors.key, name->key, sizeof(visitors.key));
    assert_int_equal(mdapl_port_open(me->ctx, &visitors), 0);
}

static int visit(struct process *me, struct name *name, uint32_t as, struct mdapl_peer **peer_p)
{
    struct mdapl_group args = { .size = 1, .id = name->id ^ as, .card = named_card, .owner = name,
                                .self = { as, 0 } };
    struct mdapl_group *group;
    int rc;

    memcpy(args.key, name->key, sizeof(args.key));
    assert_int_equal(mdapl_group_add(me->ctx, &args, &group), 0);
    rc = mdapl_group_peer(group, 0, peer_p);
    if (rc)
        assert_int_equal(mdapl_group_remove(group), MDAPL_DONE);
    return rc;
}

static void leave(struct mdapl_peer *peer)
{
    assert_int_equal(mdapl_group_remove(mdapl_peer_group(peer)), MDAPL_DONE);
}

static void done(struct mdapl_op *op, int status)
{
    (void)status;
    free(op);
}

static void send_to(struct mdapl_peer *peer, size_t len)
{
    static char body[LONG];
    struct iovec v = { body, len };
    struct mdapl_msg msg = { "hello", 5, &v, 1, false };
    struct mdapl_op *op = malloc(sizeof(*op));
    int rc;

    op->done = done;
    rc = mdapl_send(peer, &msg, op);
    if (rc)
        done(op, rc);
}

static void a_round(struct process *a, struct process *b)
{
    mdapl_progress(a->ctx);
    if (b)
        mdapl_progress(b->ctx);
    now += MDAPL_US(100);
}

/* Rounds until a counter of one of the two has this value. */
static void until(struct process *a, struct process *b, const int *counter, int value)
{
    for (int n = 0; *counter < value; n++) {
        assert_true(n < ROUNDS);
        a_round(a, b);
    }
}

/* As long as the channel may need to notice anything. */
static void some_time(struct process *a, struct process *b)
{
    for (int n = 0; n < 3000; n++)
        a_round(a, b);
}

static int entries(const struct process *me)
{
    int n = 0;

    for (int i = 0; i < MDAPL_SHM_GUESTS; i++)
        n += atomic_load(&me->s->seg.head->guest[i].state) != 0;
    return n;
}

static bool knows(const struct process *me, uint32_t id)
{
    return mdapl_group_find(me->ctx, id) != NULL;
}

/* -- the world --------------------------------------------------------------------------------- */

struct world {
    struct process host, guest, other;
    struct name port, second;
};

static int make(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    now = MDAPL_SEC(1000);
    open_job(&w->host, 77);
    open_job(&w->guest, 78);
    open_job(&w->other, 79);
    open_port(&w->host, PORT, &w->port);
    *state = w;
    return 0;
}

static void close_job(struct process *me)
{
    if (me->ctx)
        mdapl_ctx_close(me->ctx);
    me->ctx = NULL;
}

static int unmake(void **state)
{
    struct world *w = *state;

    close_job(&w->host);
    close_job(&w->guest);
    close_job(&w->other);
    free(w);
    return 0;
}

/* A visit as it should be: a message there, and one back. */
static void visit_well(struct world *w, struct process *guest, uint32_t as)
{
    int there = w->host.got, back = guest->got;
    struct mdapl_peer *peer;

    assert_int_equal(visit(guest, &w->port, as, &peer), 0);
    send_to(peer, 8);
    until(&w->host, guest, &w->host.got, there + 1);
    assert_int_equal(mdapl_peer_group(w->host.last)->id, as);
    assert_int_equal(mdapl_peer_locate(w->host.last, guest->card), 0);
    send_to(w->host.last, 8);
    until(&w->host, guest, &guest->got, back + 1);
    assert_ptr_equal(guest->last, peer);
}

static void leave_well(struct world *w, struct process *guest)
{
    leave(guest->last);
    leave(w->host.last);
    some_time(&w->host, guest);
}

/* -- tests ------------------------------------------------------------------------------------- */

/* More often than there are entries for guests. */
static void visits_and_answers(void **state)
{
    struct world *w = *state;

    for (uint32_t n = 0; n < 2 * MDAPL_SHM_GUESTS; n++) {
        visit_well(w, &w->guest, VISIT + n % 2);
        send_to(w->host.last, n % 8 ? 100 : LONG);
        send_to(w->guest.last, n % 8 ? 100 : LONG);
        until(&w->host, &w->guest, &w->guest.got, 2 * (int)n + 2);
        until(&w->host, &w->guest, &w->host.got, 2 * (int)n + 2);
        while (!mdapl_peer_settled(w->host.last) || !mdapl_peer_settled(w->guest.last))
            a_round(&w->host, &w->guest);
        leave_well(w, &w->guest);
        assert_int_equal(entries(&w->host) + entries(&w->guest), 0);
    }
    assert_int_equal(w->host.faults + w->guest.faults, 0);
    assert_int_equal(mdapl_ctx_stats(w->host.ctx)->cr_refused, 0);
}

static void two_at_once(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer[2];

    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer[0]), 0);
    assert_int_equal(visit(&w->other, &w->port, VISIT + 1, &peer[1]), 0);
    send_to(peer[0], 8);
    send_to(peer[1], 8);
    until(&w->host, NULL, &w->host.got, 2);
    assert_true(knows(&w->host, VISIT) && knows(&w->host, VISIT + 1));
}

static void two_ports(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer[2];

    open_port(&w->host, SECOND, &w->second);
    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer[0]), 0);
    assert_int_equal(visit(&w->guest, &w->second, VISIT + 1, &peer[1]), 0);
    send_to(peer[0], 8);
    until(&w->host, NULL, &w->host.got, 1);
    assert_int_equal(mdapl_peer_group(w->host.last)->self.group, PORT ^ VISIT);
    send_to(peer[1], 8);
    until(&w->host, NULL, &w->host.got, 2);
    assert_int_equal(mdapl_peer_group(w->host.last)->self.group, SECOND ^ (VISIT + 1));
}

static void port_of_its_own(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    assert_int_equal(visit(&w->host, &w->port, VISIT, &peer), 0);
    send_to(peer, 8);
    until(&w->host, NULL, &w->host.got, 1);
    send_to(w->host.last, 8);
    until(&w->host, NULL, &w->host.got, 2);
    assert_ptr_equal(w->host.last, peer);
}

/* A visit that ends in a refusal, which is counted, and leaves nothing behind. */
static void is_refused(struct world *w, struct mdapl_peer *peer)
{
    send_to(peer, 8);
    until(&w->host, &w->guest, &w->guest.faults, 1);
    assert_non_null(strstr(w->guest.fault, "the port is closed, or has another key"));
    assert_int_equal(mdapl_ctx_stats(w->host.ctx)->cr_refused, 1);
    assert_int_equal(w->host.got + w->host.faults, 0);
    assert_false(knows(&w->host, VISIT));
    leave(peer);
    some_time(&w->host, &w->guest);
    assert_int_equal(entries(&w->host), 0);
    assert_int_equal(mdapl_ctx_stats(w->host.ctx)->cr_refused, 1);
}

static void wrong_key_is_refused(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    w->port.key = wrong_key;
    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), 0);
    is_refused(w, peer);
    w->port.key = port_key;
    visit_well(w, &w->other, VISIT);
}

/* The hello of another process, with the card of a third one. */
static void changed_card_is_refused(void **state)
{
    struct world *w = *state;
    struct mdapl_shm_peer *far;
    struct mdapl_peer *peer;

    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), 0);
    send_to(peer, 8);
    far = mdapl_shm_peer_of(peer);
    memcpy(far->far.head->guest[far->far_inring - far->far.first_guest].hello.card,
           w->other.s->card, sizeof(w->other.s->card));
    is_refused(w, peer);
    assert_int_equal(entries(&w->other), 0);
}

static void closed_port_refuses(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    mdapl_port_close(w->host.ctx, PORT);
    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), 0);
    is_refused(w, peer);
}

/* The port is closed when the message is under way, and when the visitor has been admitted. */
static void port_closes_meanwhile(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    visit_well(w, &w->other, VISIT + 1);
    w->host.got = 0;
    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), 0);
    send_to(peer, 8);
    mdapl_port_close(w->host.ctx, PORT);
    until(&w->host, &w->guest, &w->guest.faults, 1);
    assert_int_equal(w->host.got, 0);
    send_to(w->other.last, 8);
    until(&w->host, &w->other, &w->host.got, 1);
    assert_int_equal(w->other.faults, 0);
}

/* One of the two leaves; the other one has nothing to send. */
static void one_leaves(void **state)
{
    struct world *w = *state;

    visit_well(w, &w->guest, VISIT);
    leave(w->host.last);
    until(&w->host, &w->guest, &w->guest.faults, 1);
    leave(w->guest.last);
    visit_well(w, &w->guest, VISIT);
    leave(w->guest.last);
    until(&w->host, &w->guest, &w->host.faults, 1);
    leave(w->host.last);
    some_time(&w->host, &w->guest);
    assert_int_equal(entries(&w->host) + entries(&w->guest), 0);
}

/* The visitor leaves before the process of the port has looked: it was there for nobody. */
static void leaves_before_it_is_seen(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), 0);
    send_to(peer, 8);
    leave(peer);
    some_time(&w->host, &w->guest);
    assert_int_equal(w->host.got + w->host.faults + entries(&w->host), 0);
    assert_int_equal(mdapl_ctx_stats(w->host.ctx)->cr_refused, 0);
    assert_false(knows(&w->host, VISIT));
}

/* The process of the port closes its context without having looked. */
static void host_closes(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), 0);
    send_to(peer, 8);
    close_job(&w->host);
    until(&w->guest, NULL, &w->guest.faults, 1);
}

static void all_entries_in_use(void **state)
{
    struct mdapl_peer *peer[MDAPL_SHM_GUESTS], *one_more;
    struct world *w = *state;

    for (int i = 0; i < MDAPL_SHM_GUESTS; i++) {
        assert_int_equal(visit(&w->guest, &w->port, VISIT + (uint32_t)i, &peer[i]), 0);
        send_to(peer[i], 8);
    }
    until(&w->host, &w->guest, &w->host.got, MDAPL_SHM_GUESTS);
    assert_int_equal(visit(&w->other, &w->port, SECOND, &one_more), -EHOSTUNREACH);
    leave(peer[7]);
    until(&w->host, &w->guest, &w->host.faults, 1);
    assert_int_equal(mdapl_group_remove(mdapl_group_find(w->host.ctx, VISIT + 7)), MDAPL_DONE);
    visit_well(w, &w->other, SECOND);
}

/* A process of another node or namespace, or that has ended: no peer, and so no wait. */
static void out_of_reach(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;
    struct name far = w->port;
    char *node = strstr(far.card, "shm:");

    assert_non_null(node);
    node[4] = node[4] == '0' ? '1' : '0';
    assert_int_equal(visit(&w->guest, &far, VISIT, &peer), -EHOSTUNREACH);
    snprintf(far.card, sizeof(far.card), "dapl:1:0200/1:host");
    assert_int_equal(visit(&w->guest, &far, VISIT, &peer), -EHOSTUNREACH);
    close_job(&w->host);
    assert_int_equal(visit(&w->guest, &w->port, VISIT, &peer), -EHOSTUNREACH);
}

/* -- visitors that die ------------------------------------------------------------------------- */

enum step { CLAIMED, THERE, SENT, ADMITTED, ANSWERED, STEPS };

/* The child: it makes the visit up to this step. It and its parent take turns by the pipes. */
static void die_at(struct world *w, enum step step, int ready, int go)
{
    struct process me;
    struct mdapl_peer *peer;
    char c = 0;

    alarm(LIMIT_S);
    open_job(&me, 80);
    if (visit(&me, &w->port, VISIT, &peer))
        _exit(1);
    if (step == CLAIMED)         /* the state before THERE */
        atomic_fetch_sub(&mdapl_shm_peer_of(peer)->far.head->guest[0].state, 1);
    if (step >= SENT)
        send_to(peer, 8);
    if (write(ready, &c, 1) != 1 || read(go, &c, 1) != 1)
        _exit(1);
    if (step == ANSWERED)
        until(&me, NULL, &me.got, 1);
    _exit(0);
}

/* Returns when the child has died at this step, and been reaped. */
static void let_die(struct world *w, enum step step)
{
    int ready[2], go[2], status = 0, got = w->host.got;
    pid_t child;
    char c;

    assert_true(pipe(ready) == 0 && pipe(go) == 0);
    child = fork();
    if (child == 0)
        die_at(w, step, ready[1], go[0]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    if (step >= ADMITTED)
        until(&w->host, NULL, &w->host.got, got + 1);
    if (step == ANSWERED)
        send_to(w->host.last, 8);
    assert_int_equal(write(go[1], &c, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(go[0]);
    close(go[1]);
}

/*
 * A segment that is found by its name can still be mapped after its process has ended, so a message
 * that it had sent arrives on such a system and is refused on others.
 */
static void visitor_dies(void **state)
{
    struct world *w = *state;
    struct mdapl_group *group;

    for (int n = 0; n < STEPS * DEATHS; n++) {
        enum step step = (enum step)(n / DEATHS);
        int faults = w->host.faults, got = w->host.got;

        let_die(w, step);
        some_time(&w->host, NULL);
        group = mdapl_group_find(w->host.ctx, VISIT);
        if (step != SENT)
            assert_int_equal(group != NULL, step >= ADMITTED);
        assert_int_equal(w->host.got - got, group != NULL);
        assert_int_equal(w->host.faults - faults, group != NULL);
        if (group)
            assert_int_equal(mdapl_group_remove(group), MDAPL_DONE);
        some_time(&w->host, NULL);
        assert_int_equal(entries(&w->host), 0);
    }
    visit_well(w, &w->guest, VISIT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(visits_and_answers),    TEST(two_at_once),
        TEST(two_ports),             TEST(port_of_its_own),
        TEST(wrong_key_is_refused),  TEST(changed_card_is_refused),
        TEST(closed_port_refuses),   TEST(port_closes_meanwhile),
        TEST(one_leaves),            TEST(leaves_before_it_is_seen),
        TEST(host_closes),           TEST(all_entries_in_use),
        TEST(out_of_reach),          TEST(visitor_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
