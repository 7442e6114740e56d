/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAT_H
#define MDAPL_DAT_H
/*
 * The calls of libdat2 that the channel makes. The library is loaded when the channel is opened
 * and not with libmpi: it reads dat.conf as it is loaded, and which dat.conf that is (the knob
 * DAT_CONF, the installation's own) is known only then.
 */
#include <dat2/udat.h>

struct mdapl_err;

#define MDAPL_DAT_CALLS(X)                                                                       \
    X(dat_registry_list_providers) X(dat_strerror)                                               \
    X(dat_ia_openv) X(dat_ia_query) X(dat_ia_close)                                              \
    X(dat_pz_create) X(dat_pz_free) X(dat_lmr_create) X(dat_lmr_free)                            \
    X(dat_evd_create) X(dat_evd_dequeue) X(dat_evd_wait) X(dat_evd_free) X(dat_evd_enable)       \
    X(dat_evd_disable) X(dat_evd_set_unwaitable) X(dat_evd_post_se)                              \
    X(dat_cno_create) X(dat_cno_modify_agent) X(dat_cno_wait) X(dat_cno_free)                    \
    X(dat_psp_create) X(dat_psp_free) X(dat_cr_query) X(dat_cr_accept) X(dat_cr_reject)          \
    X(dat_ep_create) X(dat_ep_connect) X(dat_ep_disconnect) X(dat_ep_reset) X(dat_ep_free)       \
    X(dat_ep_get_status) X(dat_ep_post_send) X(dat_ep_post_recv) X(dat_ep_post_rdma_read)        \
    X(dat_ep_post_rdma_write) X(dat_extension_op)

#define MDAPL_DAT_MEMBER(name) __typeof__(&(name)) name;
struct mdapl_dapl_dat {
    MDAPL_DAT_CALLS(MDAPL_DAT_MEMBER)
};
#undef MDAPL_DAT_MEMBER

/* Loads libdat2 and finds the calls. 0, or -ENODEV with the one clear line in err. The library
 * stays loaded: adapters' threads may still be at their end in it. */
int mdapl_dapl_dat_load(struct mdapl_dapl_dat *dat, struct mdapl_err *err);

#endif
