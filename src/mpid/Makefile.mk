## SPDX-License-Identifier: MIT
## The channel ch3:dapl in MPICH's build: its glue. base.mk has the rest.

## outside the condition: the error strings do not depend on what is configured
errnames_txt_files += src/mpid/ch3/channels/dapl/src/errnames.txt

if BUILD_CH3_DAPL

## all of CH3 includes mpidi_ch3_pre.h, and that includes the contract
AM_CPPFLAGS += -I$(mdapl_dir)/src -I$(mdapl_dir)/util

noinst_HEADERS += $(mdapl_headers)

## src/mpid/colls.c
external_ldflags += -Wl,--wrap=MPIR_Allreduce -Wl,--wrap=MPIC_Wait \
    -Wl,--wrap=MPIDI_CH3U_Clean_recvq

## src/mpid/node_colls.c
external_ldflags += -Wl,--wrap=MPIR_Barrier_intra_smp \
    -Wl,--wrap=MPIR_Reduce_intra_reduce_scatter_gather \
    -Wl,--wrap=MPIR_Bcast_intra_scatter_recursive_doubling_allgather \
    -Wl,--wrap=MPIR_Bcast_intra_scatter_ring_allgather

## src/mpid/awaited.c
external_ldflags += -Wl,--wrap=MPID_Recv

## src/mpid/sendrecv.c
external_ldflags += -Wl,--wrap=MPIR_Sendrecv_impl -Wl,--wrap=MPIC_Sendrecv -Wl,--wrap=MPIC_Isend

## src/mpid/heap.c
external_ldflags += -Wl,--wrap=malloc -Wl,--wrap=free

## hot-functions.txt
AM_CFLAGS += $(mdapl_order_cflags)
external_ldflags += $(mdapl_order_ldflags)

noinst_LTLIBRARIES += src/mpid/ch3/channels/dapl/libmdapl_glue.la

src_mpid_ch3_channels_dapl_libmdapl_glue_la_SOURCES = $(mdapl_glue_sources)
src_mpid_ch3_channels_dapl_libmdapl_glue_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_glue_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(mdapl_dir)/launch \
    -I$(mdapl_dir)/dapl -I$(mdapl_dir)/shm

pmpi_convenience_libs += src/mpid/ch3/channels/dapl/libmdapl_glue.la $(mdapl_libs)

endif BUILD_CH3_DAPL
