/* SPDX-License-Identifier: MIT */
#include "ia.h"

#include "cfg.h"
#include "clock.h"
#include "dat_path_extensions.h"
#include "ep.h"
#include "err.h"
#include "min.h"
#include "list.h"
#include "log.h"
#include "channel.h"
#include "vbuf.h"
#include "why.h"
#include "window.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    REGISTRY_START = 64,     /* entries of dat.conf that the first array holds */
    EVD_MIN = 256,           /* entries of the connection and CR EVDs at least */
    EVENTS_OF_STREAM = 2,    /* in the queue at once: ESTABLISHED and DISCONNECTED; of a path:
                              * ARMED and MIGRATED */
    ASYNC_MIN = 8,           /* entries of the asynchronous EVD */
    ASYNC_MAX = 1024,
    DTO_EVD_MIN = 512,       /* entries of a DTO EVD, and at most of the first one */
    DTO_EVD_MAX = 1 << 16,
    DTO_EVD_LEAST = 8,       /* what is made for fewer is refused when it is made */
    QUAL_FIRST = 1024,       /* connection qualifiers that every provider takes (docs/dat.md, 10) */
    QUAL_LAST = 64535,
    SUSPECT_MS = 1000,       /* without a DOUBT for so long, a rail is OPEN again */
    ALARM_ENTRIES = 8,       /* one ends a sleep; an overflow of the others does no harm */
    EP_EXTRA = 2,            /* receives of an EP beyond the window */
};

const char *mdapl_dapl_dat_text(const struct mdapl_dapl_ia *ia, DAT_RETURN ret, char buf[96])
{
    const char *major = NULL, *minor = NULL;

    if (ia->dat->dat_strerror(ret, &major, &minor) != DAT_SUCCESS)
        snprintf(buf, 96, "DAT status 0x%x", (unsigned)ret);
    else if (minor && *minor)
        snprintf(buf, 96, "%s, %s", major, minor);
    else
        snprintf(buf, 96, "%s", major);
    return buf;
}

static const char *dat_conf(void)
{
    const char *file = getenv("DAT_OVERRIDE");

    return file ? file : "/etc/dat.conf";
}

/* -- which adapter ---------------------------------------------------------------------------- */

/* Up to max entries of dat.conf, in its order; the caller frees the array. NULL: none, or memory is
 * out. */
static DAT_PROVIDER_INFO *registry_list(const struct mdapl_dapl_ia *ia, DAT_COUNT max,
                                        DAT_COUNT *n_p)
{
    DAT_PROVIDER_INFO *info = calloc((size_t)max, sizeof(*info));
    DAT_PROVIDER_INFO **list = calloc((size_t)max, sizeof(*list));
    bool ok = info && list;

    for (DAT_COUNT i = 0; ok && i < max; i++)
        list[i] = &info[i];
    if (!ok || ia->dat->dat_registry_list_providers(max, n_p, list) != DAT_SUCCESS) {
        free(info);
        info = NULL;
    }
    free(list);
    return info;
}

/* All entries of dat.conf, in its order; the caller frees the array. NULL as registry_list(). */
static DAT_PROVIDER_INFO *registry(const struct mdapl_dapl_ia *ia, DAT_COUNT *n_p)
{
    DAT_COUNT max = REGISTRY_START;
    DAT_PROVIDER_INFO *info = registry_list(ia, max, n_p);

    /* The array is full, so there may be more entries than it holds. */
    while (info && *n_p >= max) {
        free(info);
        max *= 2;
        info = registry_list(ia, max, n_p);
    }
    return info;
}

/* The maximum number of streams of all ranks to this one, on one rail. */
static uint64_t max_streams(const struct mdapl_dapl_ia *ia)
{
    return (uint64_t)mdapl_ctx_job(ia->ctx)->size * (uint64_t)mdapl_ctx_cfg(ia->ctx)->streams;
}

