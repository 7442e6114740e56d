/* SPDX-License-Identifier: MIT */
#include "ia.h"

#include "verbsdat.h"
#include "calls.h"
#include "datline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_FREED = 256 };       /* freed objects whose memory is kept, to recognise handles */

/* All open adapters. Those of one device share its context, and so its asynchronous events. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mdapl_list open_ias = { &open_ias, &open_ias };

struct verbsdat_ia *verbsdat_ia_of(DAT_IA_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_IA);
}

void verbsdat_lock(struct verbsdat_ia *ia)
{
    pthread_mutex_lock(&ia->lock);
}

void verbsdat_unlock(struct verbsdat_ia *ia)
{
    pthread_mutex_unlock(&ia->lock);
    verbsdat_cno_agents(ia);
}

void verbsdat_ia_each(const struct ibv_context *verbs, void (*f)(struct verbsdat_ia *, void *),
                      void *arg)
{
    pthread_mutex_lock(&open_lock);
    for (struct mdapl_list *l = open_ias.next; l != &open_ias; l = l->next) {
        struct verbsdat_ia *ia = MDAPL_OF(l, struct verbsdat_ia, open);

        if (ia->verbs == verbs)
            f(ia, arg);
    }
    pthread_mutex_unlock(&open_lock);
}

static void set_open(struct verbsdat_ia *ia, bool open)
{
    pthread_mutex_lock(&open_lock);
    if (open)
        mdapl_list_append(&open_ias, &ia->open);
    else
        mdapl_list_remove(&ia->open);
    pthread_mutex_unlock(&open_lock);
}

/* -- handles ---------------------------------------------------------------------------------- */

void verbsdat_handle_init(struct verbsdat_handle *h, struct verbsdat_ia *ia, DAT_HANDLE_TYPE type)
{
    h->provider = ia->h.provider;
    h->type = type;
    h->alive = VERBSDAT_ALIVE;
    h->ia = ia;
    mdapl_list_append(&ia->objects, &h->link);
}

void verbsdat_handle_add(struct verbsdat_handle *h, struct verbsdat_ia *ia, DAT_HANDLE_TYPE type)
{
    verbsdat_lock(ia);
    verbsdat_handle_init(h, ia, type);
    verbsdat_unlock(ia);
}

static void free_oldest(struct verbsdat_ia *ia)
{
    struct verbsdat_handle *h = MDAPL_OF(ia->freed.next, struct verbsdat_handle, link);

    mdapl_list_remove(&h->link);
    ia->n_freed--;
    free(h);                     /* the handle is the first member of every object */
}

void verbsdat_handle_end(struct verbsdat_handle *h)
{
    struct verbsdat_ia *ia = h->ia;

    h->alive = 0;
    mdapl_list_remove(&h->link);
    mdapl_list_append(&ia->freed, &h->link);
    if (++ia->n_freed > KEEP_FREED)
        free_oldest(ia);
}

static struct verbsdat_handle *object_of(DAT_HANDLE handle)
{
    struct verbsdat_handle *h = handle;

    return h && h->alive == VERBSDAT_ALIVE ? h : NULL;
}

DAT_RETURN verbsdat_set_context(DAT_HANDLE handle, DAT_CONTEXT context)
{
    struct verbsdat_handle *h = object_of(handle);

    if (!h)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    h->context = context;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_get_context(DAT_HANDLE handle, DAT_CONTEXT *context)
{
    struct verbsdat_handle *h = object_of(handle);

    if (!h)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    *context = h->context;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_get_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
    struct verbsdat_handle *h = object_of(handle);

    if (!h)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_NO_SUBTYPE);
    *type = h->type;
    return DAT_SUCCESS;
}

/* -- opening ---------------------------------------------------------------------------------- */

static struct verbsdat_ia *ia_make(const char *name, const struct verbsdat_config *cfg,
                                   DAT_PROVIDER *provider)
{
    struct verbsdat_ia *ia = calloc(1, sizeof(*ia));

    if (!ia)
        return NULL;
    ia->h = (struct verbsdat_handle){ .provider = provider, .type = DAT_HANDLE_TYPE_IA,
                                      .alive = VERBSDAT_ALIVE, .ia = ia };
    snprintf(ia->name, sizeof(ia->name), "%s", name);
    ia->cfg = *cfg;
    mdapl_list_init(&ia->h.link);
    mdapl_list_init(&ia->open);
    mdapl_list_init(&ia->objects);
    mdapl_list_init(&ia->freed);
    pthread_mutex_init(&ia->lock, NULL);
    pthread_mutex_init(&ia->qp_lock, NULL);
    ia->ask.h = (struct verbsdat_handle){ .provider = provider, .alive = VERBSDAT_ALIVE,
                                          .type = VERBSDAT_ASK, .ia = ia };
    ia->next_deadline = UINT64_MAX;
    ia->epfd = ia->wake_fd = -1;
    return ia;
}

static void ia_free(struct verbsdat_ia *ia)
{
    verbsdat_alternate_close(ia);
    if (ia->id)
        rdma_destroy_id(ia->id);
    if (ia->cm)
        rdma_destroy_event_channel(ia->cm);
    while (ia->n_freed > 0)
        free_oldest(ia);
    pthread_mutex_destroy(&ia->lock);
    pthread_mutex_destroy(&ia->qp_lock);
    ia->h.alive = 0;
    free(ia);
}

