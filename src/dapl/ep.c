/* SPDX-License-Identifier: MIT */
#include "ep.h"

#include "cfg.h"
#include "channel.h"
#include "err.h"
#include "min.h"
#include "stats.h"
#include "vbuf.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 80,              /* most requests in a row without an event */
    BATCH_FEW = 16,          /* ... for whose buffers memory is registered on however many EPs */
    UNSIGNALED = 2 * BATCH,  /* ... on all EPs of an adapter together, if they are few */
    RECEIVES = 8,            /* for so many receives an EP has room from the beginning */
    QUIET = 3,               /* calls without a completion after which an idle EP has drained */
    REQUEST = 1 << 16,       /* in a cookie: the DTO is a request */
    INDEX_SHIFT = 17,        /* in a cookie: of the EP's index */
    SERIAL_SHIFT = 40,       /* and of its serial number */
    MAX_EPS = 1 << (SERIAL_SHIFT - INDEX_SHIFT),
};

/* -- cookies ----------------------------------------------------------------------------------- */

/* Finds the EP a free place in ia->ep, and sets its cookie. */
static bool take_place(struct mdapl_dapl_ep *ep, struct mdapl_dapl_ia *ia)
{
    uint32_t i = 0;

    while (i < ia->n_ep && ia->ep[i])
        i++;
    if (i == ia->n_ep) {
        uint32_t n = i ? 2 * i : 8;
        struct mdapl_dapl_ep **more = n <= MAX_EPS ? realloc(ia->ep, n * sizeof(*more)) : NULL;

        if (!more)
            return false;
        memset(more + i, 0, (n - i) * sizeof(*more));
        ia->ep = more;
        ia->n_ep = n;
    }
    ia->ep[i] = ep;
    ep->cookie = (uint64_t)++ia->ep_serial << SERIAL_SHIFT | (uint64_t)i << INDEX_SHIFT;
    return true;
}

static uint32_t place_of(uint64_t cookie)
{
    return (uint32_t)(cookie >> INDEX_SHIFT) & (MAX_EPS - 1);
}

/* Room for `most` posts at a time. False: out of memory. */
static bool posts_init(struct mdapl_dapl_posts *p, uint32_t most)
{
    uint32_t n = 1;

    while (n < most)
        n *= 2;
    *p = (struct mdapl_dapl_posts){ .dto = calloc(n, sizeof(*p->dto)), .mask = n - 1 };
    return p->dto != NULL;
}

/* Twice the room, where so many are posted: all since the oldest one, as posts of one kind complete
 * in order. Not inline, as its registers would be saved for each post. False: out of memory. */
__attribute__((noinline)) static bool posts_grow(struct mdapl_dapl_posts *p, uint32_t posted)
{
    struct mdapl_dapl_posts more = { .mask = 2 * p->mask + 1, .next = p->next };

    more.dto = calloc(more.mask + 1, sizeof(*more.dto));
    if (!more.dto)
        return false;
    for (uint32_t n = p->next - posted; n != p->next; n++)
        more.dto[n & more.mask] = p->dto[n & p->mask];
    free(p->dto);
    *p = more;
    return true;
}

/* What an EP has of memory, and its place; *ep has been zeroed. False: out of memory. */
static bool make_room(struct mdapl_dapl_ep *ep, struct mdapl_dapl_ia *ia, uint32_t req_max)
{
    if (posts_init(&ep->recv, RECEIVES) && posts_init(&ep->req, req_max) && take_place(ep, ia))
        return true;
    free(ep->recv.dto);
    free(ep->req.dto);
    return false;
}

static void give_room_back(struct mdapl_dapl_ep *ep, struct mdapl_dapl_ia *ia)
{
    ia->ep[place_of(ep->cookie)] = NULL;
    free(ep->recv.dto);
    free(ep->req.dto);
}

/* -- making and freeing ------------------------------------------------------------------------ */

static DAT_EP_ATTR ep_attr(const struct mdapl_dapl_ia *ia, uint32_t recv_max, uint32_t req_max)
{
    DAT_EP_ATTR a;

    memset(&a, 0, sizeof(a));
    a.service_type = DAT_SERVICE_TYPE_RC;
    a.max_message_size = ia->max.message;
    a.max_rdma_size = ia->max.rdma;
    a.qos = DAT_QOS_BEST_EFFORT;
    a.recv_completion_flags = DAT_COMPLETION_DEFAULT_FLAG;
    a.request_completion_flags = DAT_COMPLETION_DEFAULT_FLAG;
    a.max_recv_dtos = (DAT_COUNT)recv_max;
    a.max_request_dtos = (DAT_COUNT)req_max;
    a.max_recv_iov = (DAT_COUNT)ia->max.recv_segs;
    a.max_request_iov = 1;
    a.max_rdma_read_in = (DAT_COUNT)ia->max.reads_in;
    a.max_rdma_read_out = (DAT_COUNT)ia->max.reads;
    a.max_rdma_read_iov = 1;
    a.max_rdma_write_iov = 1;
    return a;
}

