/* SPDX-License-Identifier: MIT */
#include "mixed.h"

#include <dat2/dat_ib_extensions.h>
#include <string.h>
#include <unistd.h>

enum {
    SENT = 0, RECEIVED = 64 << 10,   /* offsets in a buffer: source of sends and writes; receives */
    TARGET = 128 << 10,          /* of writes */
    SOURCE = 192 << 10,          /* of reads; READ: their destination */
    READ = 256 << 10,
    WORD = 320 << 10,            /* of atomic operations; OLD: their result */
    OLD = 324 << 10,
    STRIDE = 4 << 10,            /* between two requests */
};

enum op { SEND, LATE_SEND, WRITE, READ_BACK, ADD, WRITE_IMM };

struct step {
    bool from_b;
    enum op op;
    uint32_t len;
};

/* LATE_SEND: its receive is posted after all steps. */
static const struct step script[] = {
    { false, SEND, 40 },  { false, WRITE, 100 },    { true, SEND, 50 },    { false, READ_BACK, 64 },
    { false, ADD, 8 },    { false, SEND, 150 },     { true, READ_BACK, 9 }, { true, ADD, 8 },
    { false, WRITE, 7 },  { false, WRITE_IMM, 33 }, { true, WRITE, 20 },    { false, ADD, 8 },
    { false, LATE_SEND, 60 }, { true, SEND, 11 },
};

_Static_assert(sizeof(script) / sizeof(script[0]) == MIXED_STEPS, "mixed.h");

static bool consumes(enum op op)
{
    return op == SEND || op == LATE_SEND || op == WRITE_IMM;
}

/* Byte k of what step i transmits. */
static uint8_t pattern(int i, size_t k)
{
    return (uint8_t)(17 * i + 3 * (int)k + 1);
}

static void fill(uint8_t *to, int i)
{
    for (size_t k = 0; k < script[i].len; k++)
        to[k] = pattern(i, k);
}

static void expect_pattern(const uint8_t *at, int i)
{
    for (size_t k = 0; k < script[i].len; k++)
        assert_int_equal(at[k], pattern(i, k));
}

struct side *mixed_side(struct world *w, bool b)
{
    return b ? &w->b : &w->a;
}

/* Memory that the peer may change by atomic operations. */
static struct words {
    DAT_LMR_HANDLE lmr;
    DAT_RMR_CONTEXT key;
} words[2];

/* Registers a side's WORD with the right for atomic operations. */
static void register_words(struct side *s, struct words *mine)
{
    DAT_REGION_DESCRIPTION region = { .for_va = s->buf + WORD };
    DAT_LMR_CONTEXT local;
    DAT_VLEN len;
    DAT_VADDR addr;
    int priv = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;

    OK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 8, s->pz, (DAT_MEM_PRIV_FLAGS)priv,
                      DAT_VA_TYPE_VA, &mine->lmr, &local, &mine->key, &len, &addr));
}

void mixed_prepare(struct world *w)
{
    memset(w->a.buf, 0, BUF);
    memset(w->b.buf, 0, BUF);
    for (int i = 0; i < MIXED_STEPS; i++) {
        struct side *from = mixed_side(w, script[i].from_b), *to = mixed_side(w, !script[i].from_b);
        size_t at = (size_t)i * STRIDE;

        if (script[i].op == READ_BACK)
            fill(to->buf + SOURCE + at, i);
        else
            fill(from->buf + SENT + at, i);
        if (consumes(script[i].op) && script[i].op != LATE_SEND)
            post_recv(to, RECEIVED + at, STRIDE, 100 + (uint64_t)i);
    }
}

void mixed_post(struct world *w, int i)
{
    const struct step *s = &script[i];
    struct side *from = mixed_side(w, s->from_b), *to = mixed_side(w, !s->from_b);
    size_t at = (size_t)i * STRIDE;
    DAT_LMR_TRIPLET out = seg(from, SENT + at, s->len), in = seg(from, READ + at, s->len),
                    old = seg(from, OLD + (size_t)i * 8, 8);
    DAT_RMR_TRIPLET target = rseg(to, TARGET + at, s->len), source = rseg(to, SOURCE + at, s->len),
                    word = rseg(to, WORD, 8);
    DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    DAT_DTO_COOKIE c = cookie((uint64_t)i);

    word.rmr_context = words[!s->from_b].key;
    switch (s->op) {
    case SEND:
    case LATE_SEND:
        OK(dat_ep_post_send(from->ep, 1, &out, c, flags));
        break;
    case WRITE:
        OK(dat_ep_post_rdma_write(from->ep, 1, &out, c, &target, flags));
        break;
    case READ_BACK:
        OK(dat_ep_post_rdma_read(from->ep, 1, &in, c, &source, flags));
        break;
    case ADD:
        OK(dat_ib_post_fetch_and_add(from->ep, (DAT_UINT64)1, &old, c, &word, flags));
        break;
    case WRITE_IMM:
        OK(dat_ib_post_rdma_write_immed(from->ep, 1, &out, c, &target, (DAT_UINT32)i, flags));
        break;
    }
}

