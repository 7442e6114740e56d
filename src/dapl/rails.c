/* SPDX-License-Identifier: MIT */
#include "rails.h"

#include "evd.h"

void mdapl_dapl_rails_init(struct mdapl_rails *rails)
{
    *rails = (struct mdapl_rails){ .n = 0 };
    pthread_mutex_init(&rails->alarm.lock, NULL);
}

int mdapl_dapl_rails_start(struct mdapl_rails *rails)
{
    int rc = 0;

    for (int i = 0; !rc && rails->n > 1 && i < rails->n; i++)
        rc = mdapl_ia_make_alarm(rails->ia[i]);
    return rc;
}

void mdapl_dapl_rails_close(struct mdapl_rails *rails)
{
    for (int i = 0; i < rails->n; i++)
        mdapl_ia_close(rails->ia[i]);
    pthread_mutex_destroy(&rails->alarm.lock);
}

/* -- sleeping --------------------------------------------------------------------------------- */

/* A rail that nobody sleeps on has an event. In a thread of its provider's. */
static void wake_sleeper(DAT_PVOID arg, DAT_EVD_HANDLE evd)
{
    struct mdapl_dapl_alarm *alarm = arg;

    (void)evd;
    pthread_mutex_lock(&alarm->lock);
    if (alarm->asleep_on)
        mdapl_evd_alarm(alarm->asleep_on);
    pthread_mutex_unlock(&alarm->lock);
}

static void sleep_on(struct mdapl_dapl_alarm *alarm, const struct mdapl_ia *ia)
{
    pthread_mutex_lock(&alarm->lock);
    alarm->asleep_on = ia;
    pthread_mutex_unlock(&alarm->lock);
}

void mdapl_dapl_rails_wait(struct mdapl_rails *rails, uint64_t ns)
{
    const DAT_OS_WAIT_PROXY_AGENT agent = { &rails->alarm, wake_sleeper };
    struct mdapl_ia *sleeper = rails->ia[0];
    bool quiet = true;

    sleep_on(&rails->alarm, sleeper);
    for (int i = 0; i < rails->n; i++)
        quiet = mdapl_evd_arm(rails->ia[i], rails->ia[i] == sleeper ? NULL : &agent) && quiet;
    if (quiet)
        mdapl_evd_sleep(sleeper, ns);
    sleep_on(&rails->alarm, NULL);
    for (int i = 0; i < rails->n; i++)
        mdapl_evd_disarm(rails->ia[i]);
}
