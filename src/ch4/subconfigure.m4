[#] SPDX-License-Identifier: MIT
dnl The network module ch4:dapl in MPICH's configure. What has to come before the device's choices,
dnl and what the module needs of the system, is in the channel's: src/mpid/subconfigure.m4.

AC_DEFUN([PAC_SUBCFG_PREREQ_]PAC_SUBCFG_AUTO_SUFFIX,[
    AM_CONDITIONAL([BUILD_CH4_DAPL],[test "X$device_name:$device_args" = "Xch4:dapl"])
    AM_COND_IF([BUILD_CH4_DAPL],[
        AC_MSG_NOTICE([RUNNING PREREQ FOR ch4:dapl])
        AC_DEFINE([MPIDI_BUILD_CH4_LOCALITY_INFO],[1],[CH4 should build locality info])
    ])
])

AC_DEFUN([PAC_SUBCFG_BODY_]PAC_SUBCFG_AUTO_SUFFIX,[
AM_COND_IF([BUILD_CH4_DAPL],[
    AS_IF([test "X$thread_granularity" = XMPICH_THREAD_GRANULARITY__VCI],
        [AC_MSG_ERROR([ch4:dapl needs MPICH's global lock: leave out --enable-thread-cs=per-vci])])
])
])
