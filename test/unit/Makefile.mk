## SPDX-License-Identifier: MIT
## Parts of src/util, src/dapl and src/shm by themselves.
if HAVE_CMOCKA
util_test_cppflags = $(util_cppflags) -I$(srcdir)/test/unit
shm_test_cppflags = $(shm_cppflags) -I$(srcdir)/test/unit
shm_test_ldadd = libshm.la libutil.la -lcmocka -lpthread

## They are started in this order: those first that take longest where an emulator runs them.
check_PROGRAMS += test/unit/test_shm_way test/unit/test_shm_groups test/unit/test_shm_visits \
    test/unit/test_util test/unit/test_cfg test/unit/test_tasks test/unit/test_rounds \
    test/unit/test_shm_ring test/unit/test_shm_pair test/unit/test_shm_threads \
    test/unit/test_shm_share test/unit/test_shm_linux test/unit/test_shm_fault \
    test/unit/test_shm_flow test/unit/test_shm_part test/unit/test_shm_single \
    test/unit/test_shm_reach test/unit/test_shm_cores test/unit/test_shm_judge \
    test/unit/test_shm_contest test/unit/test_shm_lap \
    test/unit/test_shm_store test/unit/test_shm_split test/unit/test_shm_turn \
    test/unit/test_shm_fifo \
    test/unit/test_shm_node_barrier
test_unit_test_util_SOURCES = test/unit/test_util.c test/unit/unit.h
test_unit_test_util_CPPFLAGS = $(util_test_cppflags)
test_unit_test_util_LDADD = libutil.la -lcmocka
test_unit_test_rounds_SOURCES = test/unit/test_rounds.c test/unit/unit.h
test_unit_test_rounds_CPPFLAGS = $(util_test_cppflags)
test_unit_test_rounds_LDADD = libutil.la -lcmocka
test_unit_test_cfg_SOURCES = test/unit/test_cfg.c test/unit/unit.h
test_unit_test_cfg_CPPFLAGS = $(util_test_cppflags)
test_unit_test_cfg_LDADD = libutil.la -lcmocka
test_unit_test_tasks_SOURCES = test/unit/test_tasks.c test/unit/unit.h
test_unit_test_tasks_CPPFLAGS = $(util_test_cppflags)
test_unit_test_tasks_LDADD = libutil.la -lcmocka
test_unit_test_shm_ring_SOURCES = test/unit/test_shm_ring.c test/unit/unit.h
test_unit_test_shm_ring_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_ring_LDADD = $(shm_test_ldadd)
## ranks of the channel in one process
shm_ranks_sources = test/unit/shm_ranks.c test/unit/shm_ranks.h test/unit/unit.h
test_unit_test_shm_pair_SOURCES = test/unit/test_shm_pair.c $(shm_ranks_sources)
test_unit_test_shm_pair_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_pair_LDADD = $(shm_test_ldadd)
test_unit_test_shm_cores_SOURCES = test/unit/test_shm_cores.c $(shm_ranks_sources)
test_unit_test_shm_cores_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_cores_LDADD = $(shm_test_ldadd)
test_unit_test_shm_fault_SOURCES = test/unit/test_shm_fault.c $(shm_ranks_sources)
test_unit_test_shm_fault_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_fault_LDADD = $(shm_test_ldadd)
test_unit_test_shm_single_SOURCES = test/unit/test_shm_single.c $(shm_ranks_sources)
test_unit_test_shm_single_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_single_LDADD = $(shm_test_ldadd)
test_unit_test_shm_judge_SOURCES = test/unit/test_shm_judge.c test/unit/unit.h
test_unit_test_shm_judge_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_judge_LDADD = $(shm_test_ldadd)
test_unit_test_shm_contest_SOURCES = test/unit/test_shm_contest.c test/unit/unit.h
test_unit_test_shm_contest_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_contest_LDADD = $(shm_test_ldadd)
test_unit_test_shm_store_SOURCES = test/unit/test_shm_store.c test/unit/unit.h
test_unit_test_shm_store_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_store_LDADD = $(shm_test_ldadd)
test_unit_test_shm_split_SOURCES = test/unit/test_shm_split.c $(shm_ranks_sources)
test_unit_test_shm_split_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_split_LDADD = $(shm_test_ldadd)
test_unit_test_shm_way_SOURCES = test/unit/test_shm_way.c $(shm_ranks_sources)
test_unit_test_shm_way_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_way_LDADD = $(shm_test_ldadd)
test_unit_test_shm_reach_SOURCES = test/unit/test_shm_reach.c $(shm_ranks_sources)
test_unit_test_shm_reach_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_reach_LDADD = $(shm_test_ldadd)
quiet_sources = test/unit/quiet.c test/unit/quiet.h
test_unit_test_shm_groups_SOURCES = test/unit/test_shm_groups.c test/unit/unit.h $(quiet_sources)
test_unit_test_shm_groups_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_groups_LDADD = $(shm_test_ldadd)
test_unit_test_shm_visits_SOURCES = test/unit/test_shm_visits.c test/unit/unit.h
test_unit_test_shm_visits_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_visits_LDADD = $(shm_test_ldadd)
test_unit_test_shm_flow_SOURCES = test/unit/test_shm_flow.c $(shm_ranks_sources)
test_unit_test_shm_flow_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_flow_LDADD = $(shm_test_ldadd)
test_unit_test_shm_part_SOURCES = test/unit/test_shm_part.c $(shm_ranks_sources)
test_unit_test_shm_part_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_part_LDADD = $(shm_test_ldadd)
test_unit_test_shm_lap_SOURCES = test/unit/test_shm_lap.c $(shm_ranks_sources)
test_unit_test_shm_lap_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_lap_LDADD = $(shm_test_ldadd)
test_unit_test_shm_turn_SOURCES = test/unit/test_shm_turn.c $(shm_ranks_sources)
test_unit_test_shm_turn_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_turn_LDADD = $(shm_test_ldadd)
test_unit_test_shm_fifo_SOURCES = test/unit/test_shm_fifo.c $(shm_ranks_sources)
test_unit_test_shm_fifo_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_fifo_LDADD = $(shm_test_ldadd)
test_unit_test_shm_node_barrier_SOURCES = test/unit/test_shm_node_barrier.c $(shm_ranks_sources)
test_unit_test_shm_node_barrier_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_node_barrier_LDADD = $(shm_test_ldadd)
test_unit_test_shm_threads_SOURCES = test/unit/test_shm_threads.c test/unit/one_space.c \
    test/unit/unit.h
