## SPDX-License-Identifier: MIT
## Contexts in processes of their own, on whatever IA is named: the software provider by default.
if HAVE_CMOCKA
check_PROGRAMS += test/channel/test_channel
test_channel_test_channel_SOURCES = test/channel/test_channel.c test/unit/unit.h
test_channel_test_channel_CPPFLAGS = $(util_cppflags) -I$(srcdir)/src/dapl -I$(srcdir)/test/unit
test_channel_test_channel_LDADD = libdapl.la libutil.la $(DAT_LIBS) -lcmocka
endif
