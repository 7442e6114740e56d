## SPDX-License-Identifier: MIT
## The channel ch3:dapl in MPICH's build. sources.mk (written by our autogen.sh when it laid the
## channel in) has the lists of files. Only the glue sees MPICH's headers.

include $(top_srcdir)/src/mpid/ch3/channels/dapl/sources.mk

## outside the condition: the error strings do not depend on what is configured
errnames_txt_files += src/mpid/ch3/channels/dapl/src/errnames.txt

if BUILD_CH3_DAPL

mdapl_ch3_dir = $(top_srcdir)/src/mpid/ch3/channels/dapl

## all of CH3 includes mpidi_ch3_pre.h, and that includes the contract
AM_CPPFLAGS += -I$(mdapl_ch3_dir)/src -I$(mdapl_ch3_dir)/util

noinst_HEADERS += $(mdapl_headers)

## src/mpid/colls.c
external_ldflags += -Wl,--wrap=MPIR_Allreduce -Wl,--wrap=MPIC_Wait \
    -Wl,--wrap=MPIDI_CH3U_Clean_recvq

noinst_LTLIBRARIES += \
    src/mpid/ch3/channels/dapl/libmdapl_util.la \
    src/mpid/ch3/channels/dapl/libmdapl_dapl.la \
    src/mpid/ch3/channels/dapl/libmdapl_shm.la \
    src/mpid/ch3/channels/dapl/libmdapl_glue.la

src_mpid_ch3_channels_dapl_libmdapl_util_la_SOURCES = $(mdapl_util_sources)
src_mpid_ch3_channels_dapl_libmdapl_util_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_util_la_CPPFLAGS = -D_GNU_SOURCE -I$(mdapl_ch3_dir)/util

src_mpid_ch3_channels_dapl_libmdapl_dapl_la_SOURCES = $(mdapl_dapl_sources)
src_mpid_ch3_channels_dapl_libmdapl_dapl_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_dapl_la_CPPFLAGS = -D_GNU_SOURCE -I$(mdapl_ch3_dir)/include \
    -I$(mdapl_ch3_dir)/dapl -I$(mdapl_ch3_dir)/util \
    $(mdapl_hwloc_cppflags)

src_mpid_ch3_channels_dapl_libmdapl_shm_la_SOURCES = $(mdapl_shm_sources)
src_mpid_ch3_channels_dapl_libmdapl_shm_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_shm_la_CPPFLAGS = -D_GNU_SOURCE -I$(mdapl_ch3_dir)/shm -I$(mdapl_ch3_dir)/util

src_mpid_ch3_channels_dapl_libmdapl_glue_la_SOURCES = $(mdapl_glue_sources)
src_mpid_ch3_channels_dapl_libmdapl_glue_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_glue_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(mdapl_ch3_dir)/dapl -I$(mdapl_ch3_dir)/shm \
    -DMDAPL_DAT_CONF=\"$(sysconfdir)/dat.conf\"

pmpi_convenience_libs += \
    src/mpid/ch3/channels/dapl/libmdapl_glue.la \
    src/mpid/ch3/channels/dapl/libmdapl_dapl.la \
    src/mpid/ch3/channels/dapl/libmdapl_shm.la \
    src/mpid/ch3/channels/dapl/libmdapl_util.la

endif BUILD_CH3_DAPL
