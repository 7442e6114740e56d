#!/bin/sh
# SPDX-License-Identifier: MIT
# autogen.sh [--mpich=DIR]: makes ./configure, and lays the channel ch3:dapl into an MPICH source
# tree: DIR (an unmodified release or git tree of MPICH 4.0), or Debian's source package of mpich,
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

# put FILE from stdin, only when that changes it: make goes by time stamps
put() {
    cat > "$1.new"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# copy SRC DST, only when different. With a time of its own: SRC may be older than what was compiled
copy() { cmp -s "$1" "$2" || cp "$1" "$2"; }

# list NAME PREFIX FILE...: a make variable
list() {
    name=$1 prefix=$2
    shift 2
    printf '%s =' "$name"
    for f in "$@"; do
        if [ -f "$f" ]; then printf ' \\\n    %s%s' "$prefix" "$(basename "$f")"; fi
    done
    printf '\n'
}

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
    [ -f "$mpich/maint/gen_subcfg_m4" ] || die "$mpich is not an MPICH source tree"
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
echo "$mpich" | put build/mpich.dir

# -- laying the channel in -------------------------------------------------------------------------

channels=$mpich/src/mpid/ch3/channels
laid=$channels/dapl
mkdir -p "$laid/src" "$laid/include" "$laid/util" "$laid/dapl" "$laid/shm" "$laid/.gen"

# lay SRCDIR DSTDIR: the C files, and what else the build reads; takes away what is no longer there
lay() {
    for f in "$1"/*.c "$1"/*.h "$1"/*.def "$1"/errnames.txt; do
        if [ -f "$f" ]; then copy "$f" "$2/$(basename "$f")"; fi
    done
    for f in "$2"/*.c "$2"/*.h "$2"/*.def; do
        name=$(basename "$f")
        if [ -f "$f" ] && [ ! -f "$1/$name" ] && [ ! -f "$laid/.gen/$name" ]; then rm "$f"; fi
    done
}
if [ -f tools/gen-knobs.py ]; then
    python3 tools/gen-knobs.py --mpich "$laid/.gen"
fi
lay src/mpid "$laid/src"
lay src/util "$laid/util"
lay src/dapl "$laid/dapl"
lay src/shm "$laid/shm"
for f in "$laid"/.gen/*; do
    if [ -f "$f" ]; then copy "$f" "$laid/src/$(basename "$f")"; fi
done
lay include "$laid/include"
copy src/mpid/subconfigure.m4 "$laid/subconfigure.m4"
copy src/mpid/Makefile.mk "$laid/Makefile.mk"
at=src/mpid/ch3/channels/dapl
{
    echo '## written by our autogen.sh'
    list mdapl_util_sources $at/util/ "$laid"/util/*.c
    list mdapl_dapl_sources $at/dapl/ "$laid"/dapl/*.c
    list mdapl_shm_sources $at/shm/ "$laid"/shm/*.c
    list mdapl_glue_sources $at/src/ "$laid"/src/*.c
    list mdapl_headers $at/src/ "$laid"/src/*.h
} | put "$laid/sources.mk"
line='include $(top_srcdir)/src/mpid/ch3/channels/dapl/Makefile.mk'
grep -qF "$line" "$channels/Makefile.mk" || echo "$line" >> "$channels/Makefile.mk"

# -- MPICH's generated files -----------------------------------------------------------------------

# sums FILE...: changes when one of them does
sums() { cksum "$@" | cksum; }

# stale STAMP SUM: has this step not yet been done for this content?
stale() { [ "$(cat "$laid/.$1" 2>/dev/null)" != "$2" ]; }
done_for() { echo "$2" > "$laid/.$1"; }

conf_sum=$(sums "$laid/subconfigure.m4")
make_sum=$(sums "$laid"/*.mk "$channels/Makefile.mk")
text_sum=$(sums "$laid"/src/*.[ch] "$laid/src/errnames.txt")

# full: MPICH's own autogen.sh, for a tree that has nothing generated yet
full() {
    say "MPICH's autogen.sh in $mpich (several minutes)"
    (cd "$mpich" && ./autogen.sh) > build/mpich-autogen.log 2>&1 ||
        die "MPICH's autogen.sh failed, see build/mpich-autogen.log"
}

cvar_files="src/include/mpir_cvars.h src/util/mpir_cvars.c"

# maint/configure fills in the absolute paths that a release carries from the machine it was made on
texts() {
    if ! grep -qF "$mpich/" maint/cvardirs; then (cd maint && ./configure >/dev/null); fi
    # shellcheck disable=SC2046
    ./maint/extracterrmsgs -careful=unusederr.txt -skip=src/util/multichannel/mpi.c \
        $(cat maint/errmsgdirs) > build-defmsg.new
    if cmp -s build-defmsg.new src/mpi/errhan/defmsg.h; then
        rm build-defmsg.new
    else
        mv build-defmsg.new src/mpi/errhan/defmsg.h
    fi
    for f in $cvar_files; do cp -p "$f" "$f.before"; done
    ./maint/extractcvars --dirs="$(cat maint/cvardirs)"
    for f in $cvar_files; do keep "$f"; done
}
# keep FILE: as it was, with its time, if only the date in it is new: all of MPICH is compiled again
# when the header of control variables changes.
keep() {
    undated "$1.before" > "$1.undated"
    if undated "$1" | cmp -s - "$1.undated"; then mv "$1.before" "$1"; else rm "$1.before"; fi
    rm "$1.undated"
}
undated() { sed '/^ \* *\(at\|on\): .* UTC$/d' "$1"; }
conf_files() {
    ./maint/gen_subcfg_m4
    aclocal -I confdb
    autoconf
    autoheader
}

if [ ! -f "$mpich/configure" ]; then
    full
    done_for text "$text_sum"
    done_for conf "$conf_sum"
    done_for make "$make_sum"
fi
cd "$mpich"
if stale text "$text_sum"; then
    say "MPICH's error strings and control variables"
    texts > "$top/build/mpich-texts.log" 2>&1 || die "failed, see build/mpich-texts.log"
    done_for text "$text_sum"
fi
if stale conf "$conf_sum"; then
    say "MPICH's configure"
    conf_files > "$top/build/mpich-conf.log" 2>&1 || die "failed, see build/mpich-conf.log"
    done_for conf "$conf_sum"
    rm -f "$laid/.make"
fi
if stale make "$make_sum"; then
    say "MPICH's Makefile.in"
    automake > "$top/build/mpich-make.log" 2>&1 || die "failed, see build/mpich-make.log"
    done_for make "$make_sum"
fi
say "ch3:dapl is in $mpich"
