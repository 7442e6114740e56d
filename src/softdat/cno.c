/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <sys/eventfd.h>
#include <unistd.h>

static struct softdat_cno *cno_of(DAT_CNO_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_CNO);
}

static const DAT_RETURN bad_cno = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CNO;

DAT_RETURN softdat_cno_create(DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent,
                              DAT_CNO_HANDLE *cno_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_cno *cno;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    cno = softdat_alloc(sizeof(*cno));
    if (!cno)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    cno->agent = agent;
    cno->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cno->efd < 0) {
        softdat_free(cno);
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_NO_SUBTYPE);
    }
    softdat_lock(ia);
    softdat_handle_init(&cno->h, ia, DAT_HANDLE_TYPE_CNO);
    softdat_unlock(ia);
    *cno_p = cno;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_cno_modify_agent(DAT_CNO_HANDLE handle, DAT_OS_WAIT_PROXY_AGENT agent)
{
    struct softdat_cno *cno = cno_of(handle);

    if (!cno)
        return bad_cno;
    softdat_lock(cno->h.ia);
    cno->agent = agent;
    softdat_unlock(cno->h.ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_cno_query(DAT_CNO_HANDLE handle, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM *param)
{
    struct softdat_cno *cno = cno_of(handle);

    (void)mask;
    if (!cno)
        return bad_cno;
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    param->ia_handle = cno->h.ia;
    param->proxy_type = cno->agent.proxy_agent_func ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE;
    param->proxy.agent = cno->agent;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_cno_free(DAT_CNO_HANDLE handle)
{
    struct softdat_cno *cno = cno_of(handle);
    struct softdat_ia *ia;

    if (!cno)
        return bad_cno;
    ia = cno->h.ia;
    softdat_lock(ia);
    if (cno->users > 0 || cno->waiters > 0) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
    }
    close(cno->efd);
    softdat_handle_end(&cno->h);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_cno_wait(DAT_CNO_HANDLE handle, DAT_TIMEOUT us, DAT_EVD_HANDLE *evd_p)
{
    struct softdat_cno *cno = cno_of(handle);
    uint64_t start = softdat_now(), rest;
    DAT_RETURN ret = DAT_SUCCESS;
    struct softdat_ia *ia;

    if (!cno)
        return bad_cno;
    ia = cno->h.ia;
    softdat_lock(ia);
    for (;;) {
        softdat_progress_blocking(ia);
        if (cno->fired)
            break;
        rest = softdat_wait_left(start, us);
        if (rest == 0) {
            ret = DAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
            break;
        }
        softdat_wait_sleep(ia, cno->efd, &cno->waiters, rest);
    }
    *evd_p = ret == DAT_SUCCESS ? (DAT_EVD_HANDLE)cno->fired : DAT_HANDLE_NULL;
    cno->fired = NULL;
    softdat_wait_end(ia);
    softdat_unlock(ia);
    return ret;
}
