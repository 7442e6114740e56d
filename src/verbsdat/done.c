/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"

#include <dat2/dat_ib_extensions.h>
#include <string.h>

/* How a completion is reported; ext: DAT_IB_EXT_TYPE plus one, 0 for DAT's own transfers. */
static const struct {
    int operation, ext;
} rows[] = {
    [VERBSDAT_SEND] = { DAT_DTO_SEND, 0 },
    [VERBSDAT_WRITE] = { DAT_DTO_RDMA_WRITE, 0 },
    [VERBSDAT_READ] = { DAT_DTO_RDMA_READ, 0 },
    [VERBSDAT_RECV] = { DAT_DTO_RECEIVE, 0 },
    [VERBSDAT_WRITE_IMM] = { DAT_IB_DTO_RDMA_WRITE_IMMED, 1 + DAT_IB_RDMA_WRITE_IMMED },
    [VERBSDAT_FETCH_ADD] = { DAT_IB_DTO_FETCH_ADD, 1 + DAT_IB_FETCH_AND_ADD },
    [VERBSDAT_CMP_SWAP] = { DAT_IB_DTO_CMP_SWAP, 1 + DAT_IB_CMP_AND_SWAP },
};

/* The statuses of verbs (IBA 11.6.2); what is not here is an error of the transport. */
static const struct {
    enum ibv_wc_status wc;
    DAT_DTO_COMPLETION_STATUS dat;
} statuses[] = {
    { IBV_WC_WR_FLUSH_ERR, DAT_DTO_ERR_FLUSHED },
    { IBV_WC_LOC_LEN_ERR, DAT_DTO_ERR_LOCAL_LENGTH },
    { IBV_WC_LOC_QP_OP_ERR, DAT_DTO_ERR_LOCAL_EP },
    { IBV_WC_LOC_PROT_ERR, DAT_DTO_ERR_LOCAL_PROTECTION },
    { IBV_WC_LOC_ACCESS_ERR, DAT_DTO_ERR_LOCAL_PROTECTION },
    { IBV_WC_MW_BIND_ERR, DAT_RMR_OPERATION_FAILED },
    { IBV_WC_BAD_RESP_ERR, DAT_DTO_ERR_BAD_RESPONSE },
    { IBV_WC_REM_ACCESS_ERR, DAT_DTO_ERR_REMOTE_ACCESS },
    { IBV_WC_REM_INV_REQ_ERR, DAT_DTO_ERR_REMOTE_RESPONDER },
    { IBV_WC_REM_OP_ERR, DAT_DTO_ERR_REMOTE_RESPONDER },
    { IBV_WC_RNR_RETRY_EXC_ERR, DAT_DTO_ERR_RECEIVER_NOT_READY },
};

static DAT_DTO_COMPLETION_STATUS status_of(enum ibv_wc_status wc)
{
    if (wc == IBV_WC_SUCCESS)
        return DAT_DTO_SUCCESS;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].wc == wc)
            return statuses[i].dat;
    return DAT_DTO_ERR_TRANSPORT;
}

static void fill_extension(DAT_EVENT *event, int ext, const struct ibv_wc *wc)
{
    DAT_IB_EXTENSION_EVENT_DATA *data = (void *)event->event_extension_data;

    event->event_number = (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT;
    memset(event->event_extension_data, 0, sizeof(event->event_extension_data));
    data->type = (DAT_IB_EXT_TYPE)(ext - 1);
    data->status = wc->status == IBV_WC_SUCCESS ? DAT_OP_SUCCESS : DAT_IB_OP_ERR;
    data->val.immed.data = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : 0;
}

/* The state of the EP's queues after a completion. Requests complete in their order, so those
 * before this one have ended, with a completion or without. */
static void advance(struct verbsdat_ep *ep, const struct verbsdat_slot *slot)
{
    struct verbsdat_queue *q = slot->kind == VERBSDAT_RECV ? &ep->recv : &ep->req;
    uint32_t past = slot->kind == VERBSDAT_MARK ? slot->number : slot->number + 1;

    if ((int32_t)(past - atomic_load_explicit(&q->tail, memory_order_relaxed)) > 0)
        atomic_store_explicit(&q->tail, past, memory_order_release);
}

static void report_fault(struct verbsdat_ep *ep)
{
    if (atomic_load(&ep->state) != DAT_EP_STATE_CONNECTED || atomic_exchange(&ep->fault, true))
        return;
    atomic_store(&ep->h.ia->faulty, true);
    verbsdat_thread_wake(ep->h.ia);
}

static void fill_event(DAT_EVENT *event, struct verbsdat_evd *evd, struct verbsdat_ep *ep,
                       const struct verbsdat_slot *slot, const struct ibv_wc *wc)
{
    bool received = wc->status == IBV_WC_SUCCESS && slot->kind == VERBSDAT_RECV;
    bool written = received && wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    int ext = written ? 1 + DAT_IB_RDMA_WRITE_IMMED_DATA : rows[slot->kind].ext;
    DAT_DTO_COMPLETION_EVENT_DATA *d = &event->event_data.dto_completion_event_data;

    event->event_number = DAT_DTO_COMPLETION_EVENT;
    event->evd_handle = evd;
    d->ep_handle = ep;
    d->user_cookie = slot->cookie;
    d->status = status_of(wc->status);
    d->transfered_length = wc->status == IBV_WC_SUCCESS ? wc->byte_len : 0;
    d->operation = (DAT_DTOS)(written ? DAT_IB_DTO_RECV_IMMED : rows[slot->kind].operation);
    if (ext)
        fill_extension(event, ext, wc);
}

/* Has the DTO been completed as lost before (verbsdat_ep_lost)? */
static bool is_late(const struct verbsdat_slot *slot)
{
    const struct verbsdat_queue *q;

    if (slot->srq || slot->kind == VERBSDAT_MARK)
        return false;
    q = slot->kind == VERBSDAT_RECV ? &slot->ep->recv : &slot->ep->req;
    return (int32_t)(slot->number - atomic_load_explicit(&q->tail, memory_order_relaxed)) < 0;
}

bool verbsdat_done(struct verbsdat_evd *evd, const struct ibv_wc *wc, DAT_EVENT *event)
{
    struct verbsdat_slot *slot = (void *)(uintptr_t)wc->wr_id;
    struct verbsdat_ep *ep = slot->ep ? slot->ep : verbsdat_by_qp(evd->h.ia, wc->qp_num);
    bool reported = slot->kind != VERBSDAT_MARK
                    && !(slot->silent && wc->status == IBV_WC_SUCCESS);

    if (is_late(slot))
        return false;
    if (wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_WR_FLUSH_ERR && ep)
        report_fault(ep);
    if (reported)
        fill_event(event, evd, ep, slot, wc);
    if (ep && slot == &ep->announce)
        atomic_store(&ep->announcing, false);
    /* with this the slot is free, and its EP if it is being freed */
    if (slot->srq)
        verbsdat_srq_give(slot);
    else
        advance(ep, slot);
    return reported;
}
