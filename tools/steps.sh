# SPDX-License-Identifier: MIT
# Sourced by quickstart and check (bash): progress lines, one log per step, Debian packages, and
# the builds that both need. The caller sets top.
# shellcheck shell=bash disable=SC2034,SC2154

started=$SECONDS
logs=$top/build/logs
jobs=$(nproc 2>/dev/null || echo 2)

say() { printf '[%4ds] %s\n' $((SECONDS - started)) "$*"; }
die() {
    printf '[%4ds] FAILED: %s\n' $((SECONDS - started)) "$*" >&2
    exit 1
}

# path_fits WHAT PATH: ends with one line when configure, libtool, make or dat.conf cannot take it.
path_fits() {
    case $2 in
    *[][[:space:]\"\'\\\$\&\;\|\<\>\(\)\{\}*?!#~^\`,:%=]*)
        die "$1, \"$2\", contains a character that configure, libtool or dat.conf cannot take:" \
            "no blanks, quotes, commas, colons, and none of" \
            "\\ \$ & ; | < > ( ) { } [ ] * ? ! # ~ ^ \` % =" ;;
    esac
}
path_fits "the directory of the sources" "$top"
mkdir -p "$logs"

# A line every half minute while a step runs, so that nobody takes it for stuck.
heartbeat() {
    local what=$1 log=$2
    while sleep 30 >/dev/null 2>&1; do
        say "  ... $what ($(wc -l < "$log") lines of log)"
    done
}

# step NAME COMMAND...: runs it, output into build/logs/NAME.log; on failure shows the end of it.
step() {
    local name=$1 t=$SECONDS beat rc=0
    shift
    say "$name ..."
    : > "$logs/$name.log"
    heartbeat "$name" "$logs/$name.log" &
    beat=$!
    "$@" > "$logs/$name.log" 2>&1 < /dev/null || rc=$?
    kill $beat 2>/dev/null || true
    wait $beat 2>/dev/null || true
    if [ $rc -ne 0 ]; then
        tail -25 "$logs/$name.log" >&2
        die "$name (exit $rc); the whole log: build/logs/$name.log"
    fi
    say "$name done ($((SECONDS - t)) s)"
}

# -- packages --------------------------------------------------------------------------------------

build_packages="gcc g++ libc6-dev make autoconf automake libtool perl python3 dpkg-dev xz-utils
    libdapl-dev libdapl2 libhwloc-dev"
package_packages="debhelper gfortran libcmocka-dev libibverbs-dev librdmacm-dev"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# apt_get ARGUMENT...: waits, some minutes at most, while another process holds one of apt's locks:
# apt itself can wait for dpkg's, and not for that of its lists. The line that says so goes to fd 3.
apt_get() {
    local rc try errors=$logs/apt-errors.log
    for ((try = 1; ; try++)); do
        rc=0
        as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q "$@" 2> "$errors" 3>&- ||
            rc=$?
        cat "$errors"
        if [ $rc = 0 ] || [ $try -ge $apt_tries ] || ! grep -q "Could not get lock" "$errors"; then
            return $rc
        fi
        if [ $try = 1 ]; then
            say "  ... waits for another apt: $(grep -m 1 "Could not get lock" "$errors")" >&3
        fi
        sleep $apt_pause
    done
}
apt_tries=300 apt_pause=3

install_packages() { apt_get update && apt_get -y --no-install-recommends install "$@"; }

# need PACKAGE...: installs those that are missing.
need() {
    local p missing=()
    if ! command -v dpkg-query >/dev/null; then
        say "not a Debian system: taking it that the build tools and uDAPL are installed"
        return
    fi
    for p in "$@"; do installed "$p" || missing+=("$p"); done
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        die "packages are missing and neither root nor sudo is at hand: ${missing[*]}"
    fi
    say "packages: ${missing[*]}"
    step packages install_packages "${missing[@]}" 3>&1
}

# -- builds ----------------------------------------------------------------------------------------

# A compiler cache shortens repeated builds; as a folder in PATH it leaves no trace in mpicc.
if [ -d /usr/lib/ccache ]; then PATH=/usr/lib/ccache:$PATH; fi

# configured DIR FOUND COMMAND...: runs configure in DIR unless it was run there with the same
# command and the same configure script, with FOUND as it is now, and succeeded. FOUND says in any
# words what configure would find on this machine.
configured() {
    local dir=$1 want
    want="${*:3} $(cksum < "$3")${2:+ $2}"
    shift 2
    if [ "$(cat "$dir/.configured" 2>/dev/null)" = "$want" ]; then return; fi
    rm -rf "$dir"
    mkdir -p "$dir"
    (cd "$dir" && "$@") && echo "$want" > "$dir/.configured"
}

# build_mpich NAME DEVICE PREFIX [OPTION...]: configures and builds MPICH with this device in
# build/NAME-obj and installs it: what MPI programs need, optimised, under the names of Debian's
# libraries, for C and C++, and for Fortran where there is a compiler. Static libraries would double
# the compile time; the older datatype engine (Debian's choice too) saves compiling the newer one's
# generated files. OPTION: more of configure's.
build_mpich() {
    local name=$1 device=$2 prefix=$3 dir=$top/build/$1-obj options=() fortran=() order
    shift 3
    export MPILIBNAME=mpich
    mapfile -t options < <(grep '^-' "$top/tools/mpich-options")
    if command -v gfortran >/dev/null; then
        fortran=("FFLAGS=-O2 -fallow-argument-mismatch" "FCFLAGS=-O2 -fallow-argument-mismatch")
    else
        fortran=(--disable-fortran)
    fi
    if ! command -v g++ >/dev/null; then options+=(--disable-cxx); fi
    order=$(cksum < "$top/src/mpid/hot-functions.txt")
    step "$name-configure" configured "$dir" "$order" "$(cat "$top/build/mpich.dir")/configure" \
        --prefix="$prefix" --with-device="$device" "${options[@]}" "${fortran[@]}" "$@"
    step "$name-build" make -C "$dir" -j"$jobs" V=0
    step "$name-install" make -C "$dir" install
}

# build_device PREFIX: MPICH with ch3:dapl, with the options that quickstart had at last.
build_device() {
    local more=()
    if [ -f "$top/build/mpich.more" ]; then mapfile -t more < "$top/build/mpich.more"; fi
    build_mpich mpich ch3:dapl "$1" "${more[@]}"
}

# same_mpich: autogen.sh once more, for the tree of MPICH that it had at last.
same_mpich() {
    local tree=
    if [ -f "$top/build/mpich.dir" ]; then tree=$(cat "$top/build/mpich.dir"); fi
    if [ "${tree:-$top/build/mpich}" = "$top/build/mpich" ]; then
        ./autogen.sh
    else
        ./autogen.sh --mpich="$tree"
    fi
}

# headers NAME...: those that the compiler finds.
headers() {
    local h
    for h in "$@"; do
        if echo "#include <$h>" | cc -E - > /dev/null 2>&1; then echo "$h"; fi
    done
}

# install_programs PREFIX: a first job and a measurement, for users to try.
install_programs() {
    "$1/bin/mpicc" -O2 -o "$1/bin/mpich-dapl-first" "$top/benchmarks/mpi_first.c" &&
        "$1/bin/mpicc" -O2 -o "$1/bin/mpich-dapl-perf" "$top/benchmarks/mpi_perf.c"
}

# programs_of NAME FOLDER: those of test/FOLDER, as build/NAME is configured.
programs_of() { make -s -C "$top/build/$1" list-tests | tr ' ' '\n' | grep "^test/$2/" || true; }

# build_ours NAME [OPTION...]: configures and builds our own libraries in build/NAME.
build_ours() {
    local dir=$top/build/$1
    shift
    step "$(basename "$dir")-configure" configured "$dir" \
        "$(headers cmocka.h hwloc.h rdma/rdma_cma.h)" "$top/configure" "$@"
    step "$(basename "$dir")-build" make -C "$dir" -j"$jobs"
}

# dat_conf_line PREFIX [PARAMS]: the registry line of the software provider.
dat_conf_line() {
    echo "soft0 u2.0 nonthreadsafe default $1/lib/libdaplsoft.so daplsoft.1.0 \"${2-}\" \"\""
}

# write_dat_conf PREFIX: the registry of the installation, unless the user has put one there.
write_dat_conf() {
    if [ -s "$1/etc/dat.conf" ]; then return; fi
    mkdir -p "$1/etc"
    {
        echo "# uDAPL providers for ch3:dapl. soft0 is the software provider, over TCP on the first"
        echo "# interface that is up. To choose another, write \"if=NAME\" or \"addr=ADDRESS\" in"
        echo "# place of the first \"\"."
        dat_conf_line "$1"
    } > "$1/etc/dat.conf"
}
