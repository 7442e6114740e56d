## SPDX-License-Identifier: MIT
## What is measured without MPI. Built with the tests, which keep it working.
check_PROGRAMS += benchmarks/dat_perf
benchmarks_dat_perf_SOURCES = benchmarks/dat_perf.c
benchmarks_dat_perf_CPPFLAGS = -D_GNU_SOURCE $(DAT_CPPFLAGS)
benchmarks_dat_perf_LDADD = $(DAT_LIBS)
