## SPDX-License-Identifier: MIT
## Bytes that are not the protocol.
check_PROGRAMS += test/fuzz/fuzz_shm
test_fuzz_fuzz_shm_SOURCES = test/fuzz/fuzz_shm.c
test_fuzz_fuzz_shm_CPPFLAGS = $(shm_cppflags)
test_fuzz_fuzz_shm_LDADD = libshm.la libutil.la -lpthread
if HAVE_DAT
check_PROGRAMS += test/fuzz/fuzz_wire
test_fuzz_fuzz_wire_SOURCES = test/fuzz/fuzz_wire.c
test_fuzz_fuzz_wire_CPPFLAGS = $(softdat_cppflags)
test_fuzz_fuzz_wire_LDADD = $(DAT_LIBS) -lpthread
endif