/* Making an EP has failed: the rail is SUSPECT if that says that the adapter is unusable, and not
 * that something is scarce. */
static void note_failure(struct mdapl_dapl_ia *ia, DAT_RETURN ret)
{
    ia->calls_fail = DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_INTERNAL_ERROR)
                     || ret == (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INVALID_HANDLE
                                            | DAT_INVALID_HANDLE_IA);
    if (ia->calls_fail)
        mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_DOUBT);
}

int mdapl_dapl_ep_init(struct mdapl_dapl_ep *ep, struct mdapl_dapl_ia *ia, uint32_t recv_max,
                       uint32_t req_max)
{
    DAT_EP_ATTR attr = ep_attr(ia, recv_max, req_max);
    struct mdapl_dapl_dto_evd *evd = mdapl_dapl_ia_reserve(ia, recv_max + req_max);
    char text[96];
    DAT_RETURN ret;

    if (!evd)
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENOMEM,
                             "IA %s has no room for the completions of one more endpoint (event "
                             "queues of %u entries at most). Make MPIR_CVAR_DAPL_SR_WINDOW or "
                             "MPIR_CVAR_DAPL_EP_REQUESTS smaller", ia->name, ia->max.evd_qlen);
    memset(ep, 0, sizeof(*ep));
    if (!make_room(ep, ia, req_max)) {
        evd->used -= recv_max + req_max;
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENOMEM, "out of memory");
    }
    ret = ia->dat->dat_ep_create(ia->handle, ia->pz, evd->handle, evd->handle, ia->conn_evd, &attr,
                                 &ep->handle);
    if (ret != DAT_SUCCESS) {
        note_failure(ia, ret);
        give_room_back(ep, ia);
        evd->used -= recv_max + req_max;
        return mdapl_err_set(mdapl_ctx_err(ia->ctx), -ENOMEM,
                             "IA %s refuses an endpoint with %u receives and %u requests: %s",
                             ia->name, recv_max, req_max, mdapl_dapl_dat_text(ia, ret, text));
    }
    ep->ia = ia;
    ep->dto_evd = evd;
    ep->recv_max = recv_max;
    ep->req_max = req_max;
    ep->reads_max = ia->max.reads;
    /* The other slots are for what is posted until the event of the last one comes. */
    ep->batch = mdapl_min(req_max * 5 / 8, BATCH);
    if (mdapl_ctx_cfg(ia->ctx)->suppress == MDAPL_SUPPRESS_OFF)
        ep->batch = 1;
    ep->by_handle.key = (uint64_t)(uintptr_t)ep->handle;
    mdapl_tree_add(&ia->by_handle, &ep->by_handle);
    return 0;
}

void mdapl_dapl_ep_fini(struct mdapl_dapl_ep *ep)
{
    if (ep->handle != DAT_HANDLE_NULL)
        ep->ia->dat->dat_ep_free(ep->handle);
    ep->dto_evd->used -= ep->recv_max + ep->req_max;
    mdapl_tree_remove(&ep->ia->by_handle, &ep->by_handle);
    give_room_back(ep, ep->ia);
}

/* The oldest request has completed. */
static void oldest_over(struct mdapl_dapl_ep *ep, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    uint32_t number = ep->req.next - ep->req_posted;
    struct mdapl_dapl_dto *dto = ep->req.dto[number & ep->req.mask];

    ep->req_posted--;
    ep->reads -= dto->kind == MDAPL_DTO_READ;
    ep->bytes -= dto->bytes;
    if (dto->unsignaled) {
        ep->n_unsignaled--;
        ep->ia->vbufs->n_unsignaled--;
    }
    dto->done(dto, status, len);
}

/* -- draining --------------------------------------------------------------------------------- */

void mdapl_dapl_ep_disconnect(struct mdapl_dapl_ep *ep)
{
    ep->ia->dat->dat_ep_disconnect(ep->handle, DAT_CLOSE_ABRUPT_FLAG);
}

/*
 * Resets an EP whose acceptance has failed, because its receives complete only then. Those of any
 * other one are flushed by its disconnection, and some providers lose them in a reset.
 * The success of unsignaled requests is not reported when no request follows them: they have
 * completed when the EP is idle and QUIET calls in a row have found no completion.
 */
