## SPDX-License-Identifier: MIT
## Contexts in processes of their own, on whatever channels and IA are named.
if HAVE_CMOCKA
check_PROGRAMS += test/channel/test_channel
test_channel_test_channel_SOURCES = test/channel/test_channel.c test/unit/unit.h
test_channel_test_channel_CPPFLAGS = $(util_cppflags) -I$(srcdir)/src/dapl -I$(srcdir)/src/shm \
    -I$(srcdir)/test/unit
test_channel_test_channel_LDADD = libdapl.la libshm.la libutil.la $(DAT_LIBS) -lcmocka
endif
