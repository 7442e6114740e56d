## SPDX-License-Identifier: MIT
## Whole channels in one process, on the fake provider with virtual time.
if HAVE_CMOCKA
if HAVE_DAT
check_PROGRAMS += test/sim/test_sim
test_sim_test_sim_SOURCES = test/sim/test_sim.c test/fake/fake.c test/fake/fake.h test/unit/unit.h
test_sim_test_sim_CPPFLAGS = $(util_cppflags) -I$(srcdir)/src/dapl -I$(srcdir)/test/unit \
    -I$(srcdir)/test/fake $(DAT_CPPFLAGS)
test_sim_test_sim_LDADD = libdapl.la libutil.la $(DAT_LIBS) -lcmocka
endif
endif
