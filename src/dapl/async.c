/* SPDX-License-Identifier: MIT */
#include "async.h"

#include "cm.h"
#include "ep.h"
#include "err.h"
#include "log.h"
#include "peer.h"

#include <errno.h>

static const char *text_of(DAT_EVENT_NUMBER number)
{
    switch (number) {
    case DAT_ASYNC_ERROR_EVD_OVERFLOW:
        return "an event queue overflowed";
    case DAT_ASYNC_ERROR_IA_CATASTROPHIC:
        return "the adapter failed";
    case DAT_ASYNC_ERROR_EP_BROKEN:
        return "the endpoint broke";
    case DAT_ASYNC_ERROR_TIMED_OUT:
        return "an operation timed out";
    case DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR:
        return "the provider failed";
    default:
        return NULL;     /* providers deliver events whose numbers were never set */
    }
}

/* Does it leave the adapter unfit for all that it carries? Of events that a queue has lost, only
 * connection requests are repeated, by their callers. */
static bool ends_adapter(const struct mdapl_ia *ia, DAT_HANDLE what, DAT_EVENT_NUMBER number)
{
    return number == DAT_ASYNC_ERROR_IA_CATASTROPHIC
           || number == DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR
           || (number == DAT_ASYNC_ERROR_EVD_OVERFLOW && what != ia->cr_evd);
}

static bool uses(const struct mdapl_dpeer *peer, const struct mdapl_ia *ia)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].ia == ia)
            return true;
    return false;
}

/* Every peer that it carries fails; so does the wiring, when it goes on. */
static void adapter_ended(struct mdapl_dapl *d, const struct mdapl_ia *ia, const char *text)
{
    int size = mdapl_ctx_job(d->ctx)->size;

    if (!d->failed)
        d->failed = mdapl_err_set(mdapl_ctx_err(d->ctx), -EIO, "IA %s: %s. Check the adapter and "
                                  "the system's log", ia->name, text);
    for (int i = 0; i < size; i++)
        if (d->peers[i] && uses(d->peers[i], ia))
            mdapl_dpeer_fail(d->peers[i], -EIO,
                             "IA %s: %s; rank %d on %s cannot be reached any more. Check the "
                             "adapter and the system's log", ia->name, text, i, d->peers[i]->host);
}

void mdapl_async_event(void *arg, struct mdapl_ia *ia, DAT_HANDLE what, struct mdapl_ep *ep,
                       DAT_EVENT_NUMBER number)
{
    struct mdapl_dapl *d = arg;
    const char *text = text_of(number);

    if (!text || d->closing)
        return;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_WARN, "IA %s: %s", ia->name, text);
    if (ep && ep->owner)
        mdapl_cm_lost(ep->owner, text);
    else if (number == DAT_ASYNC_ERROR_TIMED_OUT)
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_DOUBT);
    else if (ends_adapter(ia, what, number)) {
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_FATAL);
        adapter_ended(d, ia, text);
    }
}
