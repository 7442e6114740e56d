## SPDX-License-Identifier: MIT
## The software provider through libdat2.
if HAVE_CMOCKA
if HAVE_DAT
provider_test = test/provider/world.c test/provider/world.h test/unit/unit.h \
    test/provider/threads.c test/provider/threads.h
provider_test_cppflags = -D_GNU_SOURCE -I$(srcdir)/test/unit -I$(srcdir)/src/softdat -I$(srcdir)/src/datline \
    -I$(srcdir)/include \
    $(DAT_CPPFLAGS)
provider_test_libs = $(DAT_LIBS) -lcmocka -lpthread

check_PROGRAMS += test/provider/conform test/provider/extended test/provider/emulation \
    test/provider/robust test/provider/ownership test/provider/ring \
    test/provider/events test/provider/helper test/provider/remote \
    test/provider/exhaustion test/provider/allocator test/provider/lock \
    test/provider/judge test/provider/scale test/provider/stream \
    test/provider/migrate test/provider/paths test/provider/pathfaults \
    test/provider/remotepaths
test_provider_conform_SOURCES = test/provider/conform.c $(provider_test)
test_provider_conform_CPPFLAGS = $(provider_test_cppflags)
test_provider_conform_LDADD = $(provider_test_libs)
test_provider_extended_SOURCES = test/provider/extended.c $(provider_test)
test_provider_extended_CPPFLAGS = $(provider_test_cppflags)
test_provider_extended_LDADD = $(provider_test_libs)
test_provider_emulation_SOURCES = test/provider/emulation.c $(provider_test)
test_provider_emulation_CPPFLAGS = $(provider_test_cppflags)
test_provider_emulation_LDADD = $(provider_test_libs)
test_provider_robust_SOURCES = test/provider/robust.c $(provider_test)
test_provider_robust_CPPFLAGS = $(provider_test_cppflags)
test_provider_robust_LDADD = $(provider_test_libs)
test_provider_ownership_SOURCES = test/provider/ownership.c test/provider/peer.c \
    test/provider/peer.h $(provider_test)
test_provider_ownership_CPPFLAGS = $(provider_test_cppflags)
test_provider_ownership_LDADD = $(provider_test_libs)
test_provider_events_SOURCES = test/provider/events.c test/provider/peer.c \
    test/provider/peer.h $(provider_test)
test_provider_events_CPPFLAGS = $(provider_test_cppflags)
test_provider_events_LDADD = $(provider_test_libs)
test_provider_helper_SOURCES = test/provider/helper.c test/provider/peer.c \
    test/provider/peer.h $(provider_test)
test_provider_helper_CPPFLAGS = $(provider_test_cppflags)
test_provider_helper_LDADD = $(provider_test_libs)
test_provider_remote_SOURCES = test/provider/remote.c test/provider/cable.c test/provider/cable.h \
    test/provider/peer.c test/provider/peer.h $(provider_test)
test_provider_remote_CPPFLAGS = $(provider_test_cppflags)
test_provider_remote_LDADD = $(provider_test_libs)
test_provider_exhaustion_SOURCES = test/provider/exhaustion.c test/provider/peer.c \
    test/provider/peer.h $(provider_test)
test_provider_exhaustion_CPPFLAGS = $(provider_test_cppflags)
test_provider_exhaustion_LDADD = $(provider_test_libs)
test_provider_allocator_SOURCES = test/provider/allocator.c $(provider_test)
test_provider_allocator_CPPFLAGS = $(provider_test_cppflags)
test_provider_allocator_LDADD = $(provider_test_libs)
test_provider_scale_SOURCES = test/provider/scale.c test/provider/peer.c \
    test/provider/peer.h test/provider/syscalls.c test/provider/syscalls.h $(provider_test)
test_provider_scale_CPPFLAGS = $(provider_test_cppflags)
test_provider_scale_LDFLAGS = -export-dynamic
test_provider_scale_LDADD = $(provider_test_libs)
test_provider_stream_SOURCES = test/provider/stream.c test/provider/peer.c \
    test/provider/peer.h test/provider/syscalls.c test/provider/syscalls.h $(provider_test)
test_provider_stream_CPPFLAGS = $(provider_test_cppflags)
test_provider_stream_LDFLAGS = -export-dynamic
test_provider_stream_LDADD = $(provider_test_libs)
test_provider_migrate_SOURCES = test/provider/migrate.c test/provider/cuts.c \
    test/provider/cuts.h test/provider/mixed.c test/provider/mixed.h $(provider_test)
test_provider_migrate_CPPFLAGS = $(provider_test_cppflags)
test_provider_migrate_LDFLAGS = -export-dynamic
test_provider_migrate_LDADD = $(provider_test_libs)
test_provider_paths_SOURCES = test/provider/paths.c test/provider/armed.c test/provider/armed.h \
    test/provider/mixed.c test/provider/mixed.h $(provider_test)
test_provider_paths_CPPFLAGS = $(provider_test_cppflags)
test_provider_paths_LDADD = $(provider_test_libs)
test_provider_pathfaults_SOURCES = test/provider/pathfaults.c test/provider/armed.c \
    test/provider/armed.h test/provider/cuts.c test/provider/cuts.h test/provider/mixed.c \
    test/provider/mixed.h $(provider_test)
test_provider_pathfaults_CPPFLAGS = $(provider_test_cppflags)
test_provider_pathfaults_LDFLAGS = -export-dynamic
test_provider_pathfaults_LDADD = $(provider_test_libs)
test_provider_remotepaths_SOURCES = test/provider/remotepaths.c test/provider/cable.c \
    test/provider/cable.h test/provider/peer.c test/provider/peer.h $(provider_test)
test_provider_remotepaths_CPPFLAGS = $(provider_test_cppflags)
test_provider_remotepaths_LDADD = $(provider_test_libs)
test_provider_judge_SOURCES = test/provider/judge.c src/softdat/judge.c
test_provider_judge_CPPFLAGS = $(provider_test_cppflags)
test_provider_judge_LDADD = $(provider_test_libs)
test_provider_lock_SOURCES = test/provider/lock.c src/datline/datlock.c
test_provider_lock_CPPFLAGS = $(provider_test_cppflags)
test_provider_lock_LDADD = $(provider_test_libs)
test_provider_ring_SOURCES = test/provider/ring.c src/softdat/shared.c
test_provider_ring_CPPFLAGS = $(provider_test_cppflags)
test_provider_ring_LDADD = $(provider_test_libs)
endif
endif
