## SPDX-License-Identifier: MIT
## Whole channels in one process, on the fake provider with virtual time.
if HAVE_CMOCKA
if HAVE_DAT
sim_test_cppflags = $(util_cppflags) -I$(srcdir)/include -I$(srcdir)/src/dapl -I$(srcdir)/test/unit \
    -I$(srcdir)/test/fake $(DAT_CPPFLAGS)
sim_test_ldadd = libdapl.la libutil.la $(DAT_LIBS) -lcmocka
fake_sources = test/fake/fake.c test/fake/fake.h test/unit/unit.h
sim_sources = test/sim/sim.c test/sim/sim.h test/sim/seeds.h test/sim/plans.h $(fake_sources)

check_PROGRAMS += test/sim/test_sim test/sim/test_flow test/sim/test_faults test/sim/test_connect \
    test/sim/test_replay test/sim/test_rails \
    test/sim/test_recover test/sim/test_conn test/sim/test_groups test/sim/test_break \
    test/sim/test_bodies test/sim/test_ia test/sim/test_paths test/sim/test_silent \
    test/sim/test_storm test/sim/test_rma test/sim/test_visits
test_sim_test_sim_SOURCES = test/sim/test_sim.c test/sim/seeds.h $(fake_sources)
test_sim_test_sim_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_sim_LDADD = $(sim_test_ldadd)
test_sim_test_flow_SOURCES = test/sim/test_flow.c $(sim_sources)
test_sim_test_flow_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_flow_LDADD = $(sim_test_ldadd)
test_sim_test_faults_SOURCES = test/sim/test_faults.c $(sim_sources)
test_sim_test_faults_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_faults_LDADD = $(sim_test_ldadd)
test_sim_test_replay_SOURCES = test/sim/test_replay.c $(sim_sources)
test_sim_test_replay_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_replay_LDADD = $(sim_test_ldadd)
test_sim_test_bodies_SOURCES = test/sim/test_bodies.c $(sim_sources)
test_sim_test_bodies_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_bodies_LDADD = $(sim_test_ldadd)
test_sim_test_ia_SOURCES = test/sim/test_ia.c $(sim_sources)
test_sim_test_ia_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_ia_LDADD = $(sim_test_ldadd)
test_sim_test_rails_SOURCES = test/sim/test_rails.c $(sim_sources)
test_sim_test_rails_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_rails_LDADD = $(sim_test_ldadd)
test_sim_test_paths_SOURCES = test/sim/test_paths.c $(sim_sources)
test_sim_test_paths_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_paths_LDADD = $(sim_test_ldadd)
test_sim_test_groups_SOURCES = test/sim/test_groups.c $(sim_sources)
test_sim_test_groups_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_groups_LDADD = $(sim_test_ldadd)
test_sim_test_recover_SOURCES = test/sim/test_recover.c $(sim_sources)
test_sim_test_recover_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_recover_LDADD = $(sim_test_ldadd)
test_sim_test_conn_SOURCES = test/sim/test_conn.c $(sim_sources)
test_sim_test_conn_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_conn_LDADD = $(sim_test_ldadd)
test_sim_test_break_SOURCES = test/sim/test_break.c $(sim_sources)
test_sim_test_break_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_break_LDADD = $(sim_test_ldadd)
test_sim_test_silent_SOURCES = test/sim/test_silent.c $(sim_sources)
test_sim_test_silent_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_silent_LDADD = $(sim_test_ldadd)
test_sim_test_rma_SOURCES = test/sim/test_rma.c $(sim_sources)
test_sim_test_rma_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_rma_LDADD = $(sim_test_ldadd)
test_sim_test_visits_SOURCES = test/sim/test_visits.c $(sim_sources)
test_sim_test_visits_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_visits_LDADD = $(sim_test_ldadd)
test_sim_test_storm_SOURCES = test/sim/test_storm.c $(sim_sources)
test_sim_test_storm_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_storm_LDADD = $(sim_test_ldadd)
test_sim_test_connect_SOURCES = test/sim/test_connect.c test/sim/seeds.h $(fake_sources) $(quiet_sources)
test_sim_test_connect_CPPFLAGS = $(sim_test_cppflags)
test_sim_test_connect_LDADD = $(sim_test_ldadd)
endif
endif
