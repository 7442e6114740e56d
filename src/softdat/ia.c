/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    SCRATCH = 1 << 16,
    DIRECT_BYTES = 1 << 16,
};

/* -- IA parameters ---------------------------------------------------------------------------- */

/* The IPv4 address of an interface; name NULL: the first that is up and no loopback. */
static bool interface_addr(const char *name, struct in_addr *addr)
{
    struct ifaddrs *all, *i;
    bool found = false;

    if (getifaddrs(&all))
        return false;
    for (i = all; i && !found; i = i->ifa_next) {
        bool fits = name ? strcmp(i->ifa_name, name) == 0
                         : (i->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;

        if (!fits || !i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        *addr = ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr;
        found = true;
    }
    freeifaddrs(all);
    return found;
}

/* One parameter: sets it, or says what would be right. */
static const char *set_addr(struct softdat_config *cfg, const char *value)
{
    return inet_pton(AF_INET, value, &cfg->addr.sin_addr) == 1 ? NULL
                                                               : "an IPv4 address of this host";
}

static const char *set_if(struct softdat_config *cfg, const char *value)
{
    return interface_addr(value, &cfg->addr.sin_addr)
               ? NULL : "the name of an interface that has an IPv4 address";
}

static const char *set_priv(struct softdat_config *cfg, const char *value)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);

    cfg->max_priv = (uint32_t)n;
    return *value && !*end && n <= SOFTDAT_PRIV_MAX ? NULL : "a number from 0 to 256";
}

/* Bytes, with k or m behind the number; "off" is none. */
static const char *set_direct(struct softdat_config *cfg, const char *value)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);

    if (strcmp(value, "off") == 0) {
        cfg->direct_bytes = 0;
        return NULL;
    }
    n <<= *end == 'k' ? 10 : *end == 'm' ? 20 : 0;
    end += *end == 'k' || *end == 'm';
    cfg->direct_bytes = n;
    return *value && !*end && n > 0 && n <= UINT32_MAX ? NULL : "off or a number of bytes";
}

static const char *set_local(struct softdat_config *cfg, const char *value)
{
    static const char *const word[] = { "tcp", "socket", "shared" };

    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++)
        if (strcmp(word[i], value) == 0) {
            cfg->local = (enum softdat_local)i;
            return NULL;
        }
    return "shared, socket or tcp";
}

static const char *set_polled(struct softdat_config *cfg, const char *value)
{
    cfg->direct_polled = strcmp(value, "direct") == 0;
    return cfg->direct_polled || strcmp(value, "rings") == 0 ? NULL : "rings or direct";
}

static const struct {
    const char *name;
    const char *(*set)(struct softdat_config *, const char *);
} params[] = {
    { "addr", set_addr },        /* the adapter's address */
    { "if", set_if },            /* the interface whose address it is */
    { "max_priv", set_priv },    /* bytes of private data */
    { "local", set_local },      /* how processes of one host are connected */
    { "direct", set_direct },    /* RDMA from so many bytes on goes straight between processes */
    { "polled", set_polled },    /* ... and what carries it while the target polls */
};

static int set_param(const char *ia_name, struct softdat_config *cfg, char *word)
{
    char *value = strchr(word, '=');
    const char *right = "one of addr=, if=, max_priv=, local=, direct=, polled=";

    if (value) {
        *value++ = '\0';
        for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
            if (strcmp(params[i].name, word) == 0)
                right = params[i].set(cfg, value);
    }
    if (!right)
        return 0;
    fprintf(stderr, "daplsoft: IA %s: parameter \"%s%s%s\" is not possible: it must be %s. Correct "
            "the IA's line in dat.conf\n",
            ia_name, word, value ? "=" : "", value ? value : "", right);
    return -1;
}

/* "key=value key=value": blanks or commas between them. */
int softdat_config_parse(const char *ia_name, const char *text, struct softdat_config *cfg)
{
    char *copy = strdup(text), *save = NULL;
    int rc = copy ? 0 : -1;

    memset(cfg, 0, sizeof(*cfg));
    cfg->addr.sin_family = AF_INET;
    cfg->max_priv = SOFTDAT_PRIV_MAX;
    cfg->direct_bytes = DIRECT_BYTES;
    cfg->local = SOFTDAT_LOCAL_SHARED;
    for (char *w = copy ? strtok_r(copy, " \t,", &save) : NULL; w && !rc;
         w = strtok_r(NULL, " \t,", &save))
        rc = set_param(ia_name, cfg, w);
    free(copy);
    if (!rc && cfg->addr.sin_addr.s_addr == 0
        && !interface_addr(NULL, &cfg->addr.sin_addr))
        cfg->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return rc;
}

