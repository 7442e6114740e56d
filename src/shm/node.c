/* SPDX-License-Identifier: MIT */
#include "node.h"

#include "siphash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char tag[] = "shm:";

int mdapl_shm_node_here(uint64_t *node_p)
{
    static const uint8_t key[16] = "mdapl node here";
    char text[512];
    uint8_t digest[16];
    int rc = mdapl_shm_os_node(text, sizeof(text));

    if (rc)
        return rc;
    mdapl_siphash(key, text, strlen(text), digest);
    memcpy(node_p, digest, sizeof(*node_p));
    return 0;
}

int mdapl_shm_card_write(const struct mdapl_shm_card *card, char *buf, size_t len)
{
    int n = snprintf(buf, len, "%s%016" PRIx64 ".%016" PRIx64 ".%s", tag, card->node, card->token,
                     card->ref);

    return (size_t)n < len ? n : -ENOSPC;
}

bool mdapl_shm_card_read(struct mdapl_shm_card *card, const char *text)
{
    const char *at = strstr(text, tag);

    /* 39: MDAPL_SHM_REF_MAX without the zero; '!' begins the next channel's part */
    return at && sscanf(at, "shm:%16" SCNx64 ".%16" SCNx64 ".%39[^!]", &card->node, &card->token,
                        card->ref) == 3;
}