/* Entries of the asynchronous EVD: as many as events of paths may arrive while this rank makes no
 * progress. The provider's limit is not known yet, so they are few. */
static DAT_COUNT async_entries(const struct mdapl_dapl_ia *ia)
{
    uint64_t events = max_streams(ia) * EVENTS_OF_STREAM;

    return (DAT_COUNT)(events > ASYNC_MIN ? mdapl_min(events, ASYNC_MAX) : ASYNC_MIN);
}

/* What an EP is made for: as the knobs say, but no more than the adapter has, of which the
 * completions of one EP are in one queue. A rank of a large job gets as much from all peers
 * together as one of a small job. */
static void size_eps(struct mdapl_dapl_ia *ia)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(ia->ctx);
    struct mdapl_dapl_ia_limits *max = &ia->max;
    uint64_t share = mdapl_max((uint64_t)cfg->sr_total / max_streams(ia),
                               MDAPL_WINDOW_SHORT);
    uint32_t room = (uint32_t)mdapl_max(max->evd_qlen, DTO_EVD_LEAST);

    max->requests = (uint32_t)mdapl_min((uint64_t)cfg->ep_requests,
                                        mdapl_min(max->dtos, room / 2));
    max->window = (uint32_t)mdapl_min(mdapl_min((uint64_t)cfg->sr_window, share),
                                      mdapl_min(max->dtos, room - max->requests) - EP_EXTRA);
}

static DAT_RETURN open_name(struct mdapl_dapl_ia *ia, const char *name)
{
    ia->async_evd = DAT_HANDLE_NULL;
    if (name != ia->name)
        snprintf(ia->name, sizeof(ia->name), "%s", name);
    errno = 0;
    return ia->dat->dat_ia_openv(ia->name, async_entries(ia), &ia->async_evd, &ia->handle,
                                 DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_FALSE);
}

static int open_named(struct mdapl_dapl_ia *ia, const char *name)
{
    char why[MDAPL_WHY];
    DAT_RETURN ret = open_name(ia, name);

    if (ret == DAT_SUCCESS)
        return 0;
    if (DAT_GET_TYPE(ret) != DAT_GET_TYPE(DAT_PROVIDER_NOT_FOUND))
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENODEV, "IA %s of %s does not open: %s. %s",
                             name, dat_conf(), mdapl_dapl_why(ia, ret, why),
                             mdapl_dapl_why_remedy(errno));
    return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENODEV,
                         "IA %s: no line of %s has this name, or the provider library in that "
                         "line cannot be loaded. Set MPIR_CVAR_DAPL_IA to a name of that file, "
                         "or DAT_OVERRIDE to the right file", name, dat_conf());
}

/* The error when no entry opens: the reason of each, and the remedy for the last. */
static int none_opens(struct mdapl_dapl_ia *ia, int n, const char *reasons, int cause)
{
    if (access(dat_conf(), R_OK))
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENODEV,
                             "%s cannot be read (%s), so no interface adapter is known. Write one "
                             "(docs/provider.md has a line to copy) or set DAT_OVERRIDE to it",
                             dat_conf(), strerror(errno));
    if (n == 0)
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENODEV,
                             "%s has no line of an interface adapter. Write one "
                             "(docs/provider.md has a line to copy) or set DAT_OVERRIDE to another "
                             "file", dat_conf());
    return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENODEV,
                         "none of the %d interface adapters of %s opens: %s. %s", n, dat_conf(),
                         reasons, mdapl_dapl_why_remedy(cause));
}

