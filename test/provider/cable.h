/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_CABLE_H
#define SOFTDAT_TEST_CABLE_H
/*
 * Two hosts for a test: network namespaces joined by veth pairs, devices p0 and p1 in each of them,
 * with the addresses CABLE_LOCAL and CABLE_REMOTE of that number.
 */
#include "peer.h"

#define CABLE_LOCAL "10.9%d.0.1"
#define CABLE_REMOTE "10.9%d.0.2"

/* Executes a shell command. False: it failed. */
__attribute__((format(printf, 1, 2))) bool shell(const char *format, ...);
/* Runs role in a process on a host of its own and waits until it sends 'd'; skips the test where
 * that is not permitted. */
void between_hosts(peer_role *role);
/* For peer_start_prepared(), in a role: the peer is on another host, with one cable, or two. */
void make_cable(void);
void make_two_cables(void);
/* Makes the peer's host drop what it is to send to this host through cable n. */
void drop_packets(const struct peer *p, int n);

#endif