static int nonblocking(int fd)
{
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Finds the device of the address. 0, or an errno value. */
static int open_device(struct verbsdat_ia *ia)
{
    errno = 0;
    ia->cm = rdma_create_event_channel();
    if (!ia->cm || nonblocking(ia->cm->fd))
        return errno ? errno : ENODEV;
    ia->id = verbsdat_cm_id(ia, &ia->cfg.addr, 0, NULL);
    if (!ia->id)
        return errno ? errno : ENODEV;
    ia->verbs = ia->id->verbs;
    if (!ia->verbs)
        return ENODEV;           /* a wildcard address belongs to no device */
    if (nonblocking(ia->verbs->async_fd) || ibv_query_device(ia->verbs, &ia->device)
        || ibv_query_port(ia->verbs, ia->id->port_num, &ia->port))
        return errno ? errno : EIO;
    ia->iwarp = ia->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
    return 0;
}

/* what: the cause, for the user. */
static DAT_RETURN refused(struct verbsdat_ia *ia, const char *what, int error)
{
    fprintf(stderr, "daplverbs: IA %s: %s: %s\n", ia->name, what, strerror(error));
    if (ia->async_evd)
        verbsdat_evd_destroy(ia->async_evd);
    ia_free(ia);
    errno = error;
    return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
}

/* No error: the port may come up, and a job with several adapters has the others. */
static void warn_if_down(const struct verbsdat_ia *ia)
{
    if (ia->port.state != IBV_PORT_ACTIVE)
        fprintf(stderr, "daplverbs: IA %s: port %u of %s is not active (%s): check its cable\n",
                ia->name, ia->id->port_num, ibv_get_device_name(ia->verbs->device),
                ibv_port_state_str(ia->port.state));
}

DAT_RETURN verbsdat_ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd_p,
                            DAT_IA_HANDLE *ia_p)
{
    DAT_PROVIDER *provider = NULL;
    const char *text = name ? datline_params(name, &provider) : NULL;
    struct verbsdat_config cfg;
    struct verbsdat_ia *ia;
    int error;

    if (!text)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    if (qlen < 0 || !evd_p || !ia_p)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (*evd_p != DAT_HANDLE_NULL)       /* an EVD belongs to one adapter */
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_ASYNC);
    if (verbsdat_config_parse(name, text, &cfg))
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
    ia = ia_make(name, &cfg, provider);
    if (!ia)
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    error = open_device(ia);
    if (error)
        return refused(ia, "no verbs device of this host has its address", error);
    warn_if_down(ia);
    error = verbsdat_alternate_open(ia);
    if (error)
        return refused(ia, "no other port of its adapter has the address alternate=", error);
    verbsdat_attr_name(ia);
    ia->async_evd = verbsdat_evd_make(ia, qlen > 8 ? qlen : 8, DAT_EVD_ASYNC_FLAG);
    error = ia->async_evd ? verbsdat_thread_start(ia) : errno;
    if (error)
        return refused(ia, "it cannot start its thread and its event queue", error);
    set_open(ia, true);
    *evd_p = ia->async_evd;
    *ia_p = ia;
    return DAT_SUCCESS;
}

/* -- closing ---------------------------------------------------------------------------------- */

/* The first object of a type, but not the asynchronous EVD; NULL: none. */
static struct verbsdat_handle *first_of(struct verbsdat_ia *ia, DAT_HANDLE_TYPE type)
{
    struct verbsdat_handle *found = NULL;

    verbsdat_lock(ia);
    for (struct mdapl_list *l = ia->objects.next; l != &ia->objects && !found; l = l->next) {
        struct verbsdat_handle *h = MDAPL_OF(l, struct verbsdat_handle, link);

        if (h->type == type && h != &ia->async_evd->h)
            found = h;
    }
    pthread_mutex_unlock(&ia->lock);
    return found;
}

static DAT_RETURN reject(DAT_HANDLE cr)
{
    return verbsdat_cr_reject(cr, 0, NULL);
}

/* Types in an order that frees users first. */
static const struct {
    DAT_HANDLE_TYPE type;
    DAT_RETURN (*release)(DAT_HANDLE);
} order[] = {
    { DAT_HANDLE_TYPE_CR, reject },             { DAT_HANDLE_TYPE_PSP, verbsdat_psp_free },
    { DAT_HANDLE_TYPE_EP, verbsdat_ep_free },   { DAT_HANDLE_TYPE_SRQ, verbsdat_srq_free },
    { DAT_HANDLE_TYPE_EVD, verbsdat_evd_free }, { DAT_HANDLE_TYPE_CNO, verbsdat_cno_free },
    { DAT_HANDLE_TYPE_LMR, verbsdat_lmr_free }, { DAT_HANDLE_TYPE_PZ, verbsdat_pz_free },
};
enum { TYPES = sizeof(order) / sizeof(order[0]) };

DAT_RETURN verbsdat_ia_close(DAT_IA_HANDLE handle, DAT_CLOSE_FLAGS flags)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(handle);
    struct verbsdat_handle *h;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    for (int i = 0; flags == DAT_CLOSE_GRACEFUL_FLAG && i < TYPES; i++)
        if (first_of(ia, order[i].type))
            return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    for (int i = 0; i < TYPES; i++)
        while ((h = first_of(ia, order[i].type)))
            if (DAT_GET_TYPE(order[i].release(h)) != DAT_SUCCESS)
                return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    set_open(ia, false);
    verbsdat_thread_stop(ia);
    verbsdat_evd_destroy(ia->async_evd);
    ia_free(ia);
    return DAT_SUCCESS;
}
