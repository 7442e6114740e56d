/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_PLACE_H
#define MDAPL_PLACE_H
/*
 * Where an adapter sits in the machine, and whether this process runs near it: a hint for the user
 * about binding, from hwloc. It takes some milliseconds, so it is called at verbosity 1 and
 * above only.
 */
#include <stddef.h>
#include <sys/socket.h>

/* Writes one line about the adapter with this address. */
void mdapl_dapl_place_describe(const struct sockaddr *addr, char *buf, size_t len);
/* The same by the name of its network interface or other device ("ib0", "mlx5_0"). */
void mdapl_dapl_place_describe_device(const char *device, char *buf, size_t len);

#endif
