/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <unistd.h>

/*
 * fork() leaves the adapters to the parent. The child closes its copies of their descriptors, since
 * open sockets would hide the parent's death from its peers, and invalidates the handles. The locks
 * are held across fork(), so that the child sees consistent lists.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct softdat_list adapters = { &adapters, &adapters };
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void each(void (*f)(struct softdat_ia *))
{
    for (struct softdat_list *l = adapters.next; l != &adapters; l = l->next)
        f(SOFTDAT_OF(l, struct softdat_ia, fork_link));
}

static void lock_ia(struct softdat_ia *ia)
{
    datlock_take(&ia->lock);
}

static void unlock_ia(struct softdat_ia *ia)
{
    datlock_release(&ia->lock);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void drop_object(struct softdat_ia *ia, struct softdat_handle *h)
{
    struct softdat_sp *sp = (struct softdat_sp *)h;

    h->alive = 0;
    if (h->type == DAT_HANDLE_TYPE_EVD)
        close_fd(&((struct softdat_evd *)h)->efd);
    if (h->type == DAT_HANDLE_TYPE_CNO)
        close_fd(&((struct softdat_cno *)h)->efd);
    for (uint32_t i = 0; i < ia->cfg.n_ports
         && (h->type == DAT_HANDLE_TYPE_PSP || h->type == DAT_HANDLE_TYPE_RSP); i++) {
        close_fd(&sp->listener[i].tcp.sock.fd);
        close_fd(&sp->listener[i].local.sock.fd);
    }
}

/* Drops an adapter in the child. The epoll set is shared with the parent, so no descriptor is
 * removed from it. */
static void drop_ia(struct softdat_ia *ia)
{
    struct softdat_list *l;

    for (l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        close_fd(&c->sock.fd);
        close_fd(&c->segment_fd);
        close_fd(&c->old_fd);
    }
    for (l = ia->objects.next; l != &ia->objects; l = l->next)
        drop_object(ia, SOFTDAT_OF(l, struct softdat_handle, link));
    for (int i = 0; i < SOFTDAT_MAX_CONTROL; i++)
        close_fd(&ia->control_conn[i].fd);
    close_fd(&ia->control.fd);
    close_fd(&ia->netlink.fd);
    close_fd(&ia->wake_fd);
    close_fd(&ia->epfd);
    ia->h.alive = 0;
    unlock_ia(ia);
}

static void prepare(void)
{
    pthread_mutex_lock(&lock);
    each(lock_ia);
}

static void parent(void)
{
    each(unlock_ia);
    pthread_mutex_unlock(&lock);
}

static void child(void)
{
    each(drop_ia);
    softdat_list_init(&adapters);
    pthread_mutex_unlock(&lock);
}

static void register_handlers(void)
{
    pthread_atfork(prepare, parent, child);
}

void softdat_fork_register(struct softdat_ia *ia)
{
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&lock);
    softdat_list_append(&adapters, &ia->fork_link);
    pthread_mutex_unlock(&lock);
}

void softdat_fork_unregister(struct softdat_ia *ia)
{
    pthread_mutex_lock(&lock);
    softdat_list_remove(&ia->fork_link);
    pthread_mutex_unlock(&lock);
}
