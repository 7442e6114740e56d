/* SPDX-License-Identifier: MIT */
#ifndef MPICH_DAPL_INFO_H
#define MPICH_DAPL_INFO_H
/*
 * mpich-dapl-info in three parts: main.c, ias.c (the IAs of dat.conf, each opened in a process of
 * its own) and verbs.c (the verbs devices that the kernel shows, and lines of dat.conf for them).
 */
#include <stdbool.h>

/* Prints the IAs of dat.conf, with what they are, or why they do not open. default_conf: the
 * dat.conf of this installation. Returns how many open. */
int info_ias(const char *default_conf);
/* Prints the verbs devices below a folder like /sys, and lines for those that can be used; also for
 * libdaplverbs if libdir has it. Returns how many ports can be used. */
int info_verbs(const char *sysfs, const char *libdir);

#endif
