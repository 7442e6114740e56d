/* SPDX-License-Identifier: MIT */
/* Alternate paths of QPs, and the addresses between which a path leads. */
#include "hv.h"

#include <errno.h>
#include <string.h>

/* -- addresses -------------------------------------------------------------------------------- */

static union ibv_gid gid_of(uint32_t addr)
{
    union ibv_gid gid = { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff } };

    memcpy(gid.raw + 12, &addr, sizeof(addr));
    return gid;
}

static uint32_t addr_of(const union ibv_gid *gid)
{
    uint32_t addr;

    memcpy(&addr, gid->raw + 12, sizeof(addr));
    return addr;
}

void hv_path_record(struct hv_id_handle *id)
{
    id->path = (struct ibv_sa_path_rec){
        .sgid = gid_of(id->id.route.addr.src_sin.sin_addr.s_addr),
        .dgid = gid_of(id->id.route.addr.dst_sin.sin_addr.s_addr), .hop_limit = 64,
    };
    id->id.route.path_rec = &id->path;
    id->id.route.num_paths = 1;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
    struct ibv_gid_entry e = { .gid_index = index, .port_num = port,
                               .gid_type = IBV_GID_TYPE_ROCE_V2 };
    int rc = ibv_query_gid(context, (uint8_t)port, (int)index, &e.gid);

    (void)flags;
    if (rc)
        return ENODATA;
    memcpy(entry, &e, bytes < sizeof(e) ? bytes : sizeof(e));
    return 0;
}

/* The address of a GID of this host by its index; 0: it is no IPv4 address. */
static uint32_t addr_at(int index)
{
    union ibv_gid gid;

    return index > 0 && ibv_query_gid(NULL, 1, index, &gid) == 0 ? addr_of(&gid) : 0;
}

static int index_of(uint32_t addr)
{
    for (int i = 1; i < HV_GIDS; i++)
        if (addr_at(i) == addr)
            return i;
    return 0;
}

/* -- migration -------------------------------------------------------------------------------- */

static struct hv_qp *peer_of(const struct hv_qp *qp)
{
    struct hv_qp *peer = hv_qp(qp->dest);

    return peer && peer->dest == qp->num ? peer : NULL;
}

static void move(struct hv_qp *qp)
{
    const struct hv_async a = { IBV_EVENT_PATH_MIG, qp->num };

    qp->path = qp->alternate;
    qp->alternate = (struct hv_path){ 0, 0 };
    qp->migration = IBV_MIG_MIGRATED;
    hv_fifo_write(qp->async, &a, sizeof(a));
}

/* Both sides at once: on a network the other one follows with the next packet. */
static void migrate(struct hv_qp *qp, struct hv_qp *peer)
{
    move(qp);
    move(peer);
}

/* Both are armed when both have loaded the same path. */
static void rearm(struct hv_qp *qp, struct hv_qp *peer)
{
    qp->migration = IBV_MIG_REARM;
    if (!peer || peer->migration != IBV_MIG_REARM || peer->alternate.local != qp->alternate.remote
        || peer->alternate.remote != qp->alternate.local)
        return;
    qp->migration = peer->migration = IBV_MIG_ARMED;
}

int hv_path_modify(struct hv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct hv_qp *peer = peer_of(qp);

    if (mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) && !hv_process()->migrate)
        return EINVAL;
    if (mask & IBV_QP_ALT_PATH)
        qp->alternate = (struct hv_path){ addr_at(attr->alt_ah_attr.grh.sgid_index),
                                          addr_of(&attr->alt_ah_attr.grh.dgid) };
    if (!(mask & IBV_QP_PATH_MIG_STATE))
        return 0;
    if (attr->path_mig_state == IBV_MIG_REARM)
        rearm(qp, peer);
    else if (qp->migration == IBV_MIG_ARMED && peer)
        migrate(qp, peer);
    return 0;
}

static bool is_cut(const struct hv_path *path)
{
    uint32_t cut = hv_process()->shared->cut;

    return cut && (path->local == cut || path->remote == cut);
}

bool hv_path_carries(struct hv_qp *qp, struct hv_qp *peer)
{
    if (!is_cut(&qp->path))
        return true;
    if (qp->migration != IBV_MIG_ARMED || is_cut(&qp->alternate))
        return false;
    migrate(qp, peer);
    return true;
}

void ibv_hv_cut(uint32_t addr)
{
    hv_lock();
    hv_process()->shared->cut = addr;
    hv_unlock();
}

int ibv_query_qp(struct ibv_qp *handle, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    const struct hv_qp_handle *own = (const struct hv_qp_handle *)handle;
    const struct hv_qp *qp = own->of;

    (void)mask;
    hv_lock();
    *init = (struct ibv_qp_init_attr){ .qp_type = handle->qp_type, .cap = own->cap };
    *attr = (struct ibv_qp_attr){
        .cap = own->cap,
        .qp_state = (enum ibv_qp_state)qp->state, .dest_qp_num = qp->dest, .port_num = 1,
        .path_mig_state = (enum ibv_mig_state)qp->migration,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh.dgid = gid_of(qp->path.remote),
                     .grh.sgid_index = (uint8_t)index_of(qp->path.local) },
    };
    hv_unlock();
    return 0;
}
