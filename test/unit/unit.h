/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_UNIT_H
#define MDAPL_TEST_UNIT_H
/* What every unit test includes: cmocka needs these headers before its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#define RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

/* Skips a test that cannot be done here; tools/tap-programs prints why. */
#define SKIP_TEST(why)                 \
    do {                               \
        printf("# SKIP %s\n", why);    \
        skip();                        \
    } while (0)

#endif
