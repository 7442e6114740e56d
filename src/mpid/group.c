/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "log.h"
#include "siphash.h"
#include "x25519.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Process groups of other jobs, as groups of the context.
 *
 * CH3 sends a process group as a text: its id, its size, and for each rank what connects to it. Any
 * process that knows a group may pass its text on, as spawned jobs learn of each other through
 * their parent. So the text has what all may know: the business cards, and, behind that of rank 0,
 * the job's id in its context and its public key. The key of two groups is what X25519 makes of the
 * secret of one and the public key of the other: it is the same in all processes of both, whichever
 * way these have learnt of each other, and no third job can compute it.
 *
 * CH3 closes a VC by agreement of both ends. Then both remove their peer, as soon as every frame
 * has been acknowledged in both directions, so neither takes the end of the connection for a loss.
 */
enum {
    SETTLE_MS = 2000,            /* how long the removal of a peer waits for acknowledgements */
    HEX = 2 * MDAPL_X25519_BYTES
};

/* A peer, or a whole group, that is being removed. */
struct mdapl_ch3_removal {
    struct mdapl_ch3_removal *next;
    struct mdapl_group *group;
    struct mdapl_peer *peer;     /* NULL: all of the group */
    uint64_t limit;              /* time at which it is not waited for acknowledgements any more */
};

/* -- the job's keys ---------------------------------------------------------------------------- */

void mdapl_ch3_group_set_job(struct mdapl_ch3_glue *g, uint32_t id, const uint8_t *key)
{
    mdapl_ctx_set_job(g->ctx, id, key);
    for (uint8_t half = 0; half < 2; half++)
        mdapl_siphash(key, &half, 1, g->secret + 16 * half);
}

/* The key of this job and the group with this id and public key. Both jobs compute the same. */
static void pair_key(const struct mdapl_ch3_glue *g, uint32_t id, const uint8_t *public,
                     uint8_t key[MDAPL_KEY_BYTES])
{
    uint32_t mine = mdapl_ctx_job(g->ctx)->id;
    struct {
        uint8_t rest[16];
        uint32_t lower, higher;
    } text;
    uint8_t shared[MDAPL_X25519_BYTES];

    mdapl_x25519(shared, g->secret, public);
    memcpy(text.rest, shared + 16, 16);
    text.lower = mine < id ? mine : id;
    text.higher = mine < id ? id : mine;
    mdapl_siphash(shared, &text, sizeof(text), key);
}

/* -- the text ---------------------------------------------------------------------------------- */

/* Appends id and public key to the card of rank 0. buf has room for them. */
static size_t put_keys(const struct mdapl_ch3_glue *g, char *buf)
{
    uint8_t public[MDAPL_X25519_BYTES];
    int n = sprintf(buf, "%c%08x.", mdapl_ch3_keys_follow, mdapl_ctx_job(g->ctx)->id);

    mdapl_x25519_public(public, g->secret);
    for (int i = 0; i < MDAPL_X25519_BYTES; i++)
        n += sprintf(buf + n, "%02x", public[i]);
    return (size_t)n;
}

/* pg->connInfoToString of this job's process group: *text_p, which the caller frees, has *len_p
 * bytes. */
int mdapl_ch3_group_text(char **text_p, int *len_p, MPIDI_PG_t *pg)
{
    const struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    size_t len = strlen(pg->id) + 16 + HEX + 16;
    char *at;
    int mpi_errno = MPI_SUCCESS;

    *text_p = NULL;
    *len_p = 0;
    for (int i = 0; i < pg->size; i++)
        len += strlen(pg->ch.cards[i]) + 1;
    at = MPL_malloc(len, MPL_MEM_STRINGS);
    if (!at) {
        MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        return mpi_errno;
    }
    *text_p = at;
    at += sprintf(at, "%s", (const char *)pg->id) + 1;
    at += sprintf(at, "%d", pg->size) + 1;
    for (int i = 0; i < pg->size; i++) {
        at += sprintf(at, "%s", pg->ch.cards[i]);
        if (i == 0)
            at += put_keys(g, at);
        at++;
    }
    *len_p = (int)(at - *text_p);
    return mpi_errno;
}

static bool get_keys(MPIDI_PG_t *pg, uint32_t *id_p, uint8_t public[MDAPL_X25519_BYTES])
{
    char text[MDAPL_CARD_MAX + 16 + HEX], hex[HEX + 1];
    const char *at;

    if (mdapl_ch3_cards_of_other(pg, 0, text, sizeof(text)))
        return false;
    at = strchr(text, mdapl_ch3_keys_follow);
    if (!at || sscanf(at + 1, "%8" SCNx32 ".%64[0-9a-f]", id_p, hex) != 2)
        return false;
    for (int i = 0; i < MDAPL_X25519_BYTES; i++)
        if (sscanf(hex + 2 * i, "%2hhx", &public[i]) != 1)
            return false;
    return true;
}

/* -- adding ------------------------------------------------------------------------------------ */

/* group->near of a group whose processes may be anywhere, and add this one's at another time. */
static bool nowhere_near(void *owner, int rank)
{
    (void)owner, (void)rank;
    return false;
}