static void flush_silent_and_unconnected(struct mdapl_dapl_ep *ep)
{
    DAT_EP_STATE state;
    DAT_BOOLEAN recv_idle, req_idle = DAT_FALSE;

    if (ep->ia->dat->dat_ep_get_status(ep->handle, &state, &recv_idle, &req_idle) != DAT_SUCCESS)
        return;
    if ((!ep->attempted || ep->unaccepted)
        && (state == DAT_EP_STATE_UNCONNECTED || state == DAT_EP_STATE_DISCONNECTED))
        ep->ia->dat->dat_ep_reset(ep->handle);
    if (req_idle && ep->recv_posted == 0 && ep->req_posted == ep->n_unsignaled
        && ++ep->idle_polls >= QUIET)
        while (ep->req_posted > 0)
            oldest_over(ep, DAT_DTO_ERR_FLUSHED, 0);
}

bool mdapl_dapl_ep_flushed(struct mdapl_dapl_ep *ep)
{
    if (ep->recv_posted + ep->req_posted == 0)
        return true;
    flush_silent_and_unconnected(ep);
    return false;
}

/* Completes a receive as flushed, or forgets it with its buffer. */
static void end_recv(struct mdapl_dapl_ep *ep, struct mdapl_dapl_dto **at, bool forget)
{
    struct mdapl_dapl_dto *dto = *at;

    if (!dto)
        return;
    *at = NULL;
    ep->recv_posted--;
    if (!forget)
        dto->done(dto, DAT_DTO_ERR_FLUSHED, 0);
}

bool mdapl_dapl_ep_end(struct mdapl_dapl_ep *ep, bool abandon)
{
    bool freed = ep->handle == DAT_HANDLE_NULL
                 || ep->ia->dat->dat_ep_free(ep->handle) == DAT_SUCCESS;

    if (!freed && !abandon)
        return false;
    ep->abandoned |= !freed;
    ep->ia->abandoned |= !freed;
    ep->handle = DAT_HANDLE_NULL;
    ep->ended = true;
    while (ep->req_posted > 0)
        oldest_over(ep, DAT_DTO_ERR_FLUSHED, 0);
    for (uint32_t i = 0; i <= ep->recv.mask; i++)
        end_recv(ep, &ep->recv.dto[i], !freed);
    return true;
}

/* -- connecting ------------------------------------------------------------------------------- */

/* Its time is the channel's: libdapl2's timer of a request uses the EP after it may have been freed
 * (libdaploscm, in its thread: an EVD that is NULL). */
