/* SPDX-License-Identifier: MIT */
#include "cm.h"

#include "cm_report.h"
#include "conn.h"
#include "log.h"
#include "peer.h"

/* Does the error make the adapter unusable? An overflow loses events, and of these the peers repeat
 * connection requests only. */
static bool ends_adapter(const struct mdapl_dapl_ia *ia, DAT_HANDLE what, DAT_EVENT_NUMBER number)
{
    return number == DAT_ASYNC_ERROR_IA_CATASTROPHIC
           || number == DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR
           || (number == DAT_ASYNC_ERROR_EVD_OVERFLOW && what != ia->cr_evd);
}

void mdapl_dapl_async_event(void *arg, struct mdapl_dapl_ia *ia, DAT_HANDLE what,
                            struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER number)
{
    struct mdapl_dapl_chan *d = arg;
    const struct mdapl_dapl_cm_cause *cause = mdapl_dapl_cm_cause_of(number);

    if (!cause || d->closing)
        return;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_WARN, "IA %s: %s", ia->name, cause->text);
    if (ep)
        mdapl_dapl_cm_lost(mdapl_dapl_conn_of(ep), number);
    else if (number == DAT_ASYNC_ERROR_TIMED_OUT)
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_DOUBT);
    else if (ends_adapter(ia, what, number))
        mdapl_dapl_rail_fail(d, ia, cause);
}
