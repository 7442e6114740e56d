/* SPDX-License-Identifier: MIT */
/*
 * The shm channel and a peer that breaks the protocol, or ends: the fault is raised once, after
 * every message that the peer had completed, and no message follows it.
 */
#include "shm_ranks.h"

#include "node.h"
#include "rndv.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- a peer that breaks the protocol ---------------------------------------------------------- */

/* The id that the channel has given to its only long body. */
static uint32_t only_id(const struct rank *me)
{
    uint32_t id = 1;

    while (!mdapl_idmap_find(&me->s->tx_ids, id))
        id++;
    return id;
}

/* A record about a body whose RTS is still queued, because the ring is full: the receiver cannot
 * have its id yet. */
static void record_before_its_rts(void **state, int type, const void *record, size_t len)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    static struct sending s;

    s = (struct sending){ .op.done = ranks_done };
    for (uint32_t i = 0; i < MDAPL_SLOTS; i++)
        assert_int_equal(send_now(a, i, 8), MDAPL_DONE);
    assert_int_equal(send_op(a, MDAPL_SLOTS, LONG, true, &s.op), 0);
    assert_int_equal(*(const uint32_t *)record, only_id(a));
    assert_true(mdapl_shm_tx_put(mdapl_shm_peer_of(b->other), type, record, len, NULL, 0));
    rounds(a, 2);
    assert_true(s.done == 1 && s.status == -EPROTO);
    assert_non_null(strstr(a->fault, "none of this protocol"));
    rounds(b, 4);
    rounds(a, 4);
    assert_int_equal(b->n_announced, MDAPL_SLOTS);
}

enum { FIRST_ID = 1 << 20 };     /* util/idmap.c: slot 0, generation 1 */

static void fin_before_its_rts(void **state)
{
    const struct mdapl_shm_fin fin = { { FIRST_ID }, 1, 0, 0 };

    record_before_its_rts(state, MDAPL_SHM_FIN, &fin, sizeof(fin));
}

/* A FIN of no body, or of more than it has room for. */
static void fin_of_so_many(void **state)
{
    static const uint32_t n[] = { 0, MDAPL_SHM_RNDV_TOGETHER + 1, UINT32_MAX };
    struct pair *p = *state;

    for (int i = 0; i < 3; i++) {
        const struct mdapl_shm_fin fin = { { 0 }, n[i], 0, 0 };

        assert_true(mdapl_shm_tx_put(mdapl_shm_peer_of(p->rank[1].other), MDAPL_SHM_FIN, &fin,
                                     sizeof(fin), NULL, 0));
        rounds(&p->rank[0], 1);
        assert_non_null(strstr(p->rank[0].fault, "none of this protocol"));
        ranks_unmake(state);
        ranks_make_two(state);
        p = *state;
    }
}

static void cts_before_its_rts(void **state)
{
    const struct mdapl_shm_cts cts = { FIRST_ID, 1, 0, 8, MDAPL_SHM_WAYS };

    record_before_its_rts(state, MDAPL_SHM_CTS, &cts, sizeof(cts));
}

/* The sender of the message that is being announced. */
static struct rank *sender;
static uint32_t seen[2];

static enum mdapl_next rewritten(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    const struct mdapl_shm_peer *to = mdapl_shm_peer_of(sender->other);
    uint32_t slot = mdapl_shm_peer_of(peer)->rx.walk.at;

    (void)owner;
    memcpy(&seen[0], m->hdr, sizeof(seen[0]));
    for (uint32_t i = 0; i < MDAPL_FIFO_SLOTS; i++)
        memset(to->far.head->fifo[i].room, 0xbb, MDAPL_LINE_ROOM);
    if (to->tx.in.front) {
        memset(mdapl_shm_slot_at(&to->tx.in, slot)->room, 0xbb, MDAPL_SLOT_ROOM);
        memset(to->tx.in.rest->data, 0xbb, mdapl_shm_peer_of(peer)->rx.data_bytes);
    }
    memcpy(&seen[1], m->hdr, sizeof(seen[1]));
    if (m->rx)
        mdapl_rx_drop(m->rx);
    return MDAPL_NEXT_GO;
}

/* The owner reads a header several times; its sender must not be able to change it meanwhile. */
static void a_header_stays_as_it_is(void **state)
{
    static const size_t lens[] = { 0, 8, 3000, 40000, LONG };
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    sender = a;
    on_message = rewritten;
    for (uint32_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct sending s = { .op.done = ranks_done };

        seen[0] = seen[1] = 0;
        send_op(a, 1000 + i, lens[i], false, &s.op);
        rounds(b, 1);
        assert_int_equal(seen[0], 1000 + i);
        assert_int_equal(seen[1], 1000 + i);
        rounds(a, 1);
    }
    on_message = ranks_on_msg;
}

