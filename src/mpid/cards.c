/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Business cards of all ranks, read in MPI_Init: progress, sends and arriving connection requests
 * need them later, and must not ask the launcher, which blocks. A launcher gives one answer at a
 * time to all the ranks of its host, so each question counts size times. The first rank of each
 * group of ranks therefore collects its group's cards in one value, or in several parts where one
 * value is too short, and every rank reads these values.
 */
enum {
    GROUP = 16,                          /* ranks */
    CORES_MAX = 5,                       /* bytes of a set of cores behind a card */
    VALUE_MAX = MDAPL_CARD_MAX + CORES_MAX
};

/* What comes behind each card in a group's value, and between a card and the set of its process's
 * cores; no card has them. */
static const char end_of_card = '+', cores_follow = '~';

static void key_of(int group, int part, char key[32])
{
    snprintf(key, 32, "dapl-cards-%d-%d", group, part);
}

/* The launcher's own value: one card, with its cores. */
static int get_single(struct mdapl_ch3_glue *g, int rank, char *buf, size_t len)
{
    return g->pg->getConnInfo(rank, buf, (int)len, g->pg) == MPI_SUCCESS ? 0 : -EHOSTUNREACH;
}

/* -- putting ---------------------------------------------------------------------------------- */

int mdapl_ch3_cards_put(struct mdapl_ch3_glue *g, int rank, const char *card)
{
    char value[VALUE_MAX];
    uint32_t set;
    int online;

    (void)g;
    mdapl_ch3_cores(&set, &online);
    snprintf(value, sizeof(value), "%s%c%04x", card, cores_follow, set);
    return MPIDI_PG_SetConnInfo(rank, value);
}

static int put_value(int group, int part, const char *value)
{
    char key[32];

    key_of(group, part, key);
    return MPIR_pmi_kvs_put(key, value) == MPI_SUCCESS ? 0 : -EIO;
}

static int end_of_group(const struct mdapl_ch3_glue *g, int first)
{
    return first + GROUP < g->pg->size ? first + GROUP : g->pg->size;
}

/* Puts the cards of the group that begins with rank first. value: room for len bytes. */
static int put_group(struct mdapl_ch3_glue *g, int first, char *value, size_t len)
{
    char card[VALUE_MAX];
    int part = 0, rc = 0;
    size_t at = 0;

    for (int rank = first; !rc && rank < end_of_group(g, first); rank++) {
        rc = get_single(g, rank, card, sizeof(card));
        if (!rc && at + strlen(card) + 2 > len) {
            rc = put_value(first / GROUP, part++, value);
            at = 0;
        }
        if (!rc)
            at += (size_t)snprintf(value + at, len - at, "%s%c", card, end_of_card);
        if (at >= len)
            rc = -ENOSPC;
    }
    return rc ? rc : put_value(first / GROUP, part, value);
}

/* -- reading ---------------------------------------------------------------------------------- */

/* Takes the cards in value, at most up to rank end. Returns the rank after the last one. */
static int take_cards(struct mdapl_ch3_glue *g, int rank, int end, char *value)
{
    for (char *card = value, *stop; rank < end && (stop = strchr(card, end_of_card));
         card = stop + 1) {
        *stop = '\0';
        g->pg->ch.cards[rank] = MPL_strdup(card);
        if (!g->pg->ch.cards[rank])
            break;
        rank++;
    }
    return rank;
}

static int read_group(struct mdapl_ch3_glue *g, int first, char *value, int len)
{
    int end = end_of_group(g, first), rank = first;
    char key[32];

    for (int part = 0; rank < end; part++) {
        int before = rank;

        key_of(first / GROUP, part, key);
        if (MPIR_pmi_kvs_get(first, key, value, len) != MPI_SUCCESS)
            return -EIO;
        rank = take_cards(g, rank, end, value);
        if (rank == before)
            return -EIO;
    }
    return 0;
}

static int read_all(struct mdapl_ch3_glue *g, char *value, int len)
{
    int rc = 0;

    for (int first = 0; !rc && first < g->pg->size; first += GROUP)
        rc = read_group(g, first, value, len);
    return rc;
}

int mdapl_ch3_cards_share(struct mdapl_ch3_glue *g, int rank)
{
    int len = MPIR_pmi_max_val_size(), barrier, rc = 0;
    char *value = MPL_calloc(1, (size_t)len, MPL_MEM_ADDRESS);

    g->pg->ch.cards = MPL_calloc((size_t)g->pg->size, sizeof(char *), MPL_MEM_ADDRESS);
    if (!g->pg->ch.cards || !value)
        rc = -ENOMEM;
    else if (rank % GROUP == 0)
        rc = put_group(g, rank, value, (size_t)len);
    barrier = mdapl_ch3_barrier(g, false);   /* the others wait there, whatever has failed here */
    if (!rc)
        rc = barrier ? barrier : read_all(g, value, len);
    MPL_free(value);
    return rc;
}

int mdapl_ch3_cards_alone(struct mdapl_ch3_glue *g, const char *card)
{
    g->pg->ch.cards = MPL_calloc(1, sizeof(char *), MPL_MEM_ADDRESS);
    if (g->pg->ch.cards)
        g->pg->ch.cards[0] = MPL_strdup(card);
    return g->pg->ch.cards && g->pg->ch.cards[0] ? 0 : -ENOMEM;
}

void mdapl_ch3_cards_free(struct mdapl_ch3_glue *g)
{
    for (int i = 0; g->pg->ch.cards && i < g->pg->size; i++)
        MPL_free(g->pg->ch.cards[i]);
    MPL_free(g->pg->ch.cards);
    g->pg->ch.cards = NULL;
}

/* -- afterwards ------------------------------------------------------------------------------- */

/* CH3 has those of another job in memory: the launcher is not asked. */
int mdapl_ch3_cards_of_other(MPIDI_PG_t *pg, int rank, char *buf, size_t len)
{
    return pg->getConnInfo(rank, buf, (int)len, pg) == MPI_SUCCESS ? 0 : -EHOSTUNREACH;
}

int mdapl_ch3_cards_get(void *owner, int rank, char *buf, size_t len)
{
    MPIDI_PG_t *pg = owner;
    char text[4 * MDAPL_CARD_MAX];
    const char *card = pg->ch.cards ? pg->ch.cards[rank] : text;
    size_t n;

    if (!pg->ch.cards && mdapl_ch3_cards_of_other(pg, rank, text, sizeof(text)))
        return -EHOSTUNREACH;
    n = strcspn(card, (const char[]){ cores_follow, mdapl_ch3_keys_follow, '\0' });

    if (n >= len)
        return -ENOSPC;
    memcpy(buf, card, n);
    buf[n] = '\0';
    return 0;
}

uint32_t mdapl_ch3_cards_cores(const struct mdapl_ch3_glue *g, int rank)
{
    const char *at = strchr(g->pg->ch.cards[rank], cores_follow);

    return at ? (uint32_t)strtoul(at + 1, NULL, 16) : 0;
}
