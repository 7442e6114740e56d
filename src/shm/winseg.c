/* SPDX-License-Identifier: MIT */
#include "winseg.h"

#include "min.h"
#include "seg.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    HEAD_BYTES = MDAPL_SEG_HEAD_BYTES,
    PIECE_BYTES = 2 << 20,       /* allocated by one call, which completes between two signals */
};

struct share_head {
    uint64_t token;
    pthread_mutex_t lock;
};

struct mdapl_shm_winseg {
    struct share_head *head;
    size_t bytes;
    int fd;                      /* -1 after the commit */
    char ref[MDAPL_SHM_REF_MAX]; /* in the maker; empty in the other ranks */
};

/* -- making and opening ----------------------------------------------------------------------- */

/* Maps fd, which it owns from now on, also on failure. 0 or -ENOMEM. */
static int share_map(int fd, size_t bytes, const char *ref, struct mdapl_shm_winseg **share_p)
{
    struct mdapl_shm_winseg *share = calloc(1, sizeof(*share));
    void *p = share ? mmap(NULL, HEAD_BYTES + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;

    if (p == MAP_FAILED) {
        free(share);
        close(fd);
        return -ENOMEM;
    }
    share->head = p;
    share->bytes = bytes;
    share->fd = fd;
    memcpy(share->ref, ref, strlen(ref));
    *share_p = share;
    return 0;
}

/* A robust lock: the kernel releases it when its holder is killed. */
static int lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);

    if (rc)
        return -rc;
    rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (!rc)
        rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (!rc)
        rc = pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
    return -rc;
}

static int fill_head(struct mdapl_shm_winseg *share)
{
    struct share_head *head = share->head;
    int rc = -posix_fallocate(share->fd, 0, HEAD_BYTES);

    if (!rc)
        rc = lock_init(&head->lock);
    while (!rc && head->token == 0)
        if (getrandom(&head->token, sizeof(head->token), 0) != (ssize_t)sizeof(head->token))
            rc = -ENOTSUP;
    return rc;
}

/* The size is checked here: the kernel would grant more than there is, and kill a process later. */
static int segment_make(size_t bytes, char ref[MDAPL_SHM_REF_MAX])
{
    if (bytes > PTRDIFF_MAX - HEAD_BYTES || bytes > mdapl_shm_os_memory_left())
        return -ENOMEM;
    if (!mdapl_shm_seg_size_allowed(HEAD_BYTES + bytes))
        return -EFBIG;
    return mdapl_shm_os_segment_make(HEAD_BYTES + bytes, ref);
}

static int make(size_t bytes, struct mdapl_shm_card *card, struct mdapl_shm_winseg **share_p)
{
    struct mdapl_shm_winseg *share;
    int rc = mdapl_shm_node_here(&card->node), fd;

    if (rc)
        return rc;
    fd = segment_make(bytes, card->ref);
    if (fd < 0)
        return fd;
    rc = share_map(fd, bytes, card->ref, &share);
    if (rc) {
        mdapl_shm_os_segment_remove(card->ref);
        return rc;
    }
    rc = fill_head(share);
    if (rc) {
        mdapl_shm_winseg_close(share);
        return rc;
    }
    card->token = share->head->token;
    *share_p = share;
    return 0;
}

int mdapl_shm_winseg_make(size_t bytes, struct mdapl_shm_winseg_offer *offer,
                         struct mdapl_shm_winseg **share_p)
{
    int rc;

    memset(offer, 0, sizeof(*offer));
    offer->bytes = bytes;
    *share_p = NULL;
    rc = make(bytes, &offer->card, share_p);
    offer->rc = rc;
    return rc;
}

int mdapl_shm_winseg_open(const struct mdapl_shm_winseg_offer *offer,
                         struct mdapl_shm_winseg **share_p)
{
    uint64_t node, token = 0;
    int fd;

    *share_p = NULL;
    if (mdapl_shm_node_here(&node) || node != offer->card.node)
        return -EHOSTUNREACH;
    fd = mdapl_shm_os_segment_open(offer->card.ref, HEAD_BYTES + offer->bytes);
    if (fd < 0)
        return -EHOSTUNREACH;
    if (pread(fd, &token, sizeof(token), offsetof(struct share_head, token))
        != (ssize_t)sizeof(token) || token != offer->card.token) {
        close(fd);
        return -EHOSTUNREACH;
    }
    return share_map(fd, offer->bytes, "", share_p);
}

/* -- using and closing ------------------------------------------------------------------------ */

int mdapl_shm_winseg_alloc(struct mdapl_shm_winseg *share, size_t at, size_t len)
{
    while (len > 0) {
        size_t piece = mdapl_min(len, PIECE_BYTES);
        int rc = posix_fallocate(share->fd, (off_t)(HEAD_BYTES + at), (off_t)piece);

        if (rc == EINTR)
            continue;
        if (rc)
            return -rc;
        at += piece;
        len -= piece;
    }
    return 0;
}

void mdapl_shm_winseg_commit(struct mdapl_shm_winseg *share)
{
    if (share->fd < 0)
        return;
    close(share->fd);
    share->fd = -1;
    if (*share->ref)
        mdapl_shm_os_segment_remove(share->ref);
}

void mdapl_shm_winseg_close(struct mdapl_shm_winseg *share)
{
    mdapl_shm_winseg_commit(share);
    munmap(share->head, HEAD_BYTES + share->bytes);
    free(share);
}

void *mdapl_shm_winseg_base(const struct mdapl_shm_winseg *share)
{
    return (char *)share->head + HEAD_BYTES;
}

size_t mdapl_shm_winseg_bytes(const struct mdapl_shm_winseg *share)
{
    return share->bytes;
}

uint64_t mdapl_shm_winseg_token(const struct mdapl_shm_winseg *share)
{
    return share->head->token;
}

/* -- the lock --------------------------------------------------------------------------------- */

void mdapl_shm_winseg_lock(struct mdapl_shm_winseg *share)
{
    /* The operation that the dead process did not complete is lost with it. */
    if (pthread_mutex_lock(&share->head->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&share->head->lock);
}

void mdapl_shm_winseg_unlock(struct mdapl_shm_winseg *share)
{
    pthread_mutex_unlock(&share->head->lock);
}
