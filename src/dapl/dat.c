/* SPDX-License-Identifier: MIT */
#include "dat.h"

#include "err.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

static const char library[] = "libdat2.so.2";

static const struct {
    const char *name;
    size_t at;                   /* offset of its pointer in struct mdapl_dapl_dat */
} call[] = {
#define MDAPL_DAT_ROW(name) { #name, offsetof(struct mdapl_dapl_dat, name) },
    MDAPL_DAT_CALLS(MDAPL_DAT_ROW)
#undef MDAPL_DAT_ROW
};

int mdapl_dapl_dat_load(struct mdapl_dapl_dat *dat, struct mdapl_err *err)
{
    /* RTLD_GLOBAL: provider libraries that are not linked with libdat2 need its symbols. */
    void *lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL);

    if (!lib)
        return mdapl_err_set(err, -ENODEV, "uDAPL is not installed here: %s. Install the package "
                             "libdapl2 (Debian; dapl elsewhere)", dlerror());
    for (size_t i = 0; i < sizeof(call) / sizeof(call[0]); i++) {
        void *f = dlsym(lib, call[i].name);

        if (!f)
            return mdapl_err_set(err, -ENODEV, "%s has no %s: it is not uDAPL 2. Install another "
                                 "libdat2", library, call[i].name);
        memcpy((char *)dat + call[i].at, &f, sizeof(f));
    }
    return 0;
}