/* -- handles ---------------------------------------------------------------------------------- */

void softdat_handle_init(struct softdat_handle *h, struct softdat_ia *ia, DAT_HANDLE_TYPE type)
{
    h->provider = ia->h.provider;
    h->type = type;
    h->alive = SOFTDAT_ALIVE;
    h->ia = ia;
    softdat_list_append(&ia->handles, &h->link);
}

void softdat_handle_fini(struct softdat_handle *h)
{
    h->alive = 0;
    softdat_list_remove(&h->link);
}

void *softdat_get(DAT_HANDLE handle, DAT_HANDLE_TYPE type)
{
    struct softdat_handle *h = handle;

    return h && h->alive == SOFTDAT_ALIVE && h->type == type ? h : NULL;
}

static struct softdat_handle *any_of(DAT_HANDLE handle)
{
    struct softdat_handle *h = handle;

    return h && h->alive == SOFTDAT_ALIVE ? h : NULL;
}

void softdat_lock(struct softdat_ia *ia)
{
    pthread_mutex_lock(&ia->lock);
}

void softdat_unlock(struct softdat_ia *ia)
{
    if (ia->n_agents_due > 0)
        softdat_run_agents(ia);
    pthread_mutex_unlock(&ia->lock);
}

DAT_RETURN softdat_set_context(DAT_HANDLE handle, DAT_CONTEXT context)
{
    struct softdat_handle *h = any_of(handle);

    if (!h)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    h->context = context;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_get_context(DAT_HANDLE handle, DAT_CONTEXT *context)
{
    struct softdat_handle *h = any_of(handle);

    if (!h)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    *context = h->context;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_get_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
    struct softdat_handle *h = any_of(handle);

    if (!h)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    *type = h->type;
    return DAT_SUCCESS;
}

/* -- opening and closing ---------------------------------------------------------------------- */

static struct softdat_ia *ia_make(const char *name, const struct softdat_config *cfg,
                                  DAT_PROVIDER *provider)
{
    struct softdat_ia *ia = calloc(1, sizeof(*ia));

    if (!ia)
        return NULL;
    ia->scratch = malloc(SCRATCH);
    if (!ia->scratch) {
        free(ia);
        return NULL;
    }
    ia->h = (struct softdat_handle){ .provider = provider, .type = DAT_HANDLE_TYPE_IA,
                                     .alive = SOFTDAT_ALIVE, .ia = ia };
    softdat_list_init(&ia->h.link);
    snprintf(ia->name, sizeof(ia->name), "%s", name);
    ia->cfg = *cfg;
    pthread_mutex_init(&ia->lock, NULL);
    softdat_list_init(&ia->handles);
    softdat_list_init(&ia->conns);
    softdat_list_init(&ia->acks);
    softdat_list_init(&ia->dead);
    softdat_list_init(&ia->rings);
    ia->next_deadline = UINT64_MAX;
    if (getrandom(&ia->word, sizeof(ia->word), GRND_NONBLOCK) != sizeof(ia->word))
        ia->word = softdat_now();
    return ia;
}

static void ia_free(struct softdat_ia *ia)
{
    pthread_mutex_destroy(&ia->lock);
    free(ia->mem);
    free(ia->scratch);
    ia->h.alive = 0;
    free(ia);
}

DAT_RETURN softdat_ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd_p,
                           DAT_IA_HANDLE *ia_p)
{
    DAT_PROVIDER *provider = NULL;
    const char *text = name ? softdat_line_params(name, &provider) : NULL;
    struct softdat_config cfg;
    struct softdat_ia *ia;

    if (!text)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    if (qlen < 0 || !evd_p || !ia_p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (softdat_config_parse(name, text, &cfg))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    ia = ia_make(name, &cfg, provider);
    if (!ia)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    ia->own_async = *evd_p == DAT_HANDLE_NULL;
    ia->async_evd = ia->own_async ? softdat_evd_make(ia, qlen > 8 ? qlen : 8, DAT_EVD_ASYNC_FLAG)
                                  : softdat_get(*evd_p, DAT_HANDLE_TYPE_EVD);
    if (!ia->async_evd || softdat_net_start(ia)) {
        if (ia->own_async && ia->async_evd)
            softdat_evd_destroy(ia->async_evd);
        ia_free(ia);
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
    }
    *evd_p = ia->async_evd;
    *ia_p = ia;
    return DAT_SUCCESS;
}

/* Frees all objects of one kind: users before what they use. */
static void free_kind(struct softdat_ia *ia, DAT_HANDLE_TYPE type,
                      DAT_RETURN (*release)(DAT_HANDLE))
{
    struct softdat_list *l = ia->handles.next;

    while (l != &ia->handles) {
        struct softdat_handle *h = SOFTDAT_OF(l, struct softdat_handle, link);

        l = l->next;
        if (h->type == type && (void *)h != (void *)ia->async_evd
            && DAT_GET_TYPE(release(h)) == DAT_SUCCESS)
            l = ia->handles.next;    /* others may have gone with it */
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
    for (l = ia->handles.next; l != &ia->handles && !found; l = l->next)
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
    softdat_net_stop(ia);
    free_kind(ia, DAT_HANDLE_TYPE_SRQ, softdat_srq_free);
    free_kind(ia, DAT_HANDLE_TYPE_RMR, softdat_rmr_free);
    free_kind(ia, DAT_HANDLE_TYPE_EVD, softdat_evd_free);
    free_kind(ia, DAT_HANDLE_TYPE_CNO, softdat_cno_free);
    free_kind(ia, DAT_HANDLE_TYPE_LMR, softdat_lmr_free);
    free_kind(ia, DAT_HANDLE_TYPE_PZ, softdat_pz_free);
    if (ia->own_async)
        softdat_evd_destroy(ia->async_evd);
    ia_free(ia);
    return DAT_SUCCESS;
}

/* -- attributes ------------------------------------------------------------------------------- */

static DAT_NAMED_ATTR named[] = {
    { "DAT_EXTENSION_INTERFACE", "TRUE" },
    { DAT_IB_ATTR_FETCH_AND_ADD, "TRUE" },
    { DAT_IB_ATTR_CMP_AND_SWAP, "TRUE" },
    { DAT_IB_ATTR_IMMED_DATA, "TRUE" },
    { "DAT_SOFTDAT", "TRUE" },                   /* this provider */
    { "DAT_SOFTDAT_PLACEMENT_ORDER", "TRUE" },   /* RDMA writes land in address order */
};

static void fill_ia(struct softdat_ia *ia, DAT_IA_ATTR *a)
{
    memset(a, 0, sizeof(*a));
    snprintf(a->adapter_name, sizeof(a->adapter_name), "%s", ia->name);
    snprintf(a->vendor_name, sizeof(a->vendor_name), "mpich-dapl software adapter");
    a->hardware_version_major = 1;
    a->firmware_version_major = 1;
    a->ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ia->cfg.addr;
    a->max_eps = 1 << 16;
    a->max_dto_per_ep = SOFTDAT_MAX_DTO;
    a->max_rdma_read_per_ep_in = a->max_rdma_read_per_ep_out = SOFTDAT_MAX_READS;
    a->max_evds = 1 << 16;
    a->max_evd_qlen = SOFTDAT_MAX_QLEN;
    a->max_iov_segments_per_dto = SOFTDAT_MAX_IOV;
    a->max_lmrs = 1 << 18;
    a->max_lmr_block_size = UINT32_MAX;
    a->max_lmr_virtual_address = ~UINT64_C(0);
    a->max_pzs = 1 << 16;
    a->max_message_size = a->max_rdma_size = UINT32_C(1) << 31;
    a->max_iov_segments_per_rdma_read = a->max_iov_segments_per_rdma_write = SOFTDAT_MAX_IOV;
    a->max_rdma_read_in = a->max_rdma_read_out = 1 << 16;
    a->max_rdma_read_per_ep_in_guaranteed = DAT_TRUE;
    a->max_rdma_read_per_ep_out_guaranteed = DAT_TRUE;
    a->extension_supported = DAT_EXTENSION_IB;
    a->extension_version = DAT_IB_EXTENSION_VERSION;
    a->max_srqs = 1 << 16;
    a->max_ep_per_srq = 1 << 16;
    a->max_recv_per_srq = SOFTDAT_MAX_DTO;
    a->max_rmrs = 1 << 18;
    a->max_rmr_target_address = ~UINT64_C(0);
    a->num_transport_attr = 0;
    a->num_vendor_attr = (DAT_COUNT)(sizeof(named) / sizeof(named[0]));
    a->vendor_attr = named;
}

static void fill_provider(struct softdat_ia *ia, DAT_PROVIDER_ATTR *a)
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
        .supports_multipath = DAT_FALSE,
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
        .ha_supported = DAT_FALSE,
        .num_provider_specific_attr = (DAT_COUNT)(sizeof(named) / sizeof(named[0])),
        .provider_specific_attr = named,
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
        fill_ia(ia, ia_attr);
    if (prov_mask)
        fill_provider(ia, prov_attr);
    return DAT_SUCCESS;
}
