/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/*
 * Alternate paths as verbs have them: ibv_modify_qp() with IBV_QP_ALT_PATH and
 * IBV_QP_PATH_MIG_STATE. A device may claim IBV_DEVICE_AUTO_PATH_MIG and its driver, or the kernel,
 * refuse such a path (as Linux does on RoCE): so the IA loads one for a QP of its own and sees.
 */

/* -- what the adapter has ---------------------------------------------------------------------- */

/* The port of the adapter that has this address; 0: none has, errno says why. */
static uint8_t port_of(struct verbsdat_ia *ia, const struct sockaddr_in *addr)
{
    struct rdma_cm_id *id = verbsdat_cm_id(ia, addr, 0, NULL);
    uint8_t port;

    if (!id)
        return 0;
    port = id->verbs == ia->verbs ? id->port_num : 0;
    rdma_destroy_id(id);
    errno = ENODEV;
    return port;
}

/* A path from a port to itself. False: the port cannot be queried. */
static bool to_itself(const struct verbsdat_ia *ia, struct ibv_ah_attr *ah)
{
    const uint8_t number = ia->id->port_num;

    *ah = (struct ibv_ah_attr){ .port_num = number, .dlid = ia->port.lid,
                                .is_global = ia->port.link_layer == IBV_LINK_LAYER_ETHERNET,
                                .grh.hop_limit = 1 };
    return ibv_query_gid(ia->verbs, number, 0, &ah->grh.dgid) == 0;
}

/* Loads a path for a QP that is connected to itself. */
static bool takes_alternate(struct verbsdat_ia *ia, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = ia->id->port_num };
    int rc = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT
                                      | IBV_QP_ACCESS_FLAGS);

    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256,
                                 .dest_qp_num = qp->qp_num, .min_rnr_timer = 1,
                                 .alt_port_num = ia->id->port_num };
    if (rc || !to_itself(ia, &attr.ah_attr))
        return false;
    attr.alt_ah_attr = attr.ah_attr;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
                                    | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC
                                    | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH) == 0;
}

struct ibv_qp *verbsdat_unused_qp(struct verbsdat_ia *ia)
{
    struct verbsdat_ask *a = &ia->ask;
    struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
                                     .cap = { .max_send_wr = 1, .max_recv_wr = 1,
                                              .max_send_sge = 1, .max_recv_sge = 1 } };

    if (a->pd)                   /* it has been asked for before */
        return a->qp;
    a->pd = ibv_alloc_pd(ia->verbs);
    a->cq = ibv_create_cq(ia->verbs, 1, NULL, NULL, 0);
    attr.send_cq = attr.recv_cq = a->cq;
    a->qp = a->pd && a->cq ? ibv_create_qp(a->pd, &attr) : NULL;
    return a->qp;
}

static bool can_migrate(struct verbsdat_ia *ia)
{
    struct ibv_qp *qp;

    if (ia->iwarp || !(ia->device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG))
        return false;
    qp = verbsdat_unused_qp(ia);
    return qp && takes_alternate(ia, qp);
}

int verbsdat_alternate_open(struct verbsdat_ia *ia)
{
    const struct sockaddr_in *addr[VERBSDAT_PORTS] = { &ia->cfg.addr, &ia->cfg.alternate };

    if (ia->cfg.alternate.sin_family != AF_INET)
        return 0;
    for (int i = 0; i < VERBSDAT_PORTS; i++) {
        ia->at[i] = *addr[i];
        ia->verbs_port[i] = port_of(ia, addr[i]);
        if (!ia->verbs_port[i])
            return errno;
    }
    ia->migrates = can_migrate(ia);
    return 0;
}

void verbsdat_alternate_close(struct verbsdat_ia *ia)
{
    struct verbsdat_ask *a = &ia->ask;

    if (a->id)
        rdma_destroy_id(a->id);
    if (a->qp)
        ibv_destroy_qp(a->qp);
    if (a->cq)
        ibv_destroy_cq(a->cq);
    if (a->pd)
        ibv_dealloc_pd(a->pd);
}

/* -- what a QP has ----------------------------------------------------------------------------- */

static bool query(const struct verbsdat_ep *ep, struct ibv_qp_attr *attr)
{
    struct ibv_qp_init_attr init;

    return ibv_query_qp(ep->qp, attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_TIMEOUT
                                      | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE, &init) == 0;
}

/* The index of a GID, of the type that the other one of the same port has. -1: it has none. */
static int index_of(struct ibv_context *verbs, uint8_t port, const union ibv_gid *gid, uint8_t like)
{
    struct ibv_gid_entry model, e;

    if (ibv_query_gid_ex(verbs, port, like, &model, 0))
        return -1;
    for (uint32_t i = 0; i <= UINT8_MAX; i++)
        if (ibv_query_gid_ex(verbs, port, i, &e, 0) == 0 && e.gid_type == model.gid_type
            && memcmp(&e.gid, gid, sizeof(*gid)) == 0)
            return (int)i;
    return -1;
}

/* The path that the connection manager has found for an identifier. */
static bool path_of(const struct verbsdat_ep *ep, const struct rdma_cm_id *id, uint8_t like,
                    struct ibv_ah_attr *ah)
{
    const struct ibv_sa_path_rec *rec = id->route.path_rec;
    int gid = id->route.num_paths > 0
                  ? index_of(ep->h.ia->verbs, id->port_num, &rec->sgid, like) : -1;

    if (gid < 0)
        return false;
    *ah = (struct ibv_ah_attr){
        .port_num = id->port_num, .dlid = be16toh(rec->dlid), .sl = rec->sl,
        .static_rate = rec->rate,
        .src_path_bits = (uint8_t)(be16toh(rec->slid) & ((1 << ep->h.ia->port.lmc) - 1)),
        .is_global = rec->hop_limit > 1
                     || ep->h.ia->port.link_layer == IBV_LINK_LAYER_ETHERNET,
        .grh = { .dgid = rec->dgid, .sgid_index = (uint8_t)gid, .hop_limit = rec->hop_limit,
                 .traffic_class = rec->traffic_class,
                 .flow_label = be32toh(rec->flow_label) & 0xfffff },
    };
    return true;
}

bool verbsdat_alternate_load(struct verbsdat_ep *ep, const struct rdma_cm_id *id)
{
    struct ibv_qp_attr now, attr = { .path_mig_state = IBV_MIG_REARM };

    if (!query(ep, &now) || !path_of(ep, id, now.ah_attr.grh.sgid_index, &attr.alt_ah_attr))
        return false;
    attr.alt_port_num = id->port_num;
    attr.alt_pkey_index = now.pkey_index;
    attr.alt_timeout = now.timeout;
    return ibv_modify_qp(ep->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) == 0;
}

bool verbsdat_alternate_armed(const struct verbsdat_ep *ep)
{
    struct ibv_qp_attr attr;

    return query(ep, &attr) && attr.path_mig_state == IBV_MIG_ARMED;
}

bool verbsdat_alternate_migrate(const struct verbsdat_ep *ep)
{
    struct ibv_qp_attr attr = { .path_mig_state = IBV_MIG_MIGRATED };

    return ibv_modify_qp(ep->qp, &attr, IBV_QP_PATH_MIG_STATE) == 0;
}

uint32_t verbsdat_alternate_peer(const struct verbsdat_ep *ep)
{
    struct ibv_qp_attr attr;

    return query(ep, &attr) ? attr.dest_qp_num : 0;
}
