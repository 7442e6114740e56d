/* SPDX-License-Identifier: MIT */
#include "ia.h"

#include "softdat.h"
#include "calls.h"
#include "datline.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    SCRATCH = 1 << 16,           /* bytes of the buffer for reads from sockets */
    KEEP_FREED = 256,            /* freed objects whose memory is kept, to recognise handles */
};

/* -- handles ---------------------------------------------------------------------------------- */

void softdat_handle_init(struct softdat_handle *h, struct softdat_ia *ia, DAT_HANDLE_TYPE type)
{
    h->provider = ia->h.provider;
    h->type = type;
    h->alive = softdat_alive(type);
    h->ia = ia;
    softdat_list_append(&ia->objects, &h->link);
}

static void free_oldest(struct softdat_ia *ia)
{
    struct softdat_handle *h = SOFTDAT_OF(ia->freed.next, struct softdat_handle, link);

    softdat_list_remove(&h->link);
    ia->n_freed--;
    softdat_free(h);                     /* the handle is the first member of every object */
}

void softdat_handle_end(struct softdat_handle *h)
{
    struct softdat_ia *ia = h->ia;

    h->alive = 0;
    softdat_list_remove(&h->link);
    softdat_list_append(&ia->freed, &h->link);
    if (++ia->n_freed > KEEP_FREED)
        free_oldest(ia);
}

static struct softdat_handle *object_of(DAT_HANDLE handle)
{
    struct softdat_handle *h = handle;

    return h && h->alive == softdat_alive(h->type) ? h : NULL;
}

DAT_RETURN softdat_set_context(DAT_HANDLE handle, DAT_CONTEXT context)
{
    struct softdat_handle *h = object_of(handle);

    if (!h)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    h->context = context;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_get_context(DAT_HANDLE handle, DAT_CONTEXT *context)
{
    struct softdat_handle *h = object_of(handle);

    if (!h)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    *context = h->context;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_get_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
    struct softdat_handle *h = object_of(handle);

    if (!h)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    *type = h->type;
    return DAT_SUCCESS;
}

/* -- opening and closing ---------------------------------------------------------------------- */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* Fills the named attributes: facts for which DAT_IA_ATTR has no field. */
static void name_attributes(struct softdat_ia *ia)
{
    static const DAT_NAMED_ATTR always[] = {
        { "DAT_EXTENSION_INTERFACE", "TRUE" },
        { DAT_IB_ATTR_FETCH_AND_ADD, "TRUE" },
        { DAT_IB_ATTR_CMP_AND_SWAP, "TRUE" },
        { DAT_IB_ATTR_IMMED_DATA, "TRUE" },
        { DAT_PATH_ATTR, TEXT(DAT_PATH_EXTENSION_VERSION) },
        { "DAT_SOFTDAT", "TRUE" },                   /* identifies this provider */
        { "DAT_PLACEMENT_ORDER", "TRUE" },   /* of the bytes of RDMA writes */
    };

    memcpy(ia->named, always, sizeof(always));
    ia->n_named = sizeof(always) / sizeof(always[0]);
    snprintf(ia->ports_text, sizeof(ia->ports_text), "%u", ia->cfg.n_ports);
    ia->named[ia->n_named++] = (DAT_NAMED_ATTR){ DAT_PATH_ATTR_PORTS, ia->ports_text };
    if (ia->cfg.n_ports < 2)
        return;
    inet_ntop(AF_INET, &ia->cfg.port[1].addr.sin_addr, ia->port_text, sizeof(ia->port_text));
    ia->named[ia->n_named++] = (DAT_NAMED_ATTR){ "DAT_SOFTDAT_ADDRESS_2", ia->port_text };
}

static struct softdat_ia *ia_make(const char *name, const struct softdat_config *cfg,
                                  DAT_PROVIDER *provider)
{
    struct softdat_ia *ia = softdat_alloc(sizeof(*ia));

    if (!ia)
        return NULL;
    ia->scratch = softdat_alloc(SCRATCH);
    if (!ia->scratch) {
        softdat_free(ia);
        return NULL;
    }
    ia->h = (struct softdat_handle){ .provider = provider, .type = DAT_HANDLE_TYPE_IA,
                                     .alive = softdat_alive(DAT_HANDLE_TYPE_IA), .ia = ia };
    softdat_list_init(&ia->h.link);
    snprintf(ia->name, sizeof(ia->name), "%s", name);
    ia->cfg = *cfg;
    datlock_init(&ia->lock);
    softdat_list_init(&ia->objects);
    softdat_list_init(&ia->freed);
    softdat_list_init(&ia->conns);
    softdat_list_init(&ia->acks);
    softdat_list_init(&ia->to_free);
    softdat_list_init(&ia->rings);
    softdat_list_init(&ia->streams);
    softdat_list_init(&ia->delayed);
    softdat_list_init(&ia->to_break);
    softdat_list_init(&ia->standbys);
    ia->random = cfg->seed;
    softdat_judge_init(&ia->judge_write);
    softdat_judge_init(&ia->judge_read);
    name_attributes(ia);
    ia->next_deadline = UINT64_MAX;
    if (getrandom(&ia->probe_value, sizeof(ia->probe_value), GRND_NONBLOCK)
        != sizeof(ia->probe_value))
        ia->probe_value = softdat_now();
    return ia;
}

static void ia_free(struct softdat_ia *ia)
{
    while (ia->n_freed > 0)
        free_oldest(ia);
    datlock_destroy(&ia->lock);
    softdat_free(ia->mem);
    softdat_free(ia->scratch);
    ia->h.alive = 0;
    softdat_free(ia);
}

DAT_RETURN softdat_ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd_p,
                           DAT_IA_HANDLE *ia_p)
{
    DAT_PROVIDER *provider = NULL;
    const char *text = name ? datline_params(name, &provider) : NULL;
    struct softdat_config cfg;
    struct softdat_ia *ia;

    if (!text)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    if (qlen < 0 || !evd_p || !ia_p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (*evd_p != DAT_HANDLE_NULL)   /* an EVD is protected by its own adapter's lock */
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_ASYNC);
    if (softdat_config_parse(name, text, &cfg))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    ia = ia_make(name, &cfg, provider);
    if (!ia)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    ia->async_evd = softdat_evd_make(ia, qlen > 8 ? qlen : 8, DAT_EVD_ASYNC_FLAG);
    if (!ia->async_evd || softdat_net_start(ia)) {
        if (ia->async_evd)
            softdat_evd_destroy(ia->async_evd);
        ia_free(ia);
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
    }
    softdat_fork_register(ia);
    *evd_p = ia->async_evd;
    *ia_p = ia;
    return DAT_SUCCESS;
}

