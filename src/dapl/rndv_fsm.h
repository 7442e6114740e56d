/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RNDV_FSM_H
#define MDAPL_RNDV_FSM_H
/*
 * The two ends of a rendezvous, as tables; rndv_tx.c and rndv_rx.c act on them. What is not in a
 * table is a bad frame when the event is of the wire (it is looked up before it is acted on); when
 * the event is ours or the owner's it is a bug, which ends the peer and leaves the state as it is.
 *
 *      sender      ANNOUNCED --CTS--> SENDING --SENT--> ANNOUNCED        --FIN--> OVER
 *                  ANNOUNCED --FIN_BUSY--> ENDING --FLUSHED--> OVER
 *                  SENDING --CTS--> SENDING
 *      receiver    IDLE --READ--> READING --MORE, LAST--> IDLE, OVER     (RDMA read)
 *                  IDLE --ASK---> ASKED   --MORE, LAST--> IDLE, OVER     (RDMA write, DATA frames)
 *                  READING --STRANDED--> ASKED                       (its adapter was opened again)
 *                  IDLE --DROP--> OVER
 *
 * A connection that ends is no event of the sender, whose RDMA writes stop at the first that fails:
 * the receiver requests the rest with another CTS once the connection has drained at its end, since
 * until then a write may still be placed (NVMe TP4129 describes that hazard).
 */
enum mdapl_dapl_rtx_state {
    MDAPL_RTX_ANNOUNCED,     /* waits for a CTS or a FIN of the receiver */
    MDAPL_RTX_SENDING,       /* RDMA writes or DATA frames of a CTS are being posted */
    MDAPL_RTX_ENDING,        /* over, but for RDMA writes that are still to complete */
    MDAPL_RTX_OVER,
    MDAPL_RTX_STATES
};

enum mdapl_dapl_rtx_event {
    MDAPL_RTX_CTS,           /* wire: write or send me these bytes */
    MDAPL_RTX_SENT,          /* the last of them has been posted */
    MDAPL_RTX_FIN,           /* wire: read or dropped */
    MDAPL_RTX_FIN_BUSY,      /* the same, while RDMA writes are posted */
    MDAPL_RTX_LOST,          /* the peer is lost */
    MDAPL_RTX_LOST_BUSY,     /* the same, while RDMA writes are posted */
    MDAPL_RTX_FLUSHED,       /* the last of those has completed */
    MDAPL_RTX_EVENTS
};

enum mdapl_dapl_rrx_state {
    MDAPL_RRX_IDLE,          /* waits for the owner to read or drop */
    MDAPL_RRX_READING,       /* RDMA reads are posted or wait for a request slot */
    MDAPL_RRX_ASKED,         /* a CTS is queued or transmitted; RDMA writes or DATA frames follow */
    MDAPL_RRX_FAILING,       /* the peer is lost; RDMA reads are still to be flushed */
    MDAPL_RRX_OVER,
    MDAPL_RRX_STATES
};

enum mdapl_dapl_rrx_event {
    MDAPL_RRX_READ,          /* the owner reads, by RDMA */
    MDAPL_RRX_ASK,           /* the owner reads, the sender is to move */
    MDAPL_RRX_DATA,          /* wire: a DATA or a WRITTEN frame */
    MDAPL_RRX_STRANDED,      /* no key for the rest of the body is good any more */
    MDAPL_RRX_DRAINED,       /* a connection that may have carried some of the bytes has drained */
    MDAPL_RRX_MORE,          /* the owner's read is complete, the body is not */
    MDAPL_RRX_LAST,          /* the body is complete */
    MDAPL_RRX_DROP,          /* the owner drops the rest */
    MDAPL_RRX_LOST,          /* the peer is lost, no RDMA read is in flight */
    MDAPL_RRX_LOST_BUSY,     /* the peer is lost while RDMA reads are posted */
    MDAPL_RRX_FLUSHED,       /* the last of those has completed */
    MDAPL_RRX_EVENTS
};

/* The next state, or -1: this event cannot happen in this state. */
int mdapl_dapl_rtx_step(enum mdapl_dapl_rtx_state state, enum mdapl_dapl_rtx_event event);
int mdapl_dapl_rrx_step(enum mdapl_dapl_rrx_state state, enum mdapl_dapl_rrx_event event);

#endif
