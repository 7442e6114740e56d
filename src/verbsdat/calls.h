/* SPDX-License-Identifier: MIT */
#ifndef VERBSDAT_CALLS_H
#define VERBSDAT_CALLS_H
/*
 * The DAT calls of the provider's table (provider.c). Arguments, results and errors of verbsdat_X
 * are those of dat_X in the DAT 2.0 specification, so its type is, too. verbsdat.h has the locks.
 */
#include <dat2/udat.h>
#include <stdarg.h>

#define VERBSDAT_CALL(name) __typeof__(dat_##name) verbsdat_##name

/* ia.c, attr.c */
DAT_RETURN verbsdat_ia_open(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *);
VERBSDAT_CALL(ia_query);
VERBSDAT_CALL(ia_close);
DAT_RETURN verbsdat_set_context(DAT_HANDLE, DAT_CONTEXT);
DAT_RETURN verbsdat_get_context(DAT_HANDLE, DAT_CONTEXT *);
DAT_RETURN verbsdat_get_type(DAT_HANDLE, DAT_HANDLE_TYPE *);

/* mem.c */
VERBSDAT_CALL(pz_create);
VERBSDAT_CALL(pz_query);
VERBSDAT_CALL(pz_free);
VERBSDAT_CALL(lmr_create);
VERBSDAT_CALL(lmr_query);
VERBSDAT_CALL(lmr_free);
DAT_RETURN verbsdat_lmr_sync(DAT_IA_HANDLE, const DAT_LMR_TRIPLET *, DAT_VLEN);

/* srq.c */
VERBSDAT_CALL(srq_create);
VERBSDAT_CALL(srq_free);
VERBSDAT_CALL(srq_post_recv);
VERBSDAT_CALL(srq_query);
VERBSDAT_CALL(srq_resize);
VERBSDAT_CALL(srq_set_lw);

/* evd.c */
VERBSDAT_CALL(evd_create);
VERBSDAT_CALL(evd_query);
VERBSDAT_CALL(evd_modify_cno);
VERBSDAT_CALL(evd_enable);
VERBSDAT_CALL(evd_disable);
VERBSDAT_CALL(evd_set_unwaitable);
VERBSDAT_CALL(evd_clear_unwaitable);
VERBSDAT_CALL(evd_wait);
VERBSDAT_CALL(evd_resize);
VERBSDAT_CALL(evd_post_se);
VERBSDAT_CALL(evd_dequeue);
VERBSDAT_CALL(evd_free);

/* cno.c */
VERBSDAT_CALL(cno_create);
VERBSDAT_CALL(cno_modify_agent);
VERBSDAT_CALL(cno_query);
VERBSDAT_CALL(cno_free);
VERBSDAT_CALL(cno_wait);

/* accept.c */
VERBSDAT_CALL(psp_create);
VERBSDAT_CALL(psp_create_any);
VERBSDAT_CALL(psp_query);
VERBSDAT_CALL(psp_free);
VERBSDAT_CALL(cr_query);
VERBSDAT_CALL(cr_accept);
VERBSDAT_CALL(cr_reject);

/* cm.c */
VERBSDAT_CALL(ep_connect);
VERBSDAT_CALL(ep_dup_connect);
VERBSDAT_CALL(ep_disconnect);

/* ep.c */
VERBSDAT_CALL(ep_create);
VERBSDAT_CALL(ep_create_with_srq);
VERBSDAT_CALL(ep_query);
VERBSDAT_CALL(ep_get_status);
VERBSDAT_CALL(ep_reset);
VERBSDAT_CALL(ep_free);

/* post.c */
VERBSDAT_CALL(ep_post_send);
VERBSDAT_CALL(ep_post_recv);
VERBSDAT_CALL(ep_post_rdma_read);
VERBSDAT_CALL(ep_post_rdma_write);
DAT_RETURN verbsdat_extended_op(DAT_HANDLE, DAT_EXTENDED_OP, va_list);

#endif