/* A peer that has failed writes on and rings its doorbell. */
static void no_message_after_the_fault(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct mdapl_shm_peer *to_b = mdapl_shm_peer_of(a->other);

    ranks_use_ring(a);
    send_now(a, 0, 8);
    rounds(b, 1);
    atomic_store(&to_b->tx.in.front->slot[1].word, (uint64_t)2 << 32 | 24 << MDAPL_WORD_HDR
                                                    | MDAPL_SHM_TYPES);
    rounds(b, 1);
    assert_int_equal(b->n_faults, 1);
    send_now(a, 1, 8);
    mdapl_shm_doorbell_ring(to_b);
    rounds(b, 2);
    assert_int_equal(b->n_announced, 1);
    assert_int_equal(b->n_faults, 1);
}

/* -- a peer that ends ------------------------------------------------------------------------- */

/* Of the other process, when it has sent its messages; NULL: nothing more. */
static void (*then)(struct rank *me);

/* Another process that is rank 1: it sends so many messages to rank 0, then waits. */
static pid_t start_other(struct pair *p, int messages)
{
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    int to_child[2], to_parent[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(to_child) | pipe(to_parent), 0);
    ranks_open(p, 0);
    pid = test_fork();
    if (pid == 0) {
        ranks_open(p, 1);
        memcpy(b->card[0], a->card[0], MDAPL_CARD_MAX);
        mdapl_probe(b->ctx);
        assert_int_equal(write(to_parent[1], b->card[1], MDAPL_CARD_MAX), MDAPL_CARD_MAX);
        assert_int_equal(read(to_child[0], &byte, 1), 1);
        assert_int_equal(mdapl_peer_get(b->ctx, 0, &b->other), 0);
        for (int i = 0; i < messages; i++)
            assert_int_equal(send_now(b, (uint32_t)i, 100), MDAPL_DONE);
        if (then)
            then(b);
        assert_int_equal(write(to_parent[1], &byte, 1), 1);
        _exit((int)read(to_child[0], &byte, 1));     /* for ever */
    }
    assert_int_equal(read(to_parent[0], a->card[1], MDAPL_CARD_MAX), MDAPL_CARD_MAX);
    mdapl_probe(a->ctx);
    assert_int_equal(mdapl_peer_get(a->ctx, 1, &a->other), 0);
    assert_int_equal(write(to_child[1], "", 1), 1);
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    close(to_child[0]), close(to_parent[0]), close(to_parent[1]);
    return pid;          /* to_child[1] stays open: the child waits until it is killed */
}

/* Kills it; unreaped, it stays in the process table. */
static void end_other(pid_t pid, bool reap)
{
    siginfo_t info;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | (reap ? 0 : WNOWAIT)), 0);
}

/* Names (os_posix.c) stay behind a killed process; a segment without one does not. */
static void nothing_is_left(const char *text)
{
    struct mdapl_shm_card card;
    struct mdapl_shm_seg gone;

    assert_true(mdapl_shm_card_read(&card, text));
    if (card.ref[0] == '/')
        mdapl_shm_os_segment_remove(card.ref);
    assert_true(mdapl_shm_seg_open(&gone, card.ref, card.token, 1, 2) < 0);
}

/* Does the system report the end of a process before its parent has reaped it? */
static bool ends_are_noticed(void)
{
    int process = mdapl_shm_os_process_open(getpid());

    mdapl_shm_os_process_close(process);
    return process >= 0;
}

static void fault_of(struct pair *p, bool reap)
{
    struct rank *a = &p->rank[0];
    struct sending s = { .op.done = ranks_done };
    pid_t pid = start_other(p, 0);

    assert_int_equal(send_now(a, 0, 8), MDAPL_DONE);
    assert_int_equal(send_op(a, 1, LONG, true, &s.op), 0);
    end_other(pid, reap);
    assert_int_equal(s.done, 0);
    p->now += MDAPL_SEC(1);
    rounds(a, 200);
    assert_true(s.done == 1 && s.status < 0);
    assert_non_null(strstr(a->fault, "lost rank 1"));
    assert_non_null(strstr(a->fault, "the process is gone"));
    assert_int_equal(mdapl_drain(a->ctx), 0);
    assert_int_equal(a->s->n_free_cells, MDAPL_CELLS);
    nothing_is_left(a->card[1]);
    mdapl_ctx_close(a->ctx);
    if (!reap)
        end_other(pid, true);
}

