/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_CALLS_H
#define SOFTDAT_CALLS_H
/*
 * The DAT calls of the provider's table (provider.c). Arguments, results and errors of softdat_X
 * are those of dat_X in the DAT 2.0 specification, and of dat_ib_extensions.h for
 * softdat_extended_op(). Each call takes the lock of its adapter.
 */
#include <dat2/udat.h>
#include <stdarg.h>

#define DAT_ERROR(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))

/* alternate.c: the operations of dat_path_extensions.h */
DAT_RETURN softdat_alternate_op(DAT_HANDLE, DAT_EXTENDED_OP, va_list);

/* ia.c */
DAT_RETURN softdat_set_context(DAT_HANDLE, DAT_CONTEXT);
DAT_RETURN softdat_get_context(DAT_HANDLE, DAT_CONTEXT *);
DAT_RETURN softdat_get_type(DAT_HANDLE, DAT_HANDLE_TYPE *);

/* mem.c */
DAT_RETURN softdat_pz_create(DAT_IA_HANDLE, DAT_PZ_HANDLE *);
DAT_RETURN softdat_pz_query(DAT_PZ_HANDLE, DAT_PZ_PARAM_MASK, DAT_PZ_PARAM *);
DAT_RETURN softdat_pz_free(DAT_PZ_HANDLE);
DAT_RETURN softdat_lmr_create(DAT_IA_HANDLE, DAT_MEM_TYPE, DAT_REGION_DESCRIPTION, DAT_VLEN,
                              DAT_PZ_HANDLE, DAT_MEM_PRIV_FLAGS, DAT_VA_TYPE, DAT_LMR_HANDLE *,
                              DAT_LMR_CONTEXT *, DAT_RMR_CONTEXT *, DAT_VLEN *, DAT_VADDR *);
DAT_RETURN softdat_lmr_query(DAT_LMR_HANDLE, DAT_LMR_PARAM_MASK, DAT_LMR_PARAM *);
DAT_RETURN softdat_lmr_free(DAT_LMR_HANDLE);
DAT_RETURN softdat_lmr_sync(DAT_IA_HANDLE, const DAT_LMR_TRIPLET *, DAT_VLEN);

DAT_RETURN softdat_rmr_create(DAT_PZ_HANDLE, DAT_RMR_HANDLE *);
DAT_RETURN softdat_rmr_query(DAT_RMR_HANDLE, DAT_RMR_PARAM_MASK, DAT_RMR_PARAM *);
DAT_RETURN softdat_rmr_bind(DAT_RMR_HANDLE, DAT_LMR_HANDLE, const DAT_LMR_TRIPLET *,
                            DAT_MEM_PRIV_FLAGS, DAT_VA_TYPE, DAT_EP_HANDLE, DAT_RMR_COOKIE,
                            DAT_COMPLETION_FLAGS, DAT_RMR_CONTEXT *);
DAT_RETURN softdat_rmr_free(DAT_RMR_HANDLE);

/* rq.c */
DAT_RETURN softdat_srq_create(DAT_IA_HANDLE, DAT_PZ_HANDLE, DAT_SRQ_ATTR *, DAT_SRQ_HANDLE *);
DAT_RETURN softdat_srq_free(DAT_SRQ_HANDLE);
DAT_RETURN softdat_srq_post_recv(DAT_SRQ_HANDLE, DAT_COUNT, DAT_LMR_TRIPLET *, DAT_DTO_COOKIE);
DAT_RETURN softdat_srq_query(DAT_SRQ_HANDLE, DAT_SRQ_PARAM_MASK, DAT_SRQ_PARAM *);
DAT_RETURN softdat_srq_resize(DAT_SRQ_HANDLE, DAT_COUNT);
DAT_RETURN softdat_srq_set_lw(DAT_SRQ_HANDLE, DAT_COUNT);

/* evd.c */
DAT_RETURN softdat_evd_create(DAT_IA_HANDLE, DAT_COUNT, DAT_CNO_HANDLE, DAT_EVD_FLAGS,
                              DAT_EVD_HANDLE *);
DAT_RETURN softdat_evd_query(DAT_EVD_HANDLE, DAT_EVD_PARAM_MASK, DAT_EVD_PARAM *);
DAT_RETURN softdat_evd_modify_cno(DAT_EVD_HANDLE, DAT_CNO_HANDLE);
DAT_RETURN softdat_evd_enable(DAT_EVD_HANDLE);
DAT_RETURN softdat_evd_disable(DAT_EVD_HANDLE);
DAT_RETURN softdat_evd_set_unwaitable(DAT_EVD_HANDLE);
DAT_RETURN softdat_evd_clear_unwaitable(DAT_EVD_HANDLE);
DAT_RETURN softdat_evd_wait(DAT_EVD_HANDLE, DAT_TIMEOUT, DAT_COUNT, DAT_EVENT *, DAT_COUNT *);
DAT_RETURN softdat_evd_resize(DAT_EVD_HANDLE, DAT_COUNT);
DAT_RETURN softdat_evd_post_se(DAT_EVD_HANDLE, const DAT_EVENT *);
DAT_RETURN softdat_evd_dequeue(DAT_EVD_HANDLE, DAT_EVENT *);
DAT_RETURN softdat_evd_free(DAT_EVD_HANDLE);

