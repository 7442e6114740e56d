/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_HELLO_H
#define MDAPL_CM_HELLO_H
/*
 * The hellos of connection requests and of their answers, and rejections (PROTOCOL, section 1).
 *
 * Connections of a stream are numbered, and both ends know the number. A request has the number
 * above the highest one that its sender knows. An acceptance has the number of the connection: that
 * of the request, or one above the highest number that its sender knows. So each end knows, when a
 * connection is established, which requests of the other end are older than it.
 */
#include "peer.h"

/* Writes a hello on behalf of the stream. flags: MDAPL_HELLO_REPLY and so on; epoch: its number. */
void mdapl_dapl_cm_hello_put(const struct mdapl_dapl_stream *st, uint8_t flags, uint32_t epoch,
                             uint8_t out[MDAPL_HELLO_BYTES]);
/* Reads and verifies a hello of len bytes (wire.h), of any rank to this one. */
enum mdapl_dapl_hello_verdict mdapl_dapl_cm_hello_get(const struct mdapl_dapl_chan *d,
                                                      const void *priv, size_t len,
                                                      struct mdapl_dapl_hello *h);
/* The same for a request of a group that this process does not have: it may be that of a visitor,
 * which knows the key of an open port. *visitor is then its group, which has not been added. */
enum mdapl_dapl_hello_verdict mdapl_dapl_cm_hello_visitor(struct mdapl_dapl_chan *d,
                                                          const void *priv, size_t len,
                                                          struct mdapl_dapl_hello *h,
                                                          struct mdapl_group *visitor);

/* What a verified request is to the peer that this process has for its sender. A group that has
 * been removed may be added again, and then both ends make new peers; until both have, requests of
 * old peers and to old ones are in flight. The number of a peer, its incarnation, distinguishes
 * them. */
enum mdapl_dapl_hello_fit {
    MDAPL_HELLO_FITS,            /* it is for the peer, or for the one that is to be made */
    MDAPL_HELLO_FORMER,          /* it is for one that has been removed */
    MDAPL_HELLO_EARLY,           /* it is of a new peer, and the one here is still to be removed */
    MDAPL_HELLO_AHEAD,           /* it acknowledges what was never sent */
    MDAPL_HELLO_ELSEWHERE,       /* another channel reaches the rank */
    MDAPL_HELLO_FIT_N
};
enum mdapl_dapl_hello_fit mdapl_dapl_cm_hello_fit(const struct mdapl_group *group,
                                                  const struct mdapl_dapl_hello *h);

/* Reads and verifies the hello of an acceptance of the stream's request in flight. */
bool mdapl_dapl_cm_hello_is_reply(const struct mdapl_dapl_stream *st, const void *priv, size_t len,
                                  struct mdapl_dapl_hello *h);
/* Reads the hello of a rejection of that request: has it this flag? */
bool mdapl_dapl_cm_hello_is_rejection(const struct mdapl_dapl_stream *st, const void *priv,
                                      size_t len, uint8_t flag, struct mdapl_dapl_hello *h);

/* Of two requests that cross, that of the lower group id wins, and within a group that of the lower
 * rank: does the one of this peer? */
bool mdapl_dapl_cm_wins(const struct mdapl_dapl_peer *peer);

/* Rejects a request without a verified hello. why: as in "a request that ..." */
void mdapl_dapl_cm_reject_stranger(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia,
                                   DAT_CR_HANDLE cr, const char *why);
/* Rejects a verified request of the group `from`, with MDAPL_HELLO_BUSY or MDAPL_HELLO_GONE. */
void mdapl_dapl_cm_reject(struct mdapl_dapl_chan *d, const struct mdapl_group *from,
                          DAT_CR_HANDLE cr, uint8_t flag, const struct mdapl_dapl_hello *request);
/* Rejects a ping, and says when connections have carried something (conn.h). */
void mdapl_dapl_cm_answer(struct mdapl_dapl_chan *d, const struct mdapl_group *from,
                          DAT_CR_HANDLE cr, const struct mdapl_dapl_hello *ping);
/* Rejects one that is older or newer than what this process has; counted. why: as in "a
 * request which ..." */
void mdapl_dapl_cm_reject_stale(struct mdapl_dapl_chan *d, const struct mdapl_group *from,
                                DAT_CR_HANDLE cr, uint8_t flag,
                                const struct mdapl_dapl_hello *request, const char *why);

#endif