static int open_first(struct mdapl_dapl_ia *ia)
{
    char reasons[512] = "", why[MDAPL_WHY];
    DAT_COUNT n = 0;
    DAT_PROVIDER_INFO *info = registry(ia, &n);
    size_t at = 0;
    int cause = 0, found = -ENODEV;

    for (DAT_COUNT i = 0; info && i < n && found; i++) {
        DAT_RETURN ret = open_name(ia, info[i].ia_name);

        found = ret == DAT_SUCCESS ? 0 : -ENODEV;
        if (found && at < sizeof(reasons))
            at += (size_t)snprintf(reasons + at, sizeof(reasons) - at, "%s%s: %s", i ? "; " : "",
                                   info[i].ia_name, mdapl_dapl_why(ia, ret, why));
        cause = errno;
    }
    free(info);
    return found ? none_opens(ia, n, reasons, cause) : 0;
}

/* -- limits ----------------------------------------------------------------------------------- */

/* The value of the attribute of this name among n; "": it has none. */
static const char *named(const DAT_NAMED_ATTR *attr, DAT_COUNT n, const char *name)
{
    for (DAT_COUNT i = 0; attr && i < n; i++)
        if (attr[i].name && strcmp(attr[i].name, name) == 0)
            return attr[i].value ? attr[i].value : "";
    return "";
}

/* How many ports the paths of an adapter may use; 0: the provider has no path extension. */
static uint32_t ports_of(const DAT_PROVIDER_ATTR *prov)
{
    const DAT_NAMED_ATTR *attr = prov->provider_specific_attr;
    DAT_COUNT n = prov->num_provider_specific_attr;
    long ports = strtol(named(attr, n, DAT_PATH_ATTR_PORTS), NULL, 10);

    if (!*named(attr, n, DAT_PATH_ATTR))
        return 0;
    return ports < 1 ? 1 : (uint32_t)mdapl_min((uint64_t)ports, DAT_PATH_MAX_PORT);
}

static int query(struct mdapl_dapl_ia *ia)
{
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR prov;
    DAT_RETURN ret;
    char text[96];

    /* Zeros, because providers do not write fields that they do not know (docs/dat.md, 1). */
    memset(&attr, 0, sizeof(attr));
    memset(&prov, 0, sizeof(prov));
    ret = ia->dat->dat_ia_query(ia->handle, NULL, DAT_IA_FIELD_ALL, &attr,
                                DAT_PROVIDER_FIELD_ALL, &prov);
    if (ret != DAT_SUCCESS || !attr.ia_address_ptr)
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -EIO, "IA %s cannot be queried: %s", ia->name,
                             mdapl_dapl_dat_text(ia, ret, text));
    ia->addr_len = ((struct sockaddr *)attr.ia_address_ptr)->sa_family == AF_INET6
                       ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    memcpy(ia->addr, attr.ia_address_ptr, ia->addr_len);
    ia->max = (struct mdapl_dapl_ia_limits){
        .dtos = (uint32_t)mdapl_min((uint64_t)attr.max_dto_per_ep, 1 << 14),
        .reads = (uint32_t)mdapl_min((uint64_t)attr.max_rdma_read_per_ep_out, 16),
        .reads_in = (uint32_t)mdapl_min((uint64_t)attr.max_rdma_read_per_ep_in, 16),
        .recv_segs = attr.max_iov_segments_per_dto < 2 ? 1 : 2,
        .evd_qlen = (uint32_t)attr.max_evd_qlen,
        .priv = (uint32_t)prov.max_private_data_size,
        .message = attr.max_message_size,
        .rdma = attr.max_rdma_size,
        .lmr = attr.max_lmr_block_size,
        .lmrs = (uint32_t)attr.max_lmrs,
        .ports = ports_of(&prov),
        .ordered = strcmp(named(attr.vendor_attr, attr.num_vendor_attr,
                                "DAT_PLACEMENT_ORDER"), "TRUE") == 0,
        /* iWARP completes a write when its bytes have been handed to the connection. */
        .placed = !prov.rdma_write_for_rdma_read_req,
    };
    return 0;
}

/* -- DAT objects ------------------------------------------------------------------------------ */

