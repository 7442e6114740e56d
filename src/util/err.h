/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_ERR_H
#define MDAPL_ERR_H
/*
 * The text of an error: one line that says what failed, where, and what to do. It is written where
 * the error is detected; callers return its code.
 */
#include <stdarg.h>

struct mdapl_err {
    char text[768];
};

/* Sets the text and returns code, as in: return mdapl_err_set(err, -EINVAL, ...); */
int mdapl_err_set(struct mdapl_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