/* Frees all objects of one type. The types are freed in an order that frees users first. */
static void free_kind(struct softdat_ia *ia, DAT_HANDLE_TYPE type,
                      DAT_RETURN (*release)(DAT_HANDLE))
{
    struct softdat_list *l = ia->objects.next;

    while (l != &ia->objects) {
        struct softdat_handle *h = SOFTDAT_OF(l, struct softdat_handle, link);

        l = l->next;
        if (h->type == type && (void *)h != (void *)ia->async_evd
            && DAT_GET_TYPE(release(h)) == DAT_SUCCESS)
            l = ia->objects.next;    /* other objects may have been freed with it */
    }
}

static DAT_RETURN reject(DAT_HANDLE cr)
{
    return softdat_cr_reject(cr, 0, NULL);
}

static bool in_use(struct softdat_ia *ia)
{
    struct softdat_list *l;
    bool found = false;

    softdat_lock(ia);
    for (l = ia->objects.next; l != &ia->objects && !found; l = l->next)
        found = (void *)SOFTDAT_OF(l, struct softdat_handle, link) != (void *)ia->async_evd;
    softdat_unlock(ia);
    return found;
}

DAT_RETURN softdat_ia_close(DAT_IA_HANDLE handle, DAT_CLOSE_FLAGS flags)
{
    struct softdat_ia *ia = softdat_get(handle, DAT_HANDLE_TYPE_IA);

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (flags == DAT_CLOSE_GRACEFUL_FLAG && in_use(ia))
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    free_kind(ia, DAT_HANDLE_TYPE_CR, reject);
    free_kind(ia, DAT_HANDLE_TYPE_RSP, softdat_rsp_free);
    free_kind(ia, DAT_HANDLE_TYPE_PSP, softdat_psp_free);
    free_kind(ia, DAT_HANDLE_TYPE_EP, softdat_ep_free);
    softdat_fork_unregister(ia);
    softdat_net_stop(ia);
    free_kind(ia, DAT_HANDLE_TYPE_SRQ, softdat_srq_free);
    free_kind(ia, DAT_HANDLE_TYPE_RMR, softdat_rmr_free);
    free_kind(ia, DAT_HANDLE_TYPE_EVD, softdat_evd_free);
    free_kind(ia, DAT_HANDLE_TYPE_CNO, softdat_cno_free);
    free_kind(ia, DAT_HANDLE_TYPE_LMR, softdat_lmr_free);
    free_kind(ia, DAT_HANDLE_TYPE_PZ, softdat_pz_free);
    softdat_evd_destroy(ia->async_evd);
    ia_free(ia);
    return DAT_SUCCESS;
}

/* -- attributes ------------------------------------------------------------------------------- */

