[#] SPDX-License-Identifier: MIT
dnl MPICH_SUBCFG_BEFORE=src/mpid/ch4
dnl The channel ch3:dapl in MPICH's configure, and what the network module ch4:dapl shares with it.
dnl MPICH finds this file by its name; PREREQ runs before the device is configured, BODY in its turn.

AC_DEFUN([PAC_SUBCFG_PREREQ_]PAC_SUBCFG_AUTO_SUFFIX,[
    AM_CONDITIONAL([BUILD_CH3_DAPL],[test "X$device_name" = "Xch3" && test "X$channel_name" = "Xdapl"])
    AM_CONDITIONAL([BUILD_DAPL],[test "X$device_name:$channel_name" = "Xch3:dapl" || test "X$device_name:$device_args" = "Xch4:dapl"])
    dnl Messages between ranks of one node are those of src/shm, whose order is the contract's.
    AS_IF([test "X$device_name:$device_args" = "Xch4:dapl"],[
        AS_CASE([${with_ch4_shmmods-none}],
            [none|no],[with_ch4_shmmods=none],
            [AC_MSG_ERROR([ch4:dapl has shared memory of its own: leave out --with-ch4-shmmods=$with_ch4_shmmods])])
        AS_IF([test "X${enable_ch4_netmod_inline-yes}" != Xyes],
            [AC_MSG_ERROR([ch4:dapl has no table of calls: leave out --disable-ch4-netmod-inline])])
    ])
    AM_COND_IF([BUILD_CH3_DAPL],[
        AC_MSG_NOTICE([RUNNING PREREQ FOR ch3:dapl])
        MPID_MAX_THREAD_LEVEL=MPI_THREAD_MULTIPLE

        dnl our counters are MPI_T performance variables; they count in any case, so always
        AC_DEFINE([ENABLE_PVAR_DAPL],[1],[MPI_T performance variables of ch3:dapl])
    ])
])

AC_DEFUN([PAC_SUBCFG_BODY_]PAC_SUBCFG_AUTO_SUFFIX,[
AM_COND_IF([BUILD_DAPL],[
    mdapl_device=$device_name:dapl
    AC_SUBST([mdapl_device])
    AC_MSG_NOTICE([RUNNING CONFIGURE FOR $mdapl_device])

    AC_ARG_WITH([dapl],[AS_HELP_STRING([--with-dapl=DIR],[where uDAPL is installed (same as --with-dat)])],
        [AS_IF([test -z "$with_dat"],[with_dat=$withval])])
    PAC_SET_HEADER_LIB_PATH([dat])
    PAC_CHECK_HEADER_LIB([dat2/udat.h],[dat2],[dat_ia_openv],[pac_have_dat=yes],[pac_have_dat=no])
    AS_IF([test "$pac_have_dat" = no],[
        AC_MSG_ERROR([$mdapl_device needs uDAPL 2: dat2/udat.h and libdat2 were not found. Install the package libdapl-dev (Debian; dapl-devel elsewhere), or say where it is: --with-dapl=DIR, or --with-dat-include=DIR with --with-dat-lib=DIR])
    ])
    dnl hints about binding, where MPICH has hwloc of the system's
    mdapl_hwloc_cppflags=
    AS_IF([test "$pac_have_hwloc" = yes],[AC_CHECK_HEADER([hwloc.h],[mdapl_hwloc_cppflags=-DMDAPL_HWLOC])])
    AC_SUBST([mdapl_hwloc_cppflags])
    dnl our names are of use inside libmpi only: calls go straight and not through its jump table
    mdapl_cflags=
    save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -fvisibility=hidden -Werror"
    AC_MSG_CHECKING([whether $CC takes -fvisibility=hidden])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
        [mdapl_cflags=-fvisibility=hidden; AC_MSG_RESULT([yes])],[AC_MSG_RESULT([no])])
    CFLAGS=$save_CFLAGS
    AC_SUBST([mdapl_cflags])
    dnl The functions that short messages pass through are spread over 3 MB of code, and ranks that share a core find no
    dnl page of theirs in the processor's tables (TLB) after a switch. So they are linked side by side, where the linker
    dnl prints its own script and takes it with their names in it.
    mdapl_order_cflags=
    mdapl_order_ldflags=
    AC_MSG_CHECKING([whether the linker takes an order of functions])
    AC_LANG_CONFTEST([AC_LANG_SOURCE([[int f(void); int f(void) { return 1; }]])])
    mdapl_link="$CC $CFLAGS $LDFLAGS -ffunction-sections -fPIC -shared -o conftest.so conftest.c"
    mdapl_from=$srcdir/src/mpid/ch3/channels/dapl
    AS_IF([sh $mdapl_from/link-order.sh $mdapl_from/hot-functions.txt $mdapl_link >mdapl-order.ld 2>/dev/null &&
           $mdapl_link -Wl,-T,mdapl-order.ld >/dev/null 2>&1],
        [mdapl_order_cflags=-ffunction-sections
         mdapl_order_ldflags='-Wl,-T,$(abs_top_builddir)/mdapl-order.ld'
         AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])])
    rm -f conftest.c conftest.so
    AC_SUBST([mdapl_order_cflags])
    AC_SUBST([mdapl_order_ldflags])
    dnl libmpi is not linked with it: dat.h in the channel loads it

    dnl Hydra makes each rank the leader of a session, so that it can signal the rank with its children. A process group
    dnl is enough for that; and Linux schedules each session as a group (autogroup), where a switch between ranks that
    dnl share a core costs more and sched_yield() rarely reaches another rank. hydra_config.h is in the folder include
    dnl before MPICH 4.1.
    AC_CONFIG_COMMANDS([hydra-groups],[
        for mdapl_file in src/pm/hydra/hydra_config.h src/pm/hydra/include/hydra_config.h; do
            if test -f $mdapl_file && ! grep 'define setsid' $mdapl_file >/dev/null; then
                printf '%s\n' '' '#include <unistd.h>' '#define setsid() setpgid(0, 0)' >>$mdapl_file
            fi
        done
    ])
])
])
