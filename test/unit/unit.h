/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_UNIT_H
#define MDAPL_TEST_UNIT_H
/* What every unit test includes: cmocka needs these headers before its own. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* fork() for a test. cmocka would record what fails in the child and have the child run the rest of
 * the tests a second time: here a failed assertion and a fault of memory end the child by a signal,
 * which the test sees in its status.
 */
static inline pid_t test_fork(void)
{
    static const int caught[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
            signal(caught[i], SIG_DFL);
        setenv("CMOCKA_TEST_ABORT", "1", 1);
    }
    return pid;
}

#endif