int mdapl_dapl_ep_connect(struct mdapl_dapl_ep *ep, const uint8_t *addr, uint8_t addr_len,
                          uint64_t qual, const void *priv, size_t priv_len)
{
    struct sockaddr_in6 to;      /* large enough for both families; providers copy theirs */
    DAT_RETURN ret;
    char text[96];

    memset(&to, 0, sizeof(to));
    memcpy(&to, addr, addr_len < sizeof(to) ? addr_len : sizeof(to));
    ret = ep->ia->dat->dat_ep_connect(ep->handle, (DAT_IA_ADDRESS_PTR)&to, qual,
                         DAT_TIMEOUT_INFINITE, (DAT_COUNT)priv_len, (DAT_PVOID)priv,
                         DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
    ep->attempted = ret == DAT_SUCCESS;
    return ret == DAT_SUCCESS
             ? 0
             : mdapl_err_set(mdapl_ctx_err(ep->ia->ctx), -EIO, "dat_ep_connect() answers %s",
                             mdapl_dapl_dat_text(ep->ia, ret, text));
}

DAT_EP_STATE mdapl_dapl_ep_state(const struct mdapl_dapl_ep *ep)
{
    DAT_EP_STATE state = DAT_EP_STATE_UNCONNECTED;
    DAT_BOOLEAN recv_idle, req_idle;

    ep->ia->dat->dat_ep_get_status(ep->handle, &state, &recv_idle, &req_idle);
    return state;
}

int mdapl_dapl_ep_accept(struct mdapl_dapl_ep *ep, DAT_CR_HANDLE cr, const void *priv,
                         size_t priv_len)
{
    DAT_RETURN ret = ep->ia->dat->dat_cr_accept(cr, ep->handle, (DAT_COUNT)priv_len,
                                                (DAT_PVOID)priv);
    char text[96];

    ep->attempted = ret == DAT_SUCCESS;
    return ret == DAT_SUCCESS
             ? 0
             : mdapl_err_set(mdapl_ctx_err(ep->ia->ctx), -EIO, "dat_cr_accept() answers %s",
                             mdapl_dapl_dat_text(ep->ia, ret, text));
}

/* -- posting ---------------------------------------------------------------------------------- */

/* The cookie of the next request. */
static DAT_DTO_COOKIE cookie(struct mdapl_dapl_ep *ep, struct mdapl_dapl_dto *dto,
                             enum mdapl_dapl_dto_kind kind)
{
    dto->ep = ep;
    dto->kind = kind;
    dto->bytes = 0;
    dto->len = 0;
    dto->unsignaled = dto->reported = false;
    return (DAT_DTO_COOKIE){ .as_64 = ep->cookie | REQUEST | (uint16_t)ep->req.next };
}

/* May the buffer of one more request wait for the event of another? With few buffers each request
 * makes an event, which frees its buffer soon: the last one that a frame may have is never taken by
 * one that makes none. */
static bool may_wait(const struct mdapl_dapl_ep *ep)
{
    struct mdapl_dapl_vbufs *v = ep->ia->vbufs;

    return mdapl_dapl_vbufs_for(v, MDAPL_VBUF_FRAME) > v->n_unsignaled
           || (!v->refused && (ep->unsignaled_run < BATCH_FEW || v->n_unsignaled < UNSIGNALED)
               && mdapl_dapl_vbufs_grow(v, MDAPL_VBUF_FRAME, v->n_unsignaled));
}

/* Whether this request's success is to make an event: one of each batch does. */
static DAT_COMPLETION_FLAGS flags_for(struct mdapl_dapl_ep *ep, struct mdapl_dapl_dto *dto)
{
    dto->unsignaled = ep->unsignaled_run + 1 < ep->batch && may_wait(ep);
    ep->unsignaled_run = dto->unsignaled ? ep->unsignaled_run + 1 : 0;
    return dto->unsignaled ? DAT_COMPLETION_SUPPRESS_FLAG : DAT_COMPLETION_DEFAULT_FLAG;
}

static void note(struct mdapl_dapl_posts *p, struct mdapl_dapl_dto *dto)
{
    p->dto[p->next & p->mask] = dto;
    dto->number = (uint16_t)p->next++;
}

/* A request has been posted. */
static void posted(struct mdapl_dapl_ep *ep, struct mdapl_dapl_dto *dto, uint64_t rdma_bytes)
{
    note(&ep->req, dto);
    dto->bytes = rdma_bytes;
    ep->bytes += rdma_bytes;
    ep->req_posted++;
    if (!dto->unsignaled)
        return;
    ep->n_unsignaled++;
    ep->ia->vbufs->n_unsignaled++;
}

/* Nothing was posted. */
static int refused(struct mdapl_dapl_ep *ep, DAT_RETURN ret)
{
    ep->refused = ret;
    return -EIO;
}

int mdapl_dapl_ep_post_send(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *seg,
                            struct mdapl_dapl_dto *dto)
{
    DAT_DTO_COOKIE c = cookie(ep, dto, MDAPL_DTO_SEND);
    DAT_RETURN ret = ep->ia->dat->dat_ep_post_send(ep->handle, 1, seg, c, flags_for(ep, dto));

    if (ret != DAT_SUCCESS)
        return refused(ep, ret);
    posted(ep, dto, 0);
    return 0;
}

int mdapl_dapl_ep_post_recv(struct mdapl_dapl_ep *ep, int n, DAT_LMR_TRIPLET seg[n],
                            struct mdapl_dapl_dto *dto)
{
    DAT_DTO_COOKIE c = { .as_64 = ep->cookie | (uint16_t)ep->recv.next };
    DAT_RETURN ret = (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES
                                  | DAT_RESOURCE_MEMORY);

    if (ep->recv_posted <= ep->recv.mask || posts_grow(&ep->recv, ep->recv_posted))
        ret = ep->ia->dat->dat_ep_post_recv(ep->handle, n, seg, c, DAT_COMPLETION_DEFAULT_FLAG);
    if (ret != DAT_SUCCESS)
        return refused(ep, ret);
    dto->ep = ep;
    note(&ep->recv, dto);
    ep->recv_posted++;
    return 0;
}

int mdapl_dapl_ep_post_read(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *to,
                            const DAT_RMR_TRIPLET *from, struct mdapl_dapl_dto *dto)
{
    DAT_DTO_COOKIE c = cookie(ep, dto, MDAPL_DTO_READ);
    DAT_RETURN ret = ep->ia->dat->dat_ep_post_rdma_read(ep->handle, 1, to, c, from,
                                                        DAT_COMPLETION_DEFAULT_FLAG);

    if (ret != DAT_SUCCESS)
        return refused(ep, ret);
    posted(ep, dto, to->segment_length);
    ep->reads++;
    ep->unsignaled_run = 0;
    return 0;
}

static int post_write(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *from, const DAT_RMR_TRIPLET *to,
                      struct mdapl_dapl_dto *dto, DAT_DTO_COOKIE c, DAT_COMPLETION_FLAGS flags)
{
    DAT_RETURN ret = ep->ia->dat->dat_ep_post_rdma_write(ep->handle, 1, from, c, to, flags);

    if (ret != DAT_SUCCESS)
        return refused(ep, ret);
    posted(ep, dto, from->segment_length);
    return 0;
}

int mdapl_dapl_ep_post_write(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *from,
                             const DAT_RMR_TRIPLET *to, struct mdapl_dapl_dto *dto)
{
    int rc = post_write(ep, from, to, dto, cookie(ep, dto, MDAPL_DTO_WRITE),
                        DAT_COMPLETION_DEFAULT_FLAG);

    if (rc == 0)
        ep->unsignaled_run = 0;
    return rc;
}

int mdapl_dapl_ep_post_write_unsignaled(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *from,
                                        const DAT_RMR_TRIPLET *to, struct mdapl_dapl_dto *dto)
{
    DAT_DTO_COOKIE c = cookie(ep, dto, MDAPL_DTO_WRITE);

    return post_write(ep, from, to, dto, c, flags_for(ep, dto));
}

/* -- completing ------------------------------------------------------------------------------- */

static void stale(struct mdapl_dapl_ia *ia)
{
    mdapl_ctx_stats(ia->ctx)->stale_completions++;
}

/* The oldest request. */
static struct mdapl_dapl_dto *oldest(const struct mdapl_dapl_ep *ep)
{
    return ep->req.dto[(ep->req.next - ep->req_posted) & ep->req.mask];
}

/*
 * An event says that a request has succeeded, with those before it: but for RDMA reads, which have
 * their own events, and behind which the others wait (docs/dat.md, 18).
 */
static void request_succeeded(struct mdapl_dapl_ep *ep, uint32_t number, size_t len)
{
    struct mdapl_dapl_dto *dto = ep->req.dto[number & ep->req.mask];

    dto->reported = true;
    dto->len = len;
    if ((int32_t)(number + 1 - ep->reported) > 0)
        ep->reported = number + 1;
    while (ep->req_posted > 0 && (int32_t)(ep->reported - (ep->req.next - ep->req_posted)) > 0) {
        dto = oldest(ep);
        if (dto->kind == MDAPL_DTO_READ && !dto->reported)
            return;
        oldest_over(ep, DAT_DTO_SUCCESS, dto->reported ? dto->len : 0);
    }
}

/* A request has failed. Reads before it that no event has reported have failed, too. */
static void request_failed(struct mdapl_dapl_ep *ep, uint32_t before,
                           DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    while (before-- > 0) {
        bool lost = oldest(ep)->kind == MDAPL_DTO_READ && !oldest(ep)->reported;

        oldest_over(ep, lost ? DAT_DTO_ERR_FLUSHED : DAT_DTO_SUCCESS, oldest(ep)->len);
    }
    oldest_over(ep, status, len);
}

static void request_over(struct mdapl_dapl_ep *ep, uint16_t number,
                         DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    uint32_t first = ep->req.next - ep->req_posted, before = (uint16_t)(number - first);

    if (before >= ep->req_posted)
        stale(ep->ia);
    else if (status == DAT_DTO_SUCCESS)
        request_succeeded(ep, first + before, len);
    else
        request_failed(ep, before, status, len);
}

static void recv_over(struct mdapl_dapl_ep *ep, uint16_t number, DAT_DTO_COMPLETION_STATUS status,
                      size_t len)
{
    struct mdapl_dapl_dto **at = &ep->recv.dto[number & ep->recv.mask], *dto = *at;

    if (!dto || dto->number != number) {
        stale(ep->ia);
        return;
    }
    *at = NULL;
    ep->recv_posted--;
    dto->done(dto, status, len);
}

void mdapl_dapl_ep_completed(struct mdapl_dapl_ia *ia, uint64_t cookie,
                             DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    uint32_t place = place_of(cookie);
    struct mdapl_dapl_ep *ep = place < ia->n_ep ? ia->ep[place] : NULL;

    if (!ep || (ep->cookie ^ cookie) >> INDEX_SHIFT != 0) {
        stale(ia);
        return;
    }
    ep->idle_polls = 0;
    if (cookie & REQUEST)
        request_over(ep, (uint16_t)cookie, status, len);
    else
        recv_over(ep, (uint16_t)cookie, status, len);
}