static void a_killed_process(void **state)
{
    struct pair p = { .n = 2, .now = MDAPL_SEC(1000) };

    (void)state;
    fault_of(&p, true);
}

/* When all is delivered in both directions the ranks may end, though not long before this one. */
static void the_end_of_a_job(void **state)
{
    struct pair p = { .n = 2, .now = MDAPL_SEC(1000) };
    struct rank *a = &p.rank[0];
    pid_t pid = start_other(&p, 1);

    (void)state;
    rounds(a, 2);
    assert_int_equal(a->n_announced, 1);
    assert_int_equal(mdapl_drain(a->ctx), 0);
    end_other(pid, true);
    for (int i = 0; i < 19; i++, p.now += MDAPL_MS(100)) {
        rounds(a, 200);
        assert_int_equal(a->n_faults, 0);
    }
    p.now += MDAPL_SEC(1);
    rounds(a, 200);
    assert_int_equal(a->n_faults, 1);
    mdapl_ctx_close(a->ctx);
}

/* A launcher, or a wrapper around the program, may reap its children late. */
static void an_unreaped_process(void **state)
{
    struct pair p = { .n = 2, .now = MDAPL_SEC(1000) };

    (void)state;
    if (!ends_are_noticed())
        SKIP_TEST("this system reports the end of a process only after it is reaped");
    fault_of(&p, false);
}

/* Messages that a process has completed are delivered before its loss, however it ends, and also if
 * it was paused after the first one. */
static void last_messages(enum mdapl_next next, int rounds_before, int taken_before)
{
    enum { MESSAGES = 50 };
    struct pair p = { .n = 2, .now = MDAPL_SEC(1000) };
    struct rank *a = &p.rank[0];
    pid_t pid = start_other(&p, MESSAGES);

    a->next = next;
    rounds(a, rounds_before);
    assert_int_equal(a->n_announced, taken_before);
    end_other(pid, true);
    p.now += MDAPL_SEC(1);
    mdapl_wait(a->ctx, 1000);
    assert_int_equal(a->n_faults, 0);            /* no upcall from a wait */
    rounds(a, 200);
    assert_int_equal(a->n_faults, 1);
    assert_int_equal(a->n_announced, MESSAGES);
    mdapl_ctx_close(a->ctx);
}

static void last_messages_first(void **state)
{
    (void)state;
    last_messages(MDAPL_NEXT_GO, 0, 0);
}

static void last_messages_of_a_paused_peer(void **state)
{
    (void)state;
    last_messages(MDAPL_NEXT_LATER, 200, 1);
}

enum { CLAIMS = 2 };             /* as if another process had ended, too */

static void claim(struct rank *me)
{
    struct mdapl_shm_peer *peer = mdapl_shm_peer_of(me->other);
    uint32_t at;

    atomic_store(&me->s->seg.head->writes, 1);
    for (int i = 0; i < CLAIMS; i++)
        assert_true(mdapl_shm_fifo_claim(&peer->far.head->fifo_ends, &at));
}

/* A process that ends between a claim of a slot and its message does not hold up others for
 * long. */
static void a_slot_of_a_process_that_has_ended(void **state)
{
    struct pair p = { .n = 2, .now = MDAPL_SEC(1000) };
    struct rank *a = &p.rank[0];
    pid_t pid;

    (void)state;
    then = claim;
    pid = start_other(&p, 0);
    then = NULL;
    p.now += MDAPL_SEC(1);
    rounds(a, 200);
    assert_int_equal(a->s->fifo_taken, 0);
    end_other(pid, true);
    for (uint32_t i = 1; i <= CLAIMS; i++) {
        p.now += MDAPL_SEC(1);
        rounds(a, 200);
        assert_int_equal(a->s->fifo_taken, i);
        assert_int_equal(atomic_load(&a->s->seg.head->fifo_ends.taken), i);
    }
    assert_int_equal(a->n_faults, 1);
    mdapl_ctx_close(a->ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fin_before_its_rts), TEST(fin_of_so_many), TEST(cts_before_its_rts),
        TEST(a_header_stays_as_it_is),
        TEST(no_message_after_the_fault), cmocka_unit_test(a_killed_process),
        cmocka_unit_test(the_end_of_a_job),
        cmocka_unit_test(an_unreaped_process),
        cmocka_unit_test(a_slot_of_a_process_that_has_ended),
        cmocka_unit_test(last_messages_first),
        cmocka_unit_test(last_messages_of_a_paused_peer),
    };

    return RUN(tests);
}