static int psp_create(struct mdapl_dapl_ia *ia)
{
    DAT_RETURN ret = DAT_CONN_QUAL_IN_USE;
    uint32_t span = QUAL_LAST - QUAL_FIRST + 1;
    /* A rail that is opened again keeps its qualifier if that is free: peers have it. */
    uint32_t at = ia->qual ? (uint32_t)ia->qual - QUAL_FIRST : (uint32_t)getpid() % span;
    char why[MDAPL_WHY];

    for (uint32_t i = 0; i < span; i++) {
        ia->qual = QUAL_FIRST + (at + i) % span;
        errno = 0;
        ret = ia->dat->dat_psp_create(ia->handle, ia->qual, ia->cr_evd, DAT_PSP_CONSUMER_FLAG,
                                      &ia->psp);
        if (DAT_GET_TYPE(ret) != DAT_GET_TYPE(DAT_CONN_QUAL_IN_USE))
            break;
    }
    if (ret == DAT_SUCCESS)
        return 0;
    return mdapl_err_set(mdapl_ctx_err(ia->ctx), -EADDRINUSE,
                         "IA %s cannot listen on connection qualifier %llu: %s. %s", ia->name,
                         (unsigned long long)ia->qual, mdapl_dapl_why(ia, ret, why),
                         mdapl_dapl_why_remedy(errno));
}

/* The provider has refused to make an object: sets the line, with the cause from errno. -ENOMEM. */
static int refused(const struct mdapl_dapl_ia *ia, const char *what, DAT_RETURN ret)
{
    const char *remedy = mdapl_dapl_why_remedy(errno);
    char why[MDAPL_WHY];

    return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENOMEM, "IA %s refuses %s: %s. %s", ia->name,
                         what, mdapl_dapl_why(ia, ret, why), remedy);
}

static int evd_create(struct mdapl_dapl_ia *ia, uint32_t qlen, DAT_EVD_FLAGS flags,
                      DAT_EVD_HANDLE *evd_p)
{
    DAT_COUNT entries = (DAT_COUNT)mdapl_min(qlen, ia->max.evd_qlen);
    char what[64];
    DAT_RETURN ret;

    errno = 0;
    ret = ia->dat->dat_evd_create(ia->handle, entries, ia->cno, flags, evd_p);
    if (ret == DAT_SUCCESS && !(flags & DAT_EVD_SOFTWARE_FLAG))
        ret = ia->dat->dat_evd_disable(*evd_p);
    if (ret == DAT_SUCCESS)
        return 0;
    snprintf(what, sizeof(what), "an event dispatcher of %u entries", qlen);
    return refused(ia, what, ret);
}

/* Entries of the connection and CR EVDs: enough for the events that arrive while this rank makes no
 * progress, which are a request of each peer, or ESTABLISHED and DISCONNECTED of each stream. */
static uint32_t cm_entries(const struct mdapl_dapl_ia *ia)
{
    uint64_t events = max_streams(ia) * EVENTS_OF_STREAM;

    return (uint32_t)mdapl_min(events > EVD_MIN ? events : EVD_MIN, ia->max.evd_qlen);
}

static int dto_evd_create(struct mdapl_dapl_ia *ia, uint64_t entries)
{
    struct mdapl_dapl_dto_evd *dto = &ia->dto[ia->n_dto];
    int rc;

    dto->used = 0;
    dto->burst = 1;
    dto->room = (uint32_t)mdapl_min(entries > DTO_EVD_MIN ? entries : DTO_EVD_MIN,
                                    ia->max.evd_qlen);
    rc = evd_create(ia, dto->room, DAT_EVD_DTO_FLAG, &dto->handle);
    ia->n_dto += rc == 0;
    return rc;
}

/* Entries of the first DTO EVD: for the EPs to all ranks of the job, at most DTO_EVD_MAX. */
static uint64_t dto_entries(const struct mdapl_dapl_ia *ia)
{
    uint64_t per_ep = (uint64_t)ia->max.window + ia->max.requests + EP_EXTRA;

    return mdapl_min(max_streams(ia) * per_ep, DTO_EVD_MAX);
}

