/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_OS_H
#define MDAPL_SHM_OS_H
/*
 * The calls of the operating system that are not the same everywhere. os_linux.c implements them
 * for Linux, os_posix.c for every other system, and for Linux too when it is compiled with
 * MDAPL_PORTABLE, so that it can be tested there.
 *
 * A segment is found by a reference: a few printable characters in the owner's business card.
 *
 *   Linux   a memfd, which others open through the owner's descriptor table in /proc. It has no
 *           name: it is freed however the owner ends, the kernel decides who may open it (the same
 *           user, or root), and the size limit of /dev/shm does not apply.
 *   POSIX   shm_open; the owner removes the name when it closes, but not when it is killed.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { MDAPL_SHM_REF_MAX = 40 };

/* Writes a text that is equal in processes that may share memory, and different in others: machine
 * and boot, namespaces, user. 0, or -ENOTSUP or -ENOSPC. */
int mdapl_shm_os_node(char *buf, size_t len);

/* Makes a segment of zeros and writes its reference. Returns a descriptor, which the caller owns,
 * or -errno. */
int mdapl_shm_os_segment_make(size_t bytes, char ref[MDAPL_SHM_REF_MAX]);
/* Opens the segment of another process. Returns a descriptor, which the caller owns, or -errno: it
 * does not exist, or (-EACCES) has another owner or size, or could still shrink. */
int mdapl_shm_os_segment_open(const char *ref, size_t bytes);
/* The size of the segment of another process; 0: it cannot be read. */
size_t mdapl_shm_os_segment_size(const char *ref);
/* Bytes that an inring may have, at most: many where memory that nobody has touched costs
 * nothing. */
size_t mdapl_shm_os_inring_max(void);
/* Bytes of the largest cache that a core has for itself; 0: not known. */
size_t mdapl_shm_os_core_cache(void);
/* Allocates these bytes where memory for segments is limited: there, a write to a page that cannot
 * be allocated ends the process. 0 or -errno. */
int mdapl_shm_os_segment_reserve(const char *ref, size_t at, size_t bytes);
/* Removes the name, if it has one; the owner calls it as it closes the segment. */
void mdapl_shm_os_segment_remove(const char *ref);
/* Bytes of memory that are available now; SIZE_MAX: not known. */
size_t mdapl_shm_os_memory_left(void);

/* Requests that untouched pages of this mapping are allocated on the NUMA node of the calling core,
 * whichever process touches them first. Without effect, and without an error, where the system has
 * no such policy. */
void mdapl_shm_os_near(void *p, size_t len);

/* Requests pages of the usual size for this mapping: of a huge page only a small part is used. */
void mdapl_shm_os_small_pages(void *p, size_t len);

/*
 * A barrier for other processes (membarrier): when it returns, all that another process of this
 * channel stored before is visible here, and its loads from then on see what was stored here before
 * the call. It costs a system call, so that the other process, on its hot path, needs no fence.
 * init returns false if the system has none: then both processes need fences.
 */
bool mdapl_shm_os_barrier_init(void);
void mdapl_shm_os_barrier(void);

/* Sleeps while *word is value, at most ns nanoseconds; may return early. */
void mdapl_shm_os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
void mdapl_shm_os_wake(_Atomic uint32_t *word);

/* The core that the calling thread runs on; -1: not known. */
int mdapl_shm_os_core(void);
/* Moves the calling thread from this core to `home`, or to any other one if that is the same core,
 * within the set that the thread may use, which stays as it is. False: no such core. */
bool mdapl_shm_os_core_leave(int core, int home);

/*
 * A descriptor of a running process (pidfd), by which its end is noticed at once: before its parent
 * reaps it, and also when its pid is used again. Negative: the system has none, or too few
 * descriptors are left; mdapl_shm_os_process_ended() then notices the end after the parent has
 * reaped the process.
 */
int mdapl_shm_os_process_open(pid_t pid);
bool mdapl_shm_os_process_ended(int process, pid_t pid);
void mdapl_shm_os_process_close(int process);

/* Permits other processes of this user to read and write this process's memory. */
void mdapl_shm_os_reads_allow(void);
/* Reads or writes another process's memory (process_vm_readv, process_vm_writev). Return the number
 * of bytes, perhaps fewer than requested; 0 or less: it failed. */
typedef ssize_t mdapl_shm_os_move(pid_t pid, const struct iovec *here, int n_here,
                                  const struct iovec *there, int n_there);
mdapl_shm_os_move mdapl_shm_os_read, mdapl_shm_os_write;

#endif
