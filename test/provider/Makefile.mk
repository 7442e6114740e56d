## SPDX-License-Identifier: MIT
## The software provider through libdat2.
if HAVE_CMOCKA
check_PROGRAMS += test/provider/conform
test_provider_conform_SOURCES = test/provider/conform.c test/unit/unit.h
test_provider_conform_CPPFLAGS = -D_GNU_SOURCE -I$(srcdir)/test/unit $(DAT_CPPFLAGS)
test_provider_conform_LDADD = $(DAT_LIBS) -lcmocka -lpthread
endif
