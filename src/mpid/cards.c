/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "pmi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Business cards, by the dozen. A launcher gives one answer at a time to all the ranks of its host:
 * if each rank asks for each card, MPI_Init lasts as long as size * size answers, which at 128
 * ranks was ten seconds, and connecting one of them. So the first rank of each group of ranks
 * puts its group's cards into one value, and a rank that needs one of them asks for that.
 */
enum {
    GROUP = 16,
    CORES_MAX = 5,                       /* bytes of a set of cores behind a card */
    VALUE_MAX = MDAPL_CARD_MAX + CORES_MAX
};

/* What comes behind each card in a group's value, and between a card and the set of its process's
 * cores; no card has them. */
static const char end_of_card = '+', cores_follow = '~';

static void key_of(int group, char key[32])
{
    snprintf(key, 32, "dapl-cards-%d", group);
}

/* The launcher's own value: one card, with its cores. */
static int get_single(struct mdapl_glue *g, int rank, char *buf, size_t len)
{
    return g->pg->getConnInfo(rank, buf, (int)len, g->pg) == MPI_SUCCESS ? 0 : -EHOSTUNREACH;
}

static char *value_make(int *len_p)
{
    if (PMI_KVS_Get_value_length_max(len_p) != PMI_SUCCESS)
        return NULL;
    return MPL_calloc(1, (size_t)*len_p, MPL_MEM_ADDRESS);
}

/* -- putting ---------------------------------------------------------------------------------- */

int mdapl_cards_put(struct mdapl_glue *g, int rank, const char *card)
{
    char value[VALUE_MAX];
    uint32_t set;
    int online;

    (void)g;
    mdapl_cores(&set, &online);
    snprintf(value, sizeof(value), "%s%c%04x", card, cores_follow, set);
    return MPIDI_PG_SetConnInfo(rank, value);
}

/* Cards that find no room are left empty: they can be had one by one. */
static int collect(struct mdapl_glue *g, int first, char *value, size_t len)
{
    char card[VALUE_MAX];
    size_t at = 0;

    for (int rank = first; rank < first + GROUP && rank < g->pg->size; rank++) {
        size_t left = (size_t)(first + GROUP - rank), n;
        int rc = get_single(g, rank, card, sizeof(card));

        if (rc)
            return rc;
        n = strlen(card);
        if (at + n + left >= len)
            n = 0;
        memcpy(value + at, card, n);
        value[at + n] = end_of_card;
        at += n + 1;
    }
    return 0;
}

static int put_group(struct mdapl_glue *g, int first, const char *kvs)
{
    int len, rc;
    char *value = value_make(&len), key[32];

    rc = value ? collect(g, first, value, (size_t)len) : -ENOMEM;
    key_of(first / GROUP, key);
    if (!rc && (PMI_KVS_Put(kvs, key, value) != PMI_SUCCESS || PMI_KVS_Commit(kvs) != PMI_SUCCESS))
        rc = -EIO;
    MPL_free(value);
    return rc;
}

int mdapl_cards_share(struct mdapl_glue *g, int rank)
{
    char *kvs;
    int barrier, rc = 0;

    g->cards = MPL_calloc((size_t)(g->pg->size + GROUP - 1) / GROUP, sizeof(*g->cards),
                          MPL_MEM_ADDRESS);
    MPIDI_PG_GetConnKVSname(&kvs);
    if (!g->cards)
        rc = -ENOMEM;
    else if (rank % GROUP == 0)
        rc = put_group(g, rank, kvs);
    barrier = mdapl_barrier(g);
    return barrier ? barrier : rc;
}

void mdapl_cards_free(struct mdapl_glue *g)
{
    for (int i = 0; g->cards && i < (g->pg->size + GROUP - 1) / GROUP; i++)
        MPL_free(g->cards[i]);
    MPL_free(g->cards);
    g->cards = NULL;
}

/* -- getting ---------------------------------------------------------------------------------- */

/* The value of a group, asked for at the first call; NULL: the launcher does not give it. */
static const char *group_of(struct mdapl_glue *g, int rank)
{
    int len, group = rank / GROUP;
    char key[32], *kvs, *value;

    if (g->cards[group])
        return g->cards[group];
    value = value_make(&len);
    MPIDI_PG_GetConnKVSname(&kvs);
    key_of(group, key);
    if (value && PMI_KVS_Get(kvs, key, value, len) == PMI_SUCCESS)
        return g->cards[group] = value;
    MPL_free(value);
    return NULL;
}

/* A rank's card and its cores. */
static int value_of(struct mdapl_glue *g, int rank, char value[VALUE_MAX])
{
    const char *card = group_of(g, rank), *end = NULL;

    for (int i = 0; card && (end = strchr(card, end_of_card)) && i < rank % GROUP; i++)
        card = end + 1;
    if (!card || !end || end == card || end - card >= VALUE_MAX)
        return get_single(g, rank, value, VALUE_MAX);
    snprintf(value, VALUE_MAX, "%.*s", (int)(end - card), card);
    return 0;
}

int mdapl_cards_get(void *owner, int rank, char *buf, size_t len)
{
    char value[VALUE_MAX];
    int rc = value_of(owner, rank, value);

    if (rc)
        return rc;
    value[strcspn(value, (const char[]){ cores_follow, '\0' })] = '\0';
    if (strlen(value) >= len)
        return -ENOSPC;
    strcpy(buf, value);
    return 0;
}

uint32_t mdapl_cards_cores(struct mdapl_glue *g, int rank)
{
    char value[VALUE_MAX];
    const char *at = value_of(g, rank, value) == 0 ? strchr(value, cores_follow) : NULL;

    return at ? (uint32_t)strtoul(at + 1, NULL, 16) : 0;
}
