## SPDX-License-Identifier: MIT
## What is measured without MPI. Built with the tests, which keep it working.
if HAVE_DAT
check_PROGRAMS += benchmarks/dat_perf
benchmarks_dat_perf_SOURCES = benchmarks/dat_perf.c
benchmarks_dat_perf_CPPFLAGS = -D_GNU_SOURCE $(DAT_CPPFLAGS)
benchmarks_dat_perf_LDADD = $(DAT_LIBS)

check_PROGRAMS += benchmarks/path_perf
benchmarks_path_perf_SOURCES = benchmarks/path_perf.c
benchmarks_path_perf_CPPFLAGS = -D_GNU_SOURCE -I$(srcdir)/include $(DAT_CPPFLAGS)
benchmarks_path_perf_LDADD = $(DAT_LIBS) -lpthread

check_PROGRAMS += benchmarks/dat_count
benchmarks_dat_count_SOURCES = benchmarks/dat_count.c
benchmarks_dat_count_CPPFLAGS = -D_GNU_SOURCE $(DAT_CPPFLAGS)
benchmarks_dat_count_LDADD = $(DAT_LIBS)

check_PROGRAMS += benchmarks/line_perf
benchmarks_line_perf_SOURCES = benchmarks/line_perf.c
benchmarks_line_perf_CPPFLAGS = -D_GNU_SOURCE

check_PROGRAMS += benchmarks/wire_perf
benchmarks_wire_perf_SOURCES = benchmarks/wire_perf.c
benchmarks_wire_perf_CPPFLAGS = $(util_cppflags) -I$(srcdir)/src/dapl
benchmarks_wire_perf_LDADD = libdapl.la libutil.la $(DAT_LIBS) -lpthread

check_PROGRAMS += benchmarks/storm_perf
benchmarks_storm_perf_SOURCES = benchmarks/storm_perf.c
benchmarks_storm_perf_CPPFLAGS = $(util_cppflags) -I$(srcdir)/src/dapl
benchmarks_storm_perf_LDADD = libdapl.la libutil.la $(DAT_LIBS)
endif

if HAVE_DAT
if HAVE_CMOCKA
check_PROGRAMS += benchmarks/msg_count
benchmarks_msg_count_SOURCES = benchmarks/msg_count.c $(fake_sources)
benchmarks_msg_count_CPPFLAGS = $(sim_test_cppflags) -I$(srcdir)/src/shm
benchmarks_msg_count_LDADD = libdapl.la libshm.la libutil.la $(DAT_LIBS) -lcmocka
endif
endif