static int make_objects(struct mdapl_dapl_ia *ia)
{
    DAT_RETURN ret;
    int rc;

    errno = 0;
    ret = ia->dat->dat_pz_create(ia->handle, &ia->pz);
    if (ret != DAT_SUCCESS)
        return refused(ia, "a protection zone", ret);
    /* Before the event queues: with Debian's providers a CNO that is attached later is not notified
     * of transfers. */
    ret = ia->dat->dat_cno_create(ia->handle, DAT_OS_WAIT_PROXY_AGENT_NULL, &ia->cno);
    if (ret != DAT_SUCCESS)
        return refused(ia, "a notification object", ret);
    rc = dto_evd_create(ia, dto_entries(ia));
    if (!rc)
        rc = evd_create(ia, cm_entries(ia), DAT_EVD_CONNECTION_FLAG, &ia->conn_evd);
    if (!rc)
        rc = evd_create(ia, cm_entries(ia), DAT_EVD_CR_FLAG, &ia->cr_evd);
    return rc ? rc : psp_create(ia);
}

int mdapl_dapl_ia_make_alarm(struct mdapl_dapl_ia *ia)
{
    ia->alarmed = true;
    return evd_create(ia, ALARM_ENTRIES, DAT_EVD_SOFTWARE_FLAG, &ia->alarm_evd);
}

/* Queries the limits of an adapter that has been opened, and makes its DAT objects. */
static int equip(struct mdapl_dapl_ia *ia)
{
    int rc = query(ia);

    if (rc)
        return rc;
    size_eps(ia);
    return make_objects(ia);
}

/* ABRUPT: the provider frees all objects of the IA, with async EVD and registrations. libdat2 may
 * return an error of its registry after that; the handle is invalid then. */
static bool is_closed(const struct mdapl_dapl_ia *ia)
{
    const DAT_RETURN gone = DAT_GET_TYPE(DAT_INVALID_HANDLE);

    return ia->dat->dat_ia_close(ia->handle, DAT_CLOSE_ABRUPT_FLAG) == DAT_SUCCESS
           || DAT_GET_TYPE(ia->dat->dat_ia_close(ia->handle, DAT_CLOSE_ABRUPT_FLAG)) == gone;
}

/* Closes the adapter if it is open, with all objects that are left on it. False: the provider does
 * not close it. */
static bool take_down(struct mdapl_dapl_ia *ia)
{
    const struct mdapl_dapl_dat *dat = ia->dat;
    bool closed;

    if (ia->psp)
        dat->dat_psp_free(ia->psp);
    if (ia->cr_evd)
        dat->dat_evd_free(ia->cr_evd);
    if (ia->conn_evd)
        dat->dat_evd_free(ia->conn_evd);
    while (ia->n_dto > 0)
        dat->dat_evd_free(ia->dto[--ia->n_dto].handle);
    if (ia->alarm_evd)
        dat->dat_evd_free(ia->alarm_evd);
    if (ia->cno)
        dat->dat_cno_free(ia->cno);
    if (ia->pz)
        dat->dat_pz_free(ia->pz);
    closed = !ia->handle || is_closed(ia);
    ia->psp = ia->cr_evd = ia->conn_evd = ia->alarm_evd = ia->cno = ia->pz = DAT_HANDLE_NULL;
    ia->handle = closed ? DAT_HANDLE_NULL : ia->handle;
    ia->kept.handle = NULL;
    return closed;
}

