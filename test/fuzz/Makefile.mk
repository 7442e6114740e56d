## SPDX-License-Identifier: MIT
## Bytes that are not the protocol.
if HAVE_DAT
check_PROGRAMS += test/fuzz/fuzz_wire
test_fuzz_fuzz_wire_SOURCES = test/fuzz/fuzz_wire.c
test_fuzz_fuzz_wire_CPPFLAGS = $(softdat_cppflags)
test_fuzz_fuzz_wire_LDADD = $(DAT_LIBS) -lpthread
endif
