/* SPDX-License-Identifier: MIT */
#include "cm.h"

#include "cm_report.h"
#include "conn.h"
#include "err.h"
#include "log.h"
#include "peer.h"

#include <errno.h>

/* The text of an event, with DAT's name for it; NULL: a number that DAT 2.0 does not have. */
static const char *text_of(DAT_EVENT_NUMBER number)
{
    const struct mdapl_dapl_cm_cause *cause = mdapl_dapl_cm_cause_of(number);

    if (number == DAT_ASYNC_ERROR_EVD_OVERFLOW)
        return "an event queue overflowed (DAT_ASYNC_ERROR_EVD_OVERFLOW)";
    if (number == DAT_ASYNC_ERROR_IA_CATASTROPHIC)
        return "the adapter failed (DAT_ASYNC_ERROR_IA_CATASTROPHIC)";
    return cause ? cause->text : NULL;
}

/* Does the error make the adapter unusable? An overflow loses events, and of these the peers repeat
 * connection requests only. */
static bool ends_adapter(const struct mdapl_dapl_ia *ia, DAT_HANDLE what, DAT_EVENT_NUMBER number)
{
    return number == DAT_ASYNC_ERROR_IA_CATASTROPHIC
           || number == DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR
           || (number == DAT_ASYNC_ERROR_EVD_OVERFLOW && what != ia->cr_evd);
}

/* Raises the fault on every stream of the adapter, and ends a wiring in progress. */
static void adapter_ended(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia,
                          const char *text)
{
    if (!d->failed)
        d->failed = mdapl_err_set(mdapl_ctx_err(d->ctx), -EIO, "IA %s: %s. Check the adapter and "
                                  "the system's log", ia->name, text);
    for (struct mdapl_dapl_peer *p = NULL; (p = mdapl_dapl_peer_next(d, p));)
        for (int k = 0; k < p->n_streams; k++)
            if (p->stream[k].ia == ia)
                mdapl_dapl_raise(&p->stream[k], &(struct mdapl_dapl_fault){
                    .kind = MDAPL_DAPL_FAULT_IA, .stream = k, .text = text });
}

void mdapl_dapl_async_event(void *arg, struct mdapl_dapl_ia *ia, DAT_HANDLE what,
                            struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER number)
{
    struct mdapl_dapl_chan *d = arg;
    const char *text = text_of(number);

    if (!text || d->closing)
        return;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_WARN, "IA %s: %s", ia->name, text);
    if (ep)
        mdapl_dapl_cm_lost(mdapl_dapl_conn_of(ep), number);
    else if (number == DAT_ASYNC_ERROR_TIMED_OUT)
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_DOUBT);
    else if (ends_adapter(ia, what, number)) {
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_FATAL);
        adapter_ended(d, ia, text);
    }
}
