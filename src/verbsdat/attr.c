/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <dat2/dat_ib_extensions.h>
#include <dat_path_extensions.h>
#include <stdio.h>
#include <string.h>

#define TEXT(n) TEXT_OF(n)
#define TEXT_OF(n) #n

enum { DTO_MAX = 1 << 14, READS_MAX = 255 };

static DAT_COUNT at_most(int64_t n, DAT_COUNT max)
{
    return n < 0 ? 0 : n > max ? max : (DAT_COUNT)n;
}

static void name_one(struct verbsdat_ia *ia, const char *name, const char *value)
{
    ia->named[ia->n_named++] = (DAT_NAMED_ATTR){ name, value };
}

/* Are the bytes of an RDMA write placed in their order, for a processor that polls the last one?
 * Only the adapter's driver knows: neither InfiniBand (IBA 9.5) nor iWARP (RFC 5040, 5.1) promises
 * it. */
static bool in_order(struct verbsdat_ia *ia)
{
    struct ibv_qp *qp = ia->iwarp ? NULL : verbsdat_unused_qp(ia);

    return qp && ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 1;
}

void verbsdat_attr_name(struct verbsdat_ia *ia)
{
    ia->n_named = 0;
    name_one(ia, "DAT_EXTENSION_INTERFACE", "TRUE");
    if (ia->device.atomic_cap != IBV_ATOMIC_NONE) {
        name_one(ia, DAT_IB_ATTR_FETCH_AND_ADD, "TRUE");
        name_one(ia, DAT_IB_ATTR_CMP_AND_SWAP, "TRUE");
    }
    if (!ia->iwarp)
        name_one(ia, DAT_IB_ATTR_IMMED_DATA, "TRUE");
    snprintf(ia->port_text, sizeof(ia->port_text), "%u", ia->id->port_num);
    name_one(ia, "DAT_IB_DEVICE_NAME", ibv_get_device_name(ia->verbs->device));
    name_one(ia, "DAT_IB_PORT_NUMBER", ia->port_text);
    if (ia->migrates) {
        name_one(ia, DAT_PATH_ATTR, TEXT(DAT_PATH_EXTENSION_VERSION));
        name_one(ia, DAT_PATH_ATTR_PORTS, "2");
    }
    if (in_order(ia))
        name_one(ia, "DAT_PLACEMENT_ORDER", "TRUE");
    name_one(ia, "DAT_VERBSDAT", "TRUE");        /* identifies this provider */
}

/* A CQ has room for writes of no bytes of each EP behind the consumer's events (evd.c). */
static DAT_COUNT max_qlen(const struct verbsdat_ia *ia)
{
    return at_most((int64_t)ia->device.max_cqe * 4 / 5 - 64, 1 << 22);
}

static void fill_ia_attr(struct verbsdat_ia *ia, DAT_IA_ATTR *a)
{
    const struct ibv_device_attr *d = &ia->device;

    memset(a, 0, sizeof(*a));
    snprintf(a->adapter_name, sizeof(a->adapter_name), "%s", ibv_get_device_name(
             ia->verbs->device));
    snprintf(a->vendor_name, sizeof(a->vendor_name), "0x%x", d->vendor_id);
    a->hardware_version_major = d->hw_ver;
    a->ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ia->cfg.addr;
    a->max_eps = d->max_qp;
    a->max_dto_per_ep = at_most((int64_t)d->max_qp_wr - 2, DTO_MAX);
    a->max_rdma_read_per_ep_in = at_most(d->max_qp_rd_atom, READS_MAX);
    a->max_rdma_read_per_ep_out = at_most(d->max_qp_init_rd_atom, READS_MAX);
    a->max_evds = d->max_cq;
    a->max_evd_qlen = max_qlen(ia);
    a->max_iov_segments_per_dto = at_most(d->max_sge, VERBSDAT_MAX_IOV);
    a->max_lmrs = d->max_mr;
    a->max_lmr_block_size = d->max_mr_size;
    a->max_lmr_virtual_address = ~UINT64_C(0);
    a->max_pzs = d->max_pd;
    a->max_message_size = a->max_rdma_size = ia->port.max_msg_sz;
    a->max_iov_segments_per_rdma_read = at_most(d->max_sge_rd > 0 ? d->max_sge_rd : d->max_sge,
                                                VERBSDAT_MAX_IOV);
    a->max_iov_segments_per_rdma_write = a->max_iov_segments_per_dto;
    a->max_rdma_read_in = a->max_rdma_read_out = d->max_res_rd_atom;
    a->max_rdma_read_per_ep_in_guaranteed = DAT_TRUE;
    a->max_rdma_read_per_ep_out_guaranteed = DAT_TRUE;
    a->extension_supported = DAT_EXTENSION_IB;
    a->extension_version = DAT_IB_EXTENSION_VERSION;
    a->max_srqs = d->max_srq;
    a->max_ep_per_srq = d->max_qp;
    a->max_recv_per_srq = at_most(d->max_srq_wr, DTO_MAX);
    a->num_vendor_attr = ia->n_named;
    a->vendor_attr = ia->named;
}

