## SPDX-License-Identifier: MIT
## The network module ch4:dapl in MPICH's build: its glue. What it stands on is built from the
## sources of the channel, by src/mpid/ch3/channels/dapl/base.mk.

include $(top_srcdir)/src/mpid/ch4/netmod/dapl/sources.mk

if BUILD_CH4_DAPL

noinst_HEADERS += $(mdapl_ch4_headers)

noinst_LTLIBRARIES += src/mpid/ch4/netmod/dapl/libmdapl_ch4.la

src_mpid_ch4_netmod_dapl_libmdapl_ch4_la_SOURCES = $(mdapl_ch4_sources)
src_mpid_ch4_netmod_dapl_libmdapl_ch4_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch4_netmod_dapl_libmdapl_ch4_la_CPPFLAGS = $(AM_CPPFLAGS) \
    -I$(top_srcdir)/src/mpid/ch4/netmod/dapl -I$(mdapl_dir)/launch -I$(mdapl_dir)/util \
    -I$(mdapl_dir)/dapl -I$(mdapl_dir)/shm

pmpi_convenience_libs += src/mpid/ch4/netmod/dapl/libmdapl_ch4.la $(mdapl_libs)

endif BUILD_CH4_DAPL