/* 0; -EAGAIN: a group with this id is still being removed; another negative errno. */
static int add(struct mdapl_ch3_glue *g, MPIDI_PG_t *pg)
{
    struct mdapl_group args = { .size = pg->size, .card = mdapl_ch3_cards_get, .owner = pg,
                                .near = pg->ch.met ? NULL : nowhere_near };
    uint8_t public[MDAPL_X25519_BYTES];
    int rc;

    if (!get_keys(pg, &args.id, public))
        return -EPROTO;
    pair_key(g, args.id, public, args.key);
    rc = mdapl_group_add(g->ctx, &args, &pg->ch.group);
    return rc == -EEXIST && g->removals ? -EAGAIN : rc;
}

/* Adds the groups that CH3 has made since the last call and that can be added now. */
static void add_new(struct mdapl_ch3_glue *g)
{
    MPIDI_PG_iterator each;
    MPIDI_PG_t *pg;

    g->new_groups = 0;
    MPIDI_PG_Get_iterator(&each);
    for (MPIDI_PG_Get_next(&each, &pg); pg; MPIDI_PG_Get_next(&each, &pg)) {
        int rc = pg->ch.group || pg->ch.refused || !pg->connData ? 0 : add(g, pg);

        g->new_groups += rc == -EAGAIN;
        pg->ch.refused = rc && rc != -EAGAIN;
        if (pg->ch.refused)
            mdapl_log(mdapl_ctx_log(g->ctx), MDAPL_WARN, "the job %s of %d ranks cannot be reached:"
                      " %s. Use the same installation everywhere", (const char *)pg->id, pg->size,
                      rc == -EPROTO ? "its business card has no key" : strerror(-rc));
    }
}

void mdapl_ch3_group_add_new(struct mdapl_ch3_glue *g)
{
    if (g->new_groups == 0 || !g->ctx)
        return;
    mdapl_ch3_group_finish_removals(g);
    add_new(g);
}

int MPIDI_CH3_PG_Init(MPIDI_PG_t *pg)
{
    pg->ch = (struct mdapl_ch3_pg){ .met = mdapl_ch3_glue.meetings > 0 };
    mdapl_ch3_glue.new_groups++;
    return MPI_SUCCESS;
}

/* -- removing ---------------------------------------------------------------------------------- */

static void begin_removal(struct mdapl_group *group, struct mdapl_peer *peer)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    struct mdapl_ch3_removal *r = MPL_malloc(sizeof(*r), MPL_MEM_OTHER), **end = &g->removals;

    if (!r)
        return;                  /* it is freed with the context */
    *r = (struct mdapl_ch3_removal){ NULL, group, peer,
                                     mdapl_ctx_now(g->ctx) + MDAPL_MS(SETTLE_MS) };
    while (*end)
        end = &(*end)->next;
    *end = r;
}

void mdapl_ch3_group_remove_peer(struct mdapl_peer *peer)
{
    peer->owner = NULL;
    begin_removal(mdapl_peer_group(peer), peer);
}

void mdapl_ch3_group_remove(struct mdapl_group *group)
{
    mdapl_group_close(group);
    begin_removal(group, NULL);
}

bool mdapl_ch3_group_is_removed(const struct mdapl_peer *peer)
{
    const struct mdapl_ch3_removal *r = mdapl_ch3_glue.removals;

    while (r && r->peer != peer && (r->peer || r->group->index != peer->group))
        r = r->next;
    return r;
}

static bool has_peers(const struct mdapl_ch3_glue *g, const struct mdapl_group *group)
{
    const struct mdapl_ch3_removal *r = g->removals;

    while (r && (!r->peer || r->group != group))
        r = r->next;
    return r;
}

/* True: it has ended. The peers of a group are removed before it. */
static bool step(const struct mdapl_ch3_glue *g, struct mdapl_ch3_removal *r)
{
    if (!r->peer)
        return !has_peers(g, r->group) && mdapl_group_remove(r->group) == MDAPL_DONE;
    if (r->limit > 0 && !mdapl_peer_settled(r->peer) && mdapl_ctx_now(g->ctx) < r->limit)
        return false;
    r->limit = 0;                /* it has begun: the peer may be asked for nothing any more */
    return mdapl_peer_remove(r->peer) == MDAPL_DONE;
}

static void step_removals(struct mdapl_ch3_glue *g)
{
    for (struct mdapl_ch3_removal **at = &g->removals, *r; (r = *at);) {
        if (!step(g, r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        MPL_free(r);
    }
}

void mdapl_ch3_group_poll(struct mdapl_ch3_glue *g)
{
    if (!g->ctx)
        return;
    if (g->removals)
        step_removals(g);
    if (g->new_groups > 0)
        add_new(g);
}

void mdapl_ch3_group_finish_removals(struct mdapl_ch3_glue *g)
{
    for (step_removals(g); g->removals; step_removals(g))
        if (mdapl_progress(g->ctx) == 0)
            mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
}

/* CH3 has destroyed the VCs of the group. */
int MPIDI_CH3_PG_Destroy(MPIDI_PG_t *pg)
{
    if (mdapl_ch3_glue.ctx && pg->ch.group && pg != mdapl_ch3_glue.pg)
        mdapl_ch3_group_remove(pg->ch.group);
    pg->ch.group = NULL;
    return MPI_SUCCESS;
}

/* The context has been closed: nothing of it is left. */
void mdapl_ch3_group_forget(void)
{
    MPIDI_PG_iterator each;
    MPIDI_PG_t *pg;

    MPIDI_PG_Get_iterator(&each);
    for (MPIDI_PG_Get_next(&each, &pg); pg; MPIDI_PG_Get_next(&each, &pg)) {
        pg->ch.group = NULL;
        for (int i = 0; i < pg->size; i++)
            pg->vct[i].ch.peer = NULL;
    }
}
