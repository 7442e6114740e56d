/* SPDX-License-Identifier: MIT */
/*
 * For UCX on the stand-in: preloaded, it takes the place of libmlx5.so.1, which wants more of
 * libibverbs than there is, as one for a host without an adapter of that kind; and the device's
 * node is there, which UCX looks for before it opens a device.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IS_NOT_THERE(name) \
    void *name(void); \
    void *name(void) { errno = ENODEV; return NULL; }

IS_NOT_THERE(mlx5dv_create_cq)
IS_NOT_THERE(mlx5dv_init_obj)
IS_NOT_THERE(mlx5dv_create_qp)
IS_NOT_THERE(mlx5dv_devx_alloc_uar)
IS_NOT_THERE(mlx5dv_devx_free_uar)
IS_NOT_THERE(mlx5dv_devx_general_cmd)
IS_NOT_THERE(mlx5dv_devx_obj_create)
IS_NOT_THERE(mlx5dv_devx_obj_destroy)
IS_NOT_THERE(mlx5dv_devx_obj_modify)
IS_NOT_THERE(mlx5dv_devx_obj_query)
IS_NOT_THERE(mlx5dv_devx_umem_dereg)
IS_NOT_THERE(mlx5dv_devx_umem_reg)
IS_NOT_THERE(mlx5dv_open_device)
IS_NOT_THERE(mlx5dv_devx_qp_modify)
IS_NOT_THERE(mlx5dv_devx_qp_query)
IS_NOT_THERE(mlx5dv_is_supported)
IS_NOT_THERE(mlx5dv_devx_create_event_channel)
IS_NOT_THERE(mlx5dv_devx_destroy_event_channel)
IS_NOT_THERE(mlx5dv_devx_get_event)
IS_NOT_THERE(mlx5dv_devx_subscribe_devx_event)

/* The path, or of the device's node one that is there. */
static const char *node(const char *path)
{
    return strcmp(path, "/dev/infiniband/uverbs0") ? path : "/dev/null";
}

int stat(const char *restrict path, struct stat *restrict st)
{
    return fstatat(AT_FDCWD, node(path), st, 0);
}

int access(const char *path, int mode)
{
    return faccessat(AT_FDCWD, node(path), mode, 0);
}
