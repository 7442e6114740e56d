## SPDX-License-Identifier: MIT
## Whole channels in one process, on the fake provider with virtual time.
if HAVE_CMOCKA
if HAVE_DAT
sim_cppflags = $(util_cppflags) -I$(srcdir)/src/dapl -I$(srcdir)/test/unit \
    -I$(srcdir)/test/fake $(DAT_CPPFLAGS)
sim_sources = test/fake/fake.c test/fake/fake.h test/unit/unit.h

check_PROGRAMS += test/sim/test_sim test/sim/test_connect
test_sim_test_sim_SOURCES = test/sim/test_sim.c $(sim_sources)
test_sim_test_sim_CPPFLAGS = $(sim_cppflags)
test_sim_test_sim_LDADD = libdapl.la libutil.la $(DAT_LIBS) -lcmocka
test_sim_test_connect_SOURCES = test/sim/test_connect.c $(sim_sources)
test_sim_test_connect_CPPFLAGS = $(sim_cppflags)
test_sim_test_connect_LDADD = libdapl.la libutil.la $(DAT_LIBS) -lcmocka
endif
endif