int mdapl_dapl_ia_open(struct mdapl_ctx *ctx, const struct mdapl_dapl_dat *dat, const char *name,
                       const struct mdapl_dapl_ia_hooks *hooks, struct mdapl_dapl_ia **ia_p)
{
    struct mdapl_dapl_ia *ia = calloc(1, sizeof(*ia));
    int rc;

    if (!ia)
        return mdapl_err_set(mdapl_ctx_err(ctx), -ENOMEM, "out of memory");
    ia->ctx = ctx;
    ia->dat = dat;
    ia->hooks = *hooks;
    ia->generation = 1;
    rc = *name ? open_named(ia, name) : open_first(ia);
    if (rc) {
        free(ia);
        return rc;
    }
    rc = equip(ia);
    if (rc) {
        mdapl_dapl_ia_close(ia);
        return rc;
    }
    *ia_p = ia;
    return 0;
}

void mdapl_dapl_ia_close(struct mdapl_dapl_ia *ia)
{
    take_down(ia);
    free(ia->ep);
    free(ia);
}

/* -- states of the rail ----------------------------------------------------------------------- */

void mdapl_dapl_rail_step(struct mdapl_dapl_ia *ia, enum mdapl_dapl_rail_event event)
{
    enum mdapl_dapl_rail_state next = mdapl_dapl_rail_next(ia->state, event);

    if (event == MDAPL_DAPL_RAIL_DOUBT)
        ia->quiet_at = mdapl_ctx_now(ia->ctx) + MDAPL_MS(SUSPECT_MS);
    if (next == ia->state)
        return;
    mdapl_log(mdapl_ctx_log(ia->ctx), MDAPL_CONN, "IA %s: %s -> %s", ia->name,
              mdapl_dapl_rail_state_name(ia->state), mdapl_dapl_rail_state_name(next));
    ia->generation += event == MDAPL_DAPL_RAIL_FATAL;
    ia->state = next;
}

int mdapl_dapl_rail_shut(struct mdapl_dapl_ia *ia, bool abandon)
{
    bool all = true;

    if (ia->asleep) {
        mdapl_dapl_evd_alarm(ia);
        return -EAGAIN;
    }
    for (uint32_t i = 0; i < ia->n_ep; i++)
        if (ia->ep[i] && !mdapl_dapl_ep_end(ia->ep[i], abandon))
            all = false;
    if (!all)
        return -EAGAIN;
    all = take_down(ia);
    if (!all && !abandon)
        return -EAGAIN;
    ia->abandoned |= !all;
    ia->handle = DAT_HANDLE_NULL;
    return 0;
}

int mdapl_dapl_rail_reopen(struct mdapl_dapl_ia *ia)
{
    int rc;

    if (ia->state != MDAPL_DAPL_RAIL_DOWN || ia->by_handle.root)
        return -EBUSY;
    mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_REOPEN);
    take_down(ia);
    rc = open_named(ia, ia->name);
    if (!rc)
        rc = equip(ia);
    if (!rc && ia->alarmed)
        rc = mdapl_dapl_ia_make_alarm(ia);
    mdapl_dapl_rail_step(ia, rc ? MDAPL_DAPL_RAIL_REFUSED : MDAPL_DAPL_RAIL_OPENED);
    if (!rc && ia->vbufs && !mdapl_dapl_vbufs_register_again(ia->vbufs)) {
        rc = mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENOMEM, "IA %s does not register the frame "
                           "buffers again. Raise the memory lock limit (ulimit -l)", ia->name);
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_FATAL);
    }
    return rc;
}

/* -- room for completions --------------------------------------------------------------------- */

struct mdapl_dapl_dto_evd *mdapl_dapl_ia_reserve(struct mdapl_dapl_ia *ia, uint32_t n)
{
    struct mdapl_dapl_dto_evd *dto = ia->dto;

    while (dto < ia->dto + ia->n_dto && dto->used + n > dto->room)
        dto++;
    if (dto == ia->dto + ia->n_dto
        && (n > ia->max.evd_qlen || ia->n_dto == MDAPL_DTO_EVDS
            || dto_evd_create(ia, mdapl_min((uint64_t)dto[-1].room * 2, ia->max.evd_qlen))))
        return NULL;
    dto->used += n;
    return dto;
}
