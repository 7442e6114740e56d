/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_OS_H
#define MDAPL_SHM_OS_H
/*
 * What the channel asks of the operating system, and all of it that is not the same everywhere.
 * os_linux.c has it for Linux; os_posix.c for everything else, and for Linux too when it is
 * compiled with MDAPL_PORTABLE, so that the plain way is tested where the tests are.
 *
 * A segment is found by a reference: a few printable characters in the owner's business card.
 *
 *   Linux   a memfd, which others open through the owner's descriptor table in /proc. It has no
 *           name: nothing is left however the owner ends, the kernel itself decides who may open it
 *           (the same user, or root), and the size limit of /dev/shm does not count.
 *   POSIX   shm_open, removed by the owner as it closes; a killed one leaves it behind.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { MDAPL_SHM_REF_MAX = 40 };

/* A text that is equal in processes that may share memory, and different in others: the machine and
 * this boot of it, the namespaces, the user. 0 or -errno. */
int mdapl_shm_os_node(char *buf, size_t len);

/* A segment of zeros, and how others find it. A descriptor or -errno. */
int mdapl_shm_os_segment_make(size_t bytes, char ref[MDAPL_SHM_REF_MAX]);
/* Opens another's. A descriptor, or -errno when it is not there, not of this user, or not of
 * this size for good. */
int mdapl_shm_os_segment_open(const char *ref, size_t bytes);
/* Sees to it that these bytes are there when they are written: where memory for segments is
 * limited, a write without any left would end the process. 0 or -errno. */
int mdapl_shm_os_segment_reserve(const char *ref, size_t at, size_t bytes);
/* The owner is at the end. */
void mdapl_shm_os_segment_remove(const char *ref);
/* Bytes of memory that can be had now; SIZE_MAX when the system does not tell. */
size_t mdapl_shm_os_memory_left(void);

/* Pages of this mapping that nobody has touched yet are to lie near the core that calls, whoever
 * touches them first. A wish: nothing is said where the system has none. */
void mdapl_shm_os_near(void *p, size_t len);

/* Pages of this mapping are to be of the usual size: of a large one hardly anything is used. */
void mdapl_shm_os_small_pages(void *p, size_t len);

/*
 * A barrier for others: when it returns, whatever another process of this channel stored before it
 * is visible here, and whatever it loads afterwards sees what was stored here before the call. It
 * costs a system call, so that the other side, whose way is the hot one, needs no fence.
 * False: there is none, so both sides have to use fences.
 */
bool mdapl_shm_os_barrier_init(void);
void mdapl_shm_os_barrier(void);

/* Sleeps while *word is value, at most ns nanoseconds; may come back early. */
void mdapl_shm_os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
void mdapl_shm_os_wake(_Atomic uint32_t *word);

/*
 * A living process, held so that its end is noticed as soon as it runs no more, though its parent
 * may reap it late or never, and whoever gets its pid afterwards. Negative: it cannot be held so,
 * for want of descriptors or on this system; its end is then noticed once it has been reaped.
 */
int mdapl_shm_os_process_open(pid_t pid);
bool mdapl_shm_os_process_ended(int process, pid_t pid);
void mdapl_shm_os_process_close(int process);

/* Others of this user may read my memory. */
void mdapl_shm_os_reads_allow(void);
/* Reads another process's memory: bytes, maybe fewer than there are; 0 or less when it cannot be
 * done. */
ssize_t mdapl_shm_os_read(pid_t pid, const struct iovec *here, int n_here,
                          const struct iovec *there, int n_there);

#endif
