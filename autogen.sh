#!/bin/sh
# SPDX-License-Identifier: MIT
# autogen.sh [--mpich=DIR]: makes ./configure, and lays the channel ch3:dapl into an MPICH source
# tree: DIR (a release or git tree of MPICH 4.0 or later), or Debian's source package of mpich,
# fetched into build/mpich. Running it again does only what has changed.
set -eu

top=$(cd "$(dirname "$0")" && pwd)
cd "$top"
mpich=
for arg in "$@"; do
    case $arg in
    --mpich=*) mpich=${arg#--mpich=} ;;
    -h | --help) sed -n '3,5s/^# //p' "$0"; exit 0 ;;
    *) echo "autogen.sh: unknown argument $arg; try --help" >&2; exit 1 ;;
    esac
done

say() { echo "autogen.sh: $*"; }
die() { echo "autogen.sh: $*" >&2; exit 1; }

. tools/written.sh

for tool in autoreconf automake libtoolize perl python3 cc; do
    command -v $tool >/dev/null ||
        die "$tool is missing: apt-get install gcc make autoconf automake libtool perl python3"
done

# -- our own configure -----------------------------------------------------------------------------

mkdir -p build m4
{
    echo '# written by autogen.sh'
    list util_sources src/util/ src/util/*.c
    list dapl_sources src/dapl/ src/dapl/*.c
    list shm_sources src/shm/ src/shm/*.c
} | put build/sources.mk
{
    echo '# written by autogen.sh: the build fragments of the folders that have one'
    list datline_sources src/datline/ src/datline/*.c
    list softdat_sources src/softdat/ src/softdat/*.c
    list verbsdat_sources src/verbsdat/ src/verbsdat/*.c
    for f in benchmarks/Makefile.mk test/*/Makefile.mk; do
        if [ -f "$f" ]; then echo "include $f"; fi
    done
} | put build/parts.mk

if [ ! -f configure ] || [ ! -f Makefile.in ] ||
    [ -n "$(find configure.ac Makefile.am build/*.mk src/datline src/softdat src/verbsdat test \
        -newer Makefile.in \( -name configure.ac -o -name Makefile.am -o -name '*.mk' \))" ]; then
    say "autoreconf"
    autoreconf -i
    touch Makefile.in
fi

# -- MPICH's source --------------------------------------------------------------------------------

if [ -n "$mpich" ]; then
    [ -d "$mpich" ] || die "--mpich=$mpich: there is no such directory"
    mpich=$(cd "$mpich" && pwd)
else
    mpich=$top/build/mpich
    if [ ! -f "$mpich/maint/gen_subcfg_m4" ]; then
        say "fetching Debian's source package of mpich"
        rm -rf "$mpich"
        # 4.0: the line of MPICH that src/mpid is written for
        tools/get-source mpich 4.0 "$mpich" "give an MPICH source tree with --mpich=DIR"
    fi
fi
tools/lay-channel "$mpich" build/mpich
echo "$mpich" | put build/mpich.dir
