/* SPDX-License-Identifier: MIT */
#include "err.h"

#include <stdio.h>

int mdapl_err_set(struct mdapl_err *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return code;
}