static void fill_ia_attr(struct softdat_ia *ia, DAT_IA_ATTR *a)
{
    const struct softdat_config *cfg = &ia->cfg;

    memset(a, 0, sizeof(*a));
    snprintf(a->adapter_name, sizeof(a->adapter_name), "%s", ia->name);
    snprintf(a->vendor_name, sizeof(a->vendor_name), "mpich-dapl software adapter");
    a->hardware_version_major = 1;
    a->firmware_version_major = 1;
    a->ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ia->cfg.port[0].addr;
    a->max_eps = 1 << 16;
    a->max_dto_per_ep = (DAT_COUNT)cfg->max_dtos;
    a->max_rdma_read_per_ep_in = a->max_rdma_read_per_ep_out = (DAT_COUNT)cfg->max_reads;
    a->max_evds = 1 << 16;
    a->max_evd_qlen = SOFTDAT_MAX_QLEN;
    a->max_iov_segments_per_dto = (DAT_COUNT)cfg->max_iov;
    a->max_lmrs = (DAT_COUNT)cfg->max_lmrs;
    a->max_lmr_block_size = cfg->max_lmr_size;
    a->max_lmr_virtual_address = ~UINT64_C(0);
    a->max_pzs = 1 << 16;
    a->max_message_size = a->max_rdma_size = cfg->max_message;
    a->max_iov_segments_per_rdma_read = (DAT_COUNT)cfg->max_rdma_iov;
    a->max_iov_segments_per_rdma_write = (DAT_COUNT)cfg->max_rdma_iov;
    a->max_rdma_read_in = a->max_rdma_read_out = cfg->max_reads ? 1 << 16 : 0;
    a->max_rdma_read_per_ep_in_guaranteed = DAT_TRUE;
    a->max_rdma_read_per_ep_out_guaranteed = DAT_TRUE;
    a->extension_supported = DAT_EXTENSION_IB;
    a->extension_version = DAT_IB_EXTENSION_VERSION;
    a->max_srqs = 1 << 16;
    a->max_ep_per_srq = 1 << 16;
    a->max_recv_per_srq = (DAT_COUNT)cfg->max_dtos;
    a->max_rmrs = 1 << 18;
    a->max_rmr_target_address = ~UINT64_C(0);
    a->num_transport_attr = 0;
    a->num_vendor_attr = ia->n_named;
    a->vendor_attr = ia->named;
}

static void fill_provider_attr(struct softdat_ia *ia, DAT_PROVIDER_ATTR *a)
{
    DAT_PROVIDER_ATTR fresh = {
        .provider_version_major = 1,
        .dapl_version_major = 2,
        .lmr_mem_types_supported = DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_LMR
                                   | DAT_MEM_TYPE_SHARED_VIRTUAL,
        .iov_ownership_on_return = DAT_IOV_CONSUMER,
        .dat_qos_supported = DAT_QOS_BEST_EFFORT,
        .completion_flags_supported = DAT_COMPLETION_SUPPRESS_FLAG
                                      | DAT_COMPLETION_UNSIGNALLED_FLAG
                                      | DAT_COMPLETION_SOLICITED_WAIT_FLAG
                                      | DAT_COMPLETION_BARRIER_FENCE_FLAG,
        .is_thread_safe = DAT_FALSE,     /* the key of a "nonthreadsafe" line */
        .max_private_data_size = (DAT_COUNT)ia->cfg.max_priv,
        .supports_multipath = ia->cfg.n_ports > 1 ? DAT_TRUE : DAT_FALSE,
        .ep_creator = DAT_PSP_CREATES_EP_NEVER,
        .pz_support = DAT_PZ_UNIQUE,
        .optimal_buffer_alignment = 64,
        .evd_stream_merging_supported = {
            { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 },
            { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1 } },
        .srq_supported = DAT_TRUE,
        .srq_watermarks_supported = 1,
        .srq_ep_pz_difference_supported = DAT_TRUE,
        .srq_info_supported = 1,
        .ep_recv_info_supported = 1,
        .lmr_sync_req = DAT_FALSE,
        .dto_async_return_guaranteed = DAT_TRUE,
        .rdma_write_for_rdma_read_req = DAT_FALSE,
        .ha_supported = ia->cfg.n_ports > 1 ? DAT_TRUE : DAT_FALSE,
        .ha_loadbalancing = DAT_HA_LB_NONE,  /* connections are moved only by their consumer */
        .num_provider_specific_attr = ia->n_named,
        .provider_specific_attr = ia->named,
    };

    snprintf(fresh.provider_name, sizeof(fresh.provider_name), "%s", ia->name);
    memcpy((void *)a, &fresh, sizeof(fresh));    /* the struct has a const member */
}

DAT_RETURN softdat_ia_query(DAT_IA_HANDLE handle, DAT_EVD_HANDLE *evd_p, DAT_IA_ATTR_MASK ia_mask,
                            DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK prov_mask,
                            DAT_PROVIDER_ATTR *prov_attr)
{
    struct softdat_ia *ia = softdat_get(handle, DAT_HANDLE_TYPE_IA);

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if ((ia_mask && !ia_attr) || (prov_mask && !prov_attr))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    if (evd_p)
        *evd_p = ia->async_evd;
    if (ia_mask)
        fill_ia_attr(ia, ia_attr);
    if (prov_mask)
        fill_provider_attr(ia, prov_attr);
    return DAT_SUCCESS;
}
