## SPDX-License-Identifier: MIT
## What the channel ch3:dapl and the network module ch4:dapl stand on, in MPICH's build: a part of
## src/mpid/common, whose list of parts includes it. sources.mk (written by our autogen.sh when it
## laid the channel in) has the lists of files.

include $(top_srcdir)/src/mpid/ch3/channels/dapl/sources.mk

mdapl_dir = $(top_srcdir)/src/mpid/ch3/channels/dapl

if BUILD_DAPL

mdapl_libs = \
    src/mpid/ch3/channels/dapl/libmdapl_launch.la \
    src/mpid/ch3/channels/dapl/libmdapl_dapl.la \
    src/mpid/ch3/channels/dapl/libmdapl_shm.la \
    src/mpid/ch3/channels/dapl/libmdapl_util.la

noinst_LTLIBRARIES += $(mdapl_libs)

src_mpid_ch3_channels_dapl_libmdapl_util_la_SOURCES = $(mdapl_util_sources)
src_mpid_ch3_channels_dapl_libmdapl_util_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_util_la_CPPFLAGS = -D_GNU_SOURCE -I$(mdapl_dir)/util \
    -DMDAPL_DEVICE=\"$(mdapl_device)\"

src_mpid_ch3_channels_dapl_libmdapl_dapl_la_SOURCES = $(mdapl_dapl_sources)
src_mpid_ch3_channels_dapl_libmdapl_dapl_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_dapl_la_CPPFLAGS = -D_GNU_SOURCE -I$(mdapl_dir)/include \
    -I$(mdapl_dir)/dapl -I$(mdapl_dir)/util \
    $(mdapl_hwloc_cppflags)

src_mpid_ch3_channels_dapl_libmdapl_shm_la_SOURCES = $(mdapl_shm_sources)
src_mpid_ch3_channels_dapl_libmdapl_shm_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_shm_la_CPPFLAGS = -D_GNU_SOURCE -I$(mdapl_dir)/shm -I$(mdapl_dir)/util

src_mpid_ch3_channels_dapl_libmdapl_launch_la_SOURCES = $(mdapl_launch_sources)
src_mpid_ch3_channels_dapl_libmdapl_launch_la_CFLAGS = $(AM_CFLAGS) $(mdapl_cflags)
src_mpid_ch3_channels_dapl_libmdapl_launch_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(mdapl_dir)/launch \
    -I$(mdapl_dir)/util -DMDAPL_DEVICE=\"$(mdapl_device)\" \
    -DMDAPL_DAT_CONF=\"$(sysconfdir)/dat.conf\"

endif BUILD_DAPL
