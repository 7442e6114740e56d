/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_UNIT_H
#define MDAPL_TEST_UNIT_H
/* What every unit test includes: cmocka wants these headers before its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

#endif
