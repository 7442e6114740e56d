/* SPDX-License-Identifier: MIT */
#include "place.h"

#include <stdio.h>

#ifdef MDAPL_HWLOC
#include <hwloc.h>
#include <hwloc/distances.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static hwloc_topology_t load(void)
{
    hwloc_topology_t t;

    if (hwloc_topology_init(&t))
        return NULL;
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(t) == 0)
        return t;
    hwloc_topology_destroy(t);
    return NULL;
}

/* The part of the machine to which the device is attached; NULL: to none in particular. */
static hwloc_obj_t home_of(hwloc_topology_t t, const char *device)
{
    hwloc_obj_t dev = NULL;

    while ((dev = hwloc_get_next_osdev(t, dev)) && strcmp(dev->name, device) != 0)
        ;
    return dev ? hwloc_get_non_io_ancestor_obj(t, dev) : NULL;
}

/* What memory of the one costs the other, as the firmware says (10: its own); 0: it does not. */
static unsigned long latency(hwloc_topology_t t, hwloc_const_bitmap_t from, hwloc_const_bitmap_t to)
{
    hwloc_obj_t a = hwloc_get_obj_covering_cpuset(t, from);
    hwloc_obj_t b = hwloc_get_obj_covering_cpuset(t, to);
    struct hwloc_distances_s *d;
    hwloc_uint64_t forth = 0, back;
    unsigned n = 1;

    if (!a || !b || hwloc_distances_get_by_name(t, "NUMALatency", &n, &d, 0) || n == 0)
        return 0;
    a = hwloc_get_next_obj_inside_cpuset_by_type(t, a->cpuset, HWLOC_OBJ_NUMANODE, NULL);
    b = hwloc_get_next_obj_inside_cpuset_by_type(t, b->cpuset, HWLOC_OBJ_NUMANODE, NULL);
    if (!a || !b || hwloc_distances_obj_pair_values(d, a, b, &forth, &back))
        forth = 0;
    hwloc_distances_release(t, d);
    return (unsigned long)forth;
}

static void verdict(hwloc_topology_t t, hwloc_const_bitmap_t near, hwloc_const_bitmap_t mine,
                    char *buf, size_t len)
{
    unsigned long cost = latency(t, mine, near);

    if (hwloc_bitmap_isincluded(mine, near))
        snprintf(buf, len, "near");
    else if (hwloc_bitmap_intersects(mine, near))
        snprintf(buf, len, "near only at times");
    else if (cost > 0)
        snprintf(buf, len, "far (latency %lu, where 10 is near)", cost);
    else
        snprintf(buf, len, "far");
}

static void compare(hwloc_topology_t t, const char *device, hwloc_const_bitmap_t near,
                    hwloc_const_bitmap_t mine, char *buf, size_t len)
{
    char *cores = NULL, *local = NULL, what[64];

    verdict(t, near, mine, what, sizeof(what));
    if (hwloc_bitmap_list_asprintf(&cores, near) < 0
        || hwloc_bitmap_list_asprintf(&local, mine) < 0)
        snprintf(buf, len, "out of memory");
    else if (hwloc_bitmap_isincluded(mine, near))
        snprintf(buf, len, "%s is near cores %s; this rank runs on %s: %s", device, cores, local,
                 what);
    else
        snprintf(buf, len,
                 "%s is near cores %s; this rank runs on %s: %s. To bind it: mpiexec "
                 "-bind-to user:%s",
                 device, cores, local, what, cores);
    free(cores);
    free(local);
}

static void describe(hwloc_topology_t t, const char *device, char *buf, size_t len)
{
    hwloc_obj_t home = home_of(t, device);
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();

    if (!mine || hwloc_get_cpubind(t, mine, HWLOC_CPUBIND_PROCESS))
        snprintf(buf, len, "%s: the system does not report what this rank is bound to", device);
    else if (!home || hwloc_bitmap_isequal(home->cpuset, hwloc_topology_get_topology_cpuset(t)))
        snprintf(buf, len, "%s is as near to every core", device);
    else
        compare(t, device, home->cpuset, mine, buf, len);
    hwloc_bitmap_free(mine);
}

void mdapl_dapl_place_describe_device(const char *device, char *buf, size_t len)
{
    hwloc_topology_t t = load();

    if (!t) {
        snprintf(buf, len, "%s: hwloc cannot read this machine's topology", device);
        return;
    }
    describe(t, device, buf, len);
    hwloc_topology_destroy(t);
}
#else
void mdapl_dapl_place_describe_device(const char *device, char *buf, size_t len)
{
    snprintf(buf, len, "%s: built without hwloc, so its place is not known", device);
}
#endif
