/* SPDX-License-Identifier: MIT */
#ifndef MPIDI_CH3_POST_H_INCLUDED
#define MPIDI_CH3_POST_H_INCLUDED
/* How CH3 drives progress, progress.c has the one function; and what it says of posted receives. */

int MPIDI_CH3I_Progress(int blocking, MPID_Progress_state *state);

#define MPIDI_CH3_Progress_start(state_) \
    ((void)((state_)->ch.completion_count = MPIDI_CH3I_progress_completion_count))
#define MPIDI_CH3_Progress_end(state_) ((void)(state_))
#define MPIDI_CH3_Progress_test() MPIDI_CH3I_Progress(FALSE, NULL)
#define MPIDI_CH3_Progress_poke() MPIDI_CH3I_Progress(FALSE, NULL)
#define MPIDI_CH3_Progress_wait(state_) MPIDI_CH3I_Progress(TRUE, (state_))

void MPIDI_CH3I_Recv_posted(const MPIR_Request *rreq);
int MPIDI_CH3I_Recv_unposted(const MPIR_Request *rreq);
#define MPIDI_POSTED_RECV_ENQUEUE_HOOK(rreq_) MPIDI_CH3I_Recv_posted(rreq_)
#define MPIDI_POSTED_RECV_DEQUEUE_HOOK(rreq_) MPIDI_CH3I_Recv_unposted(rreq_)

#endif
