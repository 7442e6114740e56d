/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/* MPI RMA is CH3's own, over messages: windows need nothing of the channel. */

int MPIDI_CH3_Win_fns_init(MPIDI_CH3U_Win_fns_t *fns)
{
    (void)fns;
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_hooks_init(MPIDI_CH3U_Win_hooks_t *hooks)
{
    (void)hooks;
    return MPI_SUCCESS;
}

/* All packets to one target travel on one VC, in order: a flush comes after what it flushes. */
int MPIDI_CH3_Win_pkt_orderings_init(MPIDI_CH3U_Win_pkt_ordering_t *orderings)
{
    orderings->am_flush_ordered = 1;
    return MPI_SUCCESS;
}