static void fill_provider_attr(struct verbsdat_ia *ia, DAT_PROVIDER_ATTR *a)
{
    DAT_PROVIDER_ATTR fresh = {
        .provider_version_major = 1,
        .dapl_version_major = 2,
        .lmr_mem_types_supported = DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_LMR,
        .iov_ownership_on_return = DAT_IOV_CONSUMER,
        .dat_qos_supported = DAT_QOS_BEST_EFFORT,
        .completion_flags_supported = DAT_COMPLETION_SUPPRESS_FLAG
                                      | DAT_COMPLETION_UNSIGNALLED_FLAG
                                      | DAT_COMPLETION_SOLICITED_WAIT_FLAG
                                      | DAT_COMPLETION_BARRIER_FENCE_FLAG,
        .is_thread_safe = DAT_FALSE,     /* the key of a "nonthreadsafe" line */
        .max_private_data_size = VERBSDAT_PRIV,
        .supports_multipath = DAT_FALSE,
        .ep_creator = DAT_PSP_CREATES_EP_NEVER,
        .pz_support = DAT_PZ_UNIQUE,
        .optimal_buffer_alignment = 64,
        /* software, CR, transfer, connection, RMR, async: any of them may share an EVD */
        .evd_stream_merging_supported = {
            { 1, 1, 1, 1, 0, 1 }, { 1, 1, 1, 1, 0, 1 }, { 1, 1, 1, 1, 0, 1 },
            { 1, 1, 1, 1, 0, 1 }, { 0, 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 0, 1 } },
        .srq_supported = ia->device.max_srq > 0,
        .srq_watermarks_supported = ia->device.max_srq > 0,
        .srq_ep_pz_difference_supported = DAT_TRUE,
        .lmr_sync_req = DAT_FALSE,
        .dto_async_return_guaranteed = DAT_TRUE,
        /* iWARP places the answer of a read as a write of the peer (RFC 5040, 5.2) */
        .rdma_write_for_rdma_read_req = ia->iwarp,
        .ha_supported = DAT_FALSE,
        .num_provider_specific_attr = ia->n_named,
        .provider_specific_attr = ia->named,
    };

    snprintf(fresh.provider_name, sizeof(fresh.provider_name), "%s", ia->name);
    memcpy((void *)a, &fresh, sizeof(fresh));    /* the struct has a const member */
}

DAT_RETURN verbsdat_ia_query(DAT_IA_HANDLE handle, DAT_EVD_HANDLE *evd_p, DAT_IA_ATTR_MASK ia_mask,
                             DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK prov_mask,
                             DAT_PROVIDER_ATTR *prov_attr)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(handle);

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if ((ia_mask && !ia_attr) || (prov_mask && !prov_attr))
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    if (evd_p)
        *evd_p = ia->async_evd;
    if (ia_mask)
        fill_ia_attr(ia, ia_attr);
    if (prov_mask)
        fill_provider_attr(ia, prov_attr);
    return DAT_SUCCESS;
}