/* cno.c */
DAT_RETURN softdat_cno_create(DAT_IA_HANDLE, DAT_OS_WAIT_PROXY_AGENT, DAT_CNO_HANDLE *);
DAT_RETURN softdat_cno_modify_agent(DAT_CNO_HANDLE, DAT_OS_WAIT_PROXY_AGENT);
DAT_RETURN softdat_cno_query(DAT_CNO_HANDLE, DAT_CNO_PARAM_MASK, DAT_CNO_PARAM *);
DAT_RETURN softdat_cno_free(DAT_CNO_HANDLE);
DAT_RETURN softdat_cno_wait(DAT_CNO_HANDLE, DAT_TIMEOUT, DAT_EVD_HANDLE *);

/* listen.c, accept.c, connect.c */
DAT_RETURN softdat_psp_create(DAT_IA_HANDLE, DAT_CONN_QUAL, DAT_EVD_HANDLE, DAT_PSP_FLAGS,
                              DAT_PSP_HANDLE *);
DAT_RETURN softdat_psp_create_any(DAT_IA_HANDLE, DAT_CONN_QUAL *, DAT_EVD_HANDLE, DAT_PSP_FLAGS,
                                  DAT_PSP_HANDLE *);
DAT_RETURN softdat_psp_query(DAT_PSP_HANDLE, DAT_PSP_PARAM_MASK, DAT_PSP_PARAM *);
DAT_RETURN softdat_psp_free(DAT_PSP_HANDLE);
DAT_RETURN softdat_rsp_create(DAT_IA_HANDLE, DAT_CONN_QUAL, DAT_EP_HANDLE, DAT_EVD_HANDLE,
                              DAT_RSP_HANDLE *);
DAT_RETURN softdat_rsp_query(DAT_RSP_HANDLE, DAT_RSP_PARAM_MASK, DAT_RSP_PARAM *);
DAT_RETURN softdat_rsp_free(DAT_RSP_HANDLE);
DAT_RETURN softdat_cr_query(DAT_CR_HANDLE, DAT_CR_PARAM_MASK, DAT_CR_PARAM *);
DAT_RETURN softdat_cr_accept(DAT_CR_HANDLE, DAT_EP_HANDLE, DAT_COUNT, const DAT_PVOID);
DAT_RETURN softdat_cr_reject(DAT_CR_HANDLE, DAT_COUNT, const DAT_PVOID);
DAT_RETURN softdat_ep_connect(DAT_EP_HANDLE, DAT_IA_ADDRESS_PTR, DAT_CONN_QUAL, DAT_TIMEOUT,
                              DAT_COUNT, const DAT_PVOID, DAT_QOS, DAT_CONNECT_FLAGS);
DAT_RETURN softdat_ep_dup_connect(DAT_EP_HANDLE, DAT_EP_HANDLE, DAT_TIMEOUT, DAT_COUNT,
                                  const DAT_PVOID, DAT_QOS);
DAT_RETURN softdat_ep_disconnect(DAT_EP_HANDLE, DAT_CLOSE_FLAGS);

/* ep.c */
DAT_RETURN softdat_ep_create(DAT_IA_HANDLE, DAT_PZ_HANDLE, DAT_EVD_HANDLE, DAT_EVD_HANDLE,
                             DAT_EVD_HANDLE, const DAT_EP_ATTR *, DAT_EP_HANDLE *);
DAT_RETURN softdat_ep_create_with_srq(DAT_IA_HANDLE, DAT_PZ_HANDLE, DAT_EVD_HANDLE, DAT_EVD_HANDLE,
                                      DAT_EVD_HANDLE, DAT_SRQ_HANDLE, const DAT_EP_ATTR *,
                                      DAT_EP_HANDLE *);
DAT_RETURN softdat_ep_query(DAT_EP_HANDLE, DAT_EP_PARAM_MASK, DAT_EP_PARAM *);
DAT_RETURN softdat_ep_modify(DAT_EP_HANDLE, DAT_EP_PARAM_MASK, const DAT_EP_PARAM *);
DAT_RETURN softdat_ep_get_status(DAT_EP_HANDLE, DAT_EP_STATE *, DAT_BOOLEAN *, DAT_BOOLEAN *);
DAT_RETURN softdat_ep_recv_query(DAT_EP_HANDLE, DAT_COUNT *, DAT_COUNT *);
DAT_RETURN softdat_ep_reset(DAT_EP_HANDLE);
DAT_RETURN softdat_ep_free(DAT_EP_HANDLE);

/* post.c */
DAT_RETURN softdat_ep_post_send(DAT_EP_HANDLE, DAT_COUNT, DAT_LMR_TRIPLET *, DAT_DTO_COOKIE,
                                DAT_COMPLETION_FLAGS);
DAT_RETURN softdat_ep_post_recv(DAT_EP_HANDLE, DAT_COUNT, DAT_LMR_TRIPLET *, DAT_DTO_COOKIE,
                                DAT_COMPLETION_FLAGS);
DAT_RETURN softdat_ep_post_rdma_read(DAT_EP_HANDLE, DAT_COUNT, DAT_LMR_TRIPLET *, DAT_DTO_COOKIE,
                                     const DAT_RMR_TRIPLET *, DAT_COMPLETION_FLAGS);
DAT_RETURN softdat_ep_post_rdma_write(DAT_EP_HANDLE, DAT_COUNT, DAT_LMR_TRIPLET *, DAT_DTO_COOKIE,
                                      const DAT_RMR_TRIPLET *, DAT_COMPLETION_FLAGS);
DAT_RETURN softdat_extended_op(DAT_HANDLE, DAT_EXTENDED_OP, va_list);

#endif
