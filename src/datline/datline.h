/* SPDX-License-Identifier: MIT */
#ifndef DATLINE_H
#define DATLINE_H
/*
 * What the DAT providers of this project share: the lines of dat.conf that name one. libdat2 loads
 * the library of a line and calls its dat_provider_init() with the line's IA parameters, and passes
 * no parameters to dat_ia_open; so each line has a provider object of its own, which stores them.
 * Compiled into each provider. libdat2 serialises calls of init and fini.
 */
#include <dat2/udat.h>
#include <dat2/dat_registry.h>

/* Registers a provider under the name of the line. library: its name, for a line on stderr when
 * libdat2 refuses; table: its calls; params: the line's IA parameters, or NULL. */
void datline_add(const char *library, const DAT_PROVIDER *table, const DAT_PROVIDER_INFO *info,
                 const char *params);
/* Ends the registration of a line, if there is one of this name. */
void datline_remove(const DAT_PROVIDER_INFO *info);
/* Returns the IA parameters of the line `name`, which stay the line's, and sets *provider_p; NULL:
 * there is no such line. Needs no lock. */
const char *datline_params(const char *name, DAT_PROVIDER **provider_p);

/* A call that a provider does not implement. */
DAT_RETURN datline_not_implemented(void);
/* Casts it to the type of a table's entry; it reads no argument. */
#define DATLINE_NONE(type) ((type)(void (*)(void))datline_not_implemented)

#endif
