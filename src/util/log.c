/* SPDX-License-Identifier: MIT */
#include "log.h"

#include <stdarg.h>
#include <unistd.h>

void mdapl_log_write(const struct mdapl_log *log, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    /* One call, so that the lines of many ranks do not mix. */
    fprintf(log->out ? log->out : stderr, "[rank %d %s pid %d] " MDAPL_DEVICE ": %s\n", log->rank,
            log->host, (int)getpid(), line);
}
