/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"
#include "datline.h"

/* The entry points of libdat2 (datline.h), and the table of calls. */

static const DAT_PROVIDER table = {
    .ia_open_func = verbsdat_ia_open,
    .ia_query_func = verbsdat_ia_query,
    .ia_close_func = verbsdat_ia_close,
    .set_consumer_context_func = verbsdat_set_context,
    .get_consumer_context_func = verbsdat_get_context,
    .get_handle_type_func = verbsdat_get_type,

    .cno_create_func = verbsdat_cno_create,
    .cno_modify_agent_func = verbsdat_cno_modify_agent,
    .cno_query_func = verbsdat_cno_query,
    .cno_free_func = verbsdat_cno_free,
    .cno_wait_func = verbsdat_cno_wait,
    .cno_fd_create_func = DATLINE_NONE(DAT_CNO_FD_CREATE_FUNC),
    .cno_trigger_func = DATLINE_NONE(DAT_CNO_TRIGGER_FUNC),

    .evd_create_func = verbsdat_evd_create,
    .evd_query_func = verbsdat_evd_query,
    .evd_modify_cno_func = verbsdat_evd_modify_cno,
    .evd_enable_func = verbsdat_evd_enable,
    .evd_disable_func = verbsdat_evd_disable,
    .evd_wait_func = verbsdat_evd_wait,
    .evd_resize_func = verbsdat_evd_resize,
    .evd_post_se_func = verbsdat_evd_post_se,
    .evd_dequeue_func = verbsdat_evd_dequeue,
    .evd_free_func = verbsdat_evd_free,
    .evd_set_unwaitable_func = verbsdat_evd_set_unwaitable,
    .evd_clear_unwaitable_func = verbsdat_evd_clear_unwaitable,

    .pz_create_func = verbsdat_pz_create,
    .pz_query_func = verbsdat_pz_query,
    .pz_free_func = verbsdat_pz_free,
    .lmr_create_func = verbsdat_lmr_create,
    .lmr_query_func = verbsdat_lmr_query,
    .lmr_free_func = verbsdat_lmr_free,
    .lmr_sync_rdma_read_func = verbsdat_lmr_sync,
    .lmr_sync_rdma_write_func = verbsdat_lmr_sync,
    .rmr_create_func = DATLINE_NONE(DAT_RMR_CREATE_FUNC),
    .rmr_query_func = DATLINE_NONE(DAT_RMR_QUERY_FUNC),
    .rmr_bind_func = DATLINE_NONE(DAT_RMR_BIND_FUNC),
    .rmr_free_func = DATLINE_NONE(DAT_RMR_FREE_FUNC),
    .rmr_create_for_ep_func = DATLINE_NONE(DAT_RMR_CREATE_FOR_EP_FUNC),

    .psp_create_func = verbsdat_psp_create,
    .psp_create_any_func = verbsdat_psp_create_any,
    .psp_query_func = verbsdat_psp_query,
    .psp_free_func = verbsdat_psp_free,
    .rsp_create_func = DATLINE_NONE(DAT_RSP_CREATE_FUNC),
    .rsp_query_func = DATLINE_NONE(DAT_RSP_QUERY_FUNC),
    .rsp_free_func = DATLINE_NONE(DAT_RSP_FREE_FUNC),
    .csp_create_func = DATLINE_NONE(DAT_CSP_CREATE_FUNC),
    .csp_query_func = DATLINE_NONE(DAT_CSP_QUERY_FUNC),
    .csp_free_func = DATLINE_NONE(DAT_CSP_FREE_FUNC),
    .cr_query_func = verbsdat_cr_query,
    .cr_accept_func = verbsdat_cr_accept,
    .cr_reject_func = verbsdat_cr_reject,
    .cr_handoff_func = DATLINE_NONE(DAT_CR_HANDOFF_FUNC),

    .ep_create_func = verbsdat_ep_create,
    .ep_query_func = verbsdat_ep_query,
    .ep_modify_func = DATLINE_NONE(DAT_EP_MODIFY_FUNC),
    .ep_connect_func = verbsdat_ep_connect,
    .ep_dup_connect_func = verbsdat_ep_dup_connect,
    .ep_common_connect_func = DATLINE_NONE(DAT_EP_COMMON_CONNECT_FUNC),
    .ep_disconnect_func = verbsdat_ep_disconnect,
    .ep_post_send_func = verbsdat_ep_post_send,
    .ep_post_recv_func = verbsdat_ep_post_recv,
    .ep_post_rdma_read_func = verbsdat_ep_post_rdma_read,
    .ep_post_rdma_write_func = verbsdat_ep_post_rdma_write,
    .ep_post_send_with_invalidate_func = DATLINE_NONE(DAT_EP_POST_SEND_WITH_INVALIDATE_FUNC),
    .ep_post_rdma_read_to_rmr_func = DATLINE_NONE(DAT_EP_POST_RDMA_READ_TO_RMR_FUNC),
    .ep_get_status_func = verbsdat_ep_get_status,
    .ep_recv_query_func = DATLINE_NONE(DAT_EP_RECV_QUERY_FUNC),
    .ep_set_watermark_func = DATLINE_NONE(DAT_EP_SET_WATERMARK_FUNC),
    .ep_reset_func = verbsdat_ep_reset,
    .ep_free_func = verbsdat_ep_free,

    .ep_create_with_srq_func = verbsdat_ep_create_with_srq,
    .srq_create_func = verbsdat_srq_create,
    .srq_free_func = verbsdat_srq_free,
    .srq_post_recv_func = verbsdat_srq_post_recv,
    .srq_query_func = verbsdat_srq_query,
    .srq_resize_func = verbsdat_srq_resize,
    .srq_set_lw_func = verbsdat_srq_set_lw,

    .ia_ha_related_func = DATLINE_NONE(DAT_IA_HA_RELATED_FUNC),
    .handle_extendedop_func = verbsdat_extended_op,
};

/* -- init and fini ---------------------------------------------------------------------------- */

__attribute__((visibility("default"))) void DAT_API
dat_provider_init(const DAT_PROVIDER_INFO *info, const char *ia_params)
{
    datline_add("daplverbs", &table, info, ia_params);
}

__attribute__((visibility("default"))) void DAT_API
dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    datline_remove(info);
}
