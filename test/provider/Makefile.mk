## SPDX-License-Identifier: MIT
## The software provider through libdat2.
if HAVE_CMOCKA
if HAVE_DAT
provider_test = test/provider/world.c test/provider/world.h test/unit/unit.h
provider_test_cppflags = -D_GNU_SOURCE -I$(srcdir)/test/unit -I$(srcdir)/src/softdat \
    $(DAT_CPPFLAGS)
provider_test_libs = $(DAT_LIBS) -lcmocka -lpthread

check_PROGRAMS += test/provider/conform test/provider/extended test/provider/laboratory \
    test/provider/robust test/provider/promises test/provider/ring \
    test/provider/events test/provider/quiet test/provider/far \
    test/provider/strangers test/provider/hooks
test_provider_conform_SOURCES = test/provider/conform.c $(provider_test)
test_provider_conform_CPPFLAGS = $(provider_test_cppflags)
test_provider_conform_LDADD = $(provider_test_libs)
test_provider_extended_SOURCES = test/provider/extended.c $(provider_test)
test_provider_extended_CPPFLAGS = $(provider_test_cppflags)
test_provider_extended_LDADD = $(provider_test_libs)
test_provider_laboratory_SOURCES = test/provider/laboratory.c $(provider_test)
test_provider_laboratory_CPPFLAGS = $(provider_test_cppflags)
test_provider_laboratory_LDADD = $(provider_test_libs)
test_provider_robust_SOURCES = test/provider/robust.c $(provider_test)
test_provider_robust_CPPFLAGS = $(provider_test_cppflags)
test_provider_robust_LDADD = $(provider_test_libs)
test_provider_promises_SOURCES = test/provider/promises.c test/provider/partner.c \
    test/provider/partner.h $(provider_test)
test_provider_promises_CPPFLAGS = $(provider_test_cppflags)
test_provider_promises_LDADD = $(provider_test_libs)
test_provider_events_SOURCES = test/provider/events.c test/provider/partner.c \
    test/provider/partner.h $(provider_test)
test_provider_events_CPPFLAGS = $(provider_test_cppflags)
test_provider_events_LDADD = $(provider_test_libs)
test_provider_quiet_SOURCES = test/provider/quiet.c test/provider/partner.c \
    test/provider/partner.h $(provider_test)
test_provider_quiet_CPPFLAGS = $(provider_test_cppflags)
test_provider_quiet_LDADD = $(provider_test_libs)
test_provider_far_SOURCES = test/provider/far.c test/provider/partner.c \
    test/provider/partner.h $(provider_test)
test_provider_far_CPPFLAGS = $(provider_test_cppflags)
test_provider_far_LDADD = $(provider_test_libs)
test_provider_strangers_SOURCES = test/provider/strangers.c test/provider/partner.c \
    test/provider/partner.h $(provider_test)
test_provider_strangers_CPPFLAGS = $(provider_test_cppflags)
test_provider_strangers_LDADD = $(provider_test_libs)
test_provider_hooks_SOURCES = test/provider/hooks.c $(provider_test)
test_provider_hooks_CPPFLAGS = $(provider_test_cppflags)
test_provider_hooks_LDADD = $(provider_test_libs)
test_provider_ring_SOURCES = test/provider/ring.c src/softdat/shared.c
test_provider_ring_CPPFLAGS = $(provider_test_cppflags)
test_provider_ring_LDADD = $(provider_test_libs)
endif
endif
