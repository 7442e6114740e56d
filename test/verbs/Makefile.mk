## SPDX-License-Identifier: MIT
## libdaplverbs on the stand-in for verbs; test/verbs/run gives it the environment.
if HAVE_CMOCKA
if HAVE_VERBS
check_PROGRAMS += test/verbs/own test/verbs/datagrams
test_verbs_own_SOURCES = test/verbs/own.c $(provider_test)
test_verbs_own_CPPFLAGS = $(provider_test_cppflags) -I$(srcdir)/test/provider
test_verbs_own_LDADD = $(provider_test_libs) -ldl
test_verbs_datagrams_SOURCES = test/verbs/datagrams.c test/unit/unit.h
test_verbs_datagrams_CPPFLAGS = $(provider_test_cppflags)
test_verbs_datagrams_LDADD = -libverbs $(provider_test_libs)
endif
endif