test_unit_test_shm_threads_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_threads_LDADD = $(shm_test_ldadd)
test_unit_test_shm_share_SOURCES = test/unit/test_shm_share.c test/unit/unit.h
test_unit_test_shm_share_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_share_LDADD = $(shm_test_ldadd)
test_unit_test_shm_linux_SOURCES = test/unit/test_shm_linux.c test/unit/unit.h
test_unit_test_shm_linux_CPPFLAGS = $(shm_test_cppflags)
test_unit_test_shm_linux_LDADD = $(shm_test_ldadd)

if HAVE_DAT
dapl_test_cppflags = $(util_test_cppflags) -I$(srcdir)/include -I$(srcdir)/src/dapl
dapl_test_ldadd = libdapl.la libutil.la $(DAT_LIBS) -lcmocka

check_PROGRAMS += test/unit/test_wire test/unit/test_trace test/unit/test_fsm \
    test/unit/test_memwatch \
    test/unit/test_regcache test/unit/test_remap test/unit/test_mix test/unit/test_place \
    test/unit/test_ledger
test_unit_test_ledger_SOURCES = test/unit/test_ledger.c test/unit/unit.h
test_unit_test_ledger_CPPFLAGS = $(dapl_test_cppflags)
test_unit_test_ledger_LDADD = $(dapl_test_ldadd)
test_unit_test_wire_SOURCES = test/unit/test_wire.c test/unit/unit.h
test_unit_test_wire_CPPFLAGS = $(dapl_test_cppflags)
test_unit_test_wire_LDADD = $(dapl_test_ldadd)
test_unit_test_trace_SOURCES = test/unit/test_trace.c test/unit/unit.h
test_unit_test_trace_CPPFLAGS = $(dapl_test_cppflags) \
    -DTRACES='"$(abs_srcdir)/test/unit/ack_reconnect.traces"'
test_unit_test_trace_LDADD = $(dapl_test_ldadd)
test_unit_test_fsm_SOURCES = test/unit/test_fsm.c test/unit/unit.h
test_unit_test_fsm_CPPFLAGS = $(dapl_test_cppflags)
test_unit_test_fsm_LDADD = $(dapl_test_ldadd)
test_unit_test_place_SOURCES = test/unit/test_place.c test/unit/unit.h
test_unit_test_place_CPPFLAGS = $(dapl_test_cppflags) \
    -DTWO_PACKAGES=\"$(abs_srcdir)/test/unit/two_packages.xml\"
test_unit_test_place_LDADD = $(dapl_test_ldadd)
test_unit_test_memwatch_SOURCES = test/unit/test_memwatch.c test/unit/unit.h
test_unit_test_memwatch_CPPFLAGS = $(dapl_test_cppflags)
test_unit_test_memwatch_LDADD = $(dapl_test_ldadd)

## the registration cache, on an adapter that pins memory
regs_sources = test/unit/regs.c test/unit/regs.h test/unit/pinner.c test/unit/pinner.h \
    test/unit/unit.h
test_unit_test_regcache_SOURCES = test/unit/test_regcache.c $(regs_sources)
test_unit_test_regcache_CPPFLAGS = $(dapl_test_cppflags) $(DAT_CPPFLAGS)
test_unit_test_regcache_LDADD = $(dapl_test_ldadd)
test_unit_test_remap_SOURCES = test/unit/test_remap.c $(regs_sources)
test_unit_test_remap_CPPFLAGS = $(dapl_test_cppflags) $(DAT_CPPFLAGS)
test_unit_test_remap_LDADD = $(dapl_test_ldadd)
test_unit_test_mix_SOURCES = test/unit/test_mix.c $(regs_sources)
test_unit_test_mix_CPPFLAGS = $(dapl_test_cppflags) $(DAT_CPPFLAGS)
test_unit_test_mix_LDADD = $(dapl_test_ldadd)
endif
endif