/* Expects the completions of one side: its requests and its receives, each kind in its order. */
static void expect_completions(struct world *w, bool b)
{
    int request = 0, receive = 0;

    for (;;) {
        DAT_EVENT e;
        const DAT_DTO_COMPLETION_EVENT_DATA *d = &e.event_data.dto_completion_event_data;

        while (request < MIXED_STEPS && script[request].from_b != b)
            request++;
        while (receive < MIXED_STEPS
               && (script[receive].from_b == b || !consumes(script[receive].op)))
            receive++;
        if (request == MIXED_STEPS && receive == MIXED_STEPS)
            return;
        e = next_event(mixed_side(w, b)->dto);
        assert_int_equal(d->status, DAT_DTO_SUCCESS);
        if (d->user_cookie.as_64 < 100) {
            assert_int_equal(d->user_cookie.as_64, request);
            request++;
        } else {
            assert_int_equal(d->user_cookie.as_64, 100 + receive);
            assert_int_equal(d->transfered_length, script[receive].len);
            receive++;
        }
    }
}

/* The receive of the late send, and everything that is to be found after all steps. */
void mixed_finish(struct world *w)
{
    uint64_t adds[2] = { 0, 0 }, word;

    for (int i = 0; i < MIXED_STEPS; i++)
        if (script[i].op == LATE_SEND)
            post_recv(mixed_side(w, !script[i].from_b), RECEIVED + (size_t)i * STRIDE, STRIDE,
                      100 + (uint64_t)i);
    post_recv(&w->a, RECEIVED + MIXED_STEPS * STRIDE, STRIDE, MIXED_EXTRA);
    post_recv(&w->b, RECEIVED + MIXED_STEPS * STRIDE, STRIDE, MIXED_EXTRA);
    expect_completions(w, false);
    expect_completions(w, true);
    state_of(&w->a);             /* takes the lock of each side, which orders its memory for TSan */
    state_of(&w->b);
    for (int i = 0; i < MIXED_STEPS; i++) {
        struct side *from = mixed_side(w, script[i].from_b), *to = mixed_side(w, !script[i].from_b);
        size_t at = (size_t)i * STRIDE;

        if (script[i].op == SEND || script[i].op == LATE_SEND)
            expect_pattern(to->buf + RECEIVED + at, i);
        if (script[i].op == WRITE || script[i].op == WRITE_IMM)
            expect_pattern(to->buf + TARGET + at, i);
        if (script[i].op == READ_BACK)
            expect_pattern(from->buf + READ + at, i);
        if (script[i].op != ADD)
            continue;
        memcpy(&word, from->buf + OLD + (size_t)i * 8, sizeof(word));
        assert_int_equal(word, adds[script[i].from_b]++);
    }
    memcpy(&word, w->b.buf + WORD, sizeof(word));
    assert_int_equal(word, adds[false]);
    memcpy(&word, w->a.buf + WORD, sizeof(word));
    assert_int_equal(word, adds[true]);
}

/* -- what the tests do around it --------------------------------------------------------------- */

void mixed_none(DAT_EVD_HANDLE evd)
{
    DAT_EVENT e;

    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(evd, &e));
}

/* Nothing but the migration has happened to the connection; no send has arrived twice. */
void mixed_disconnect(struct world *w)
{
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_CONNECTED);
    assert_int_equal(state_of(&w->b), DAT_EP_STATE_CONNECTED);
    mixed_none(w->a.conn);
    mixed_none(w->b.conn);
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_dto(&w->a, MIXED_EXTRA, DAT_DTO_ERR_FLUSHED);
    expect_dto(&w->b, MIXED_EXTRA, DAT_DTO_ERR_FLUSHED);
    mixed_none(w->a.dto);
    mixed_none(w->b.dto);
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_reset(w->b.ep));
}

/* Sends a command to the adapter of a side, which makes progress meanwhile; its reply. */
const char *mixed_command(struct world *w, bool b, const char *text)
{
    static char reply[SOFTDAT_CONTROL_MAX + 1];
    struct sockaddr_un un;
    socklen_t len = softdat_control_name(&un, getpid(), b);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    ssize_t n;

    assert_int_equal(connect(fd, (struct sockaddr *)&un, len), 0);
    assert_true(send(fd, text, strlen(text), 0) > 0);
    while ((n = recv(fd, reply, SOFTDAT_CONTROL_MAX, MSG_DONTWAIT)) < 0)
        mixed_none(mixed_side(w, b)->conn);
    assert_true(n > 0);
    close(fd);
    reply[n] = '\0';
    return reply;
}

int mixed_set_up(void **state)
{
    struct world *w;

    set_up(state);
    w = *state;
    register_words(&w->a, &words[0]);
    register_words(&w->b, &words[1]);
    return 0;
}

int mixed_tear_down(void **state)
{
    OK(dat_lmr_free(words[0].lmr));
    OK(dat_lmr_free(words[1].lmr));
    return tear_down(state);
}
