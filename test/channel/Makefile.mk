## SPDX-License-Identifier: MIT
## Contexts in processes of their own, on whatever channels and IA are named.
if HAVE_CMOCKA
check_PROGRAMS += test/channel/test_channel
test_channel_test_channel_SOURCES = test/channel/test_channel.c test/channel/channels.h \
    test/unit/unit.h
test_channel_test_channel_CPPFLAGS = $(shm_cppflags) -I$(srcdir)/test/unit
if HAVE_DAT
test_channel_test_channel_SOURCES += test/channel/channels_all.c
test_channel_test_channel_CPPFLAGS += -I$(srcdir)/src/dapl
test_channel_test_channel_LDADD = libdapl.la libshm.la libutil.la $(DAT_LIBS) -lcmocka
else
test_channel_test_channel_SOURCES += test/channel/channels_shm.c
test_channel_test_channel_LDADD = libshm.la libutil.la -lcmocka
endif
endif
