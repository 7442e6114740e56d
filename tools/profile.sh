# SPDX-License-Identifier: MIT
# Sourced by quickstart --profile (bash), after steps.sh: compiles the files that a message passes
# through once more, with the profile of a few jobs and across files. The rest of MPICH stays as it
# is: in all of it link-time optimisation would take minutes, and brings no message anything.
# shellcheck shell=bash disable=SC2154

# The folders of MPICH's build with those files, of ch3:dapl and ch3:nemesis. Not src/util: what the
# profile makes of the loops that copy was slower; -mmemcpy-strategy: nor is a memcpy() of many
# sizes expanded.
on_the_way=(
    src/binding/c/pt2pt src/binding/c/request src/mpi/pt2pt src/mpi/request src/mpid/ch3/src
    src/mpid/ch3/channels/dapl/{src,shm,dapl} src/mpid/ch3/channels/nemesis)

# compile_again DIR FLAG...: those files are compiled with FLAGS, too, and libmpich is linked.
compile_again() {
    local dir=$1 plain folder
    shift
    plain=$(sed -n 's/^CFLAGS = *//p' "$dir/Makefile")
    for folder in "${on_the_way[@]}"; do
        if [ ! -d "$dir/$folder" ]; then continue; fi
        find "$dir/$folder" \( -name '*.lo' -o -name '*.o' \) -delete
    done
    rm -f "$dir"/src/mpid/ch3/channels/dapl/*.la "$dir/lib/libmpich.la"
    make -C "$dir" -j"$jobs" V=0 CFLAGS="$plain $*" lib/libmpich.la
}

# train DIR MPIEXEC PERF: jobs of benchmarks/mpi_perf.c: short messages above all: waited for, many
# under way, and reduced; long ones.
train() {
    local job test
    for test in "lat 0 20000" "lat 8 20000" "lat 64 20000" "lat 1024 20000" "lat 16384 1000" \
        "rate 8 2000 64" "rate 1024 1000 64" "bw 262144 100" "reduce 64 2000"; do
        read -ra job <<< "$2 -n 2 $3 $test"
        LD_LIBRARY_PATH=$1/lib/.libs timeout -k 5 300 "${job[@]}" || return
    done
}

# compile_with_profile DIR MPIEXEC PERF FLAG...: compiled with counters, which these jobs count, and
# then with what was counted and FLAGS.
compile_with_profile() {
    local dir=$1 mpiexec=$2 perf=$3 calls=(-mmemcpy-strategy=libcall:-1:noalign) cc
    shift 3
    cc=$(sed -n 's/^CC = *//p' "$dir/Makefile")
    if $cc -dM -E - < /dev/null | grep -q __clang__; then
        die "--profile: MPICH was compiled by $cc; this needs gcc"
    fi
    # an option of x86; elsewhere memcpy() is called without it
    if ! $cc "${calls[@]}" -E - < /dev/null > /dev/null 2>&1; then calls=(); fi
    find "$dir" -name '*.gcda' -delete
    step profile-counting compile_again "$dir" -fprofile-generate -fprofile-update=atomic
    step profile-jobs train "$dir" "$mpiexec" "$perf"
    step profile-use compile_again "$dir" -fprofile-use -fprofile-correction \
        -fprofile-partial-training "${calls[@]}" -Wno-missing-profile "$@"
}

# profile_device PREFIX: after build_device, and again when something has been compiled since.
profile_device() {
    local dir=$top/build/mpich-obj
    if [ "$dir/.profiled" -nt "$dir/lib/libmpich.la" ]; then return; fi
    mv "$dir/.configured" "$dir/.interrupted"    # so that the next build begins anew, if it is
    DAT_OVERRIDE=$1/etc/dat.conf compile_with_profile "$dir" "$1/bin/mpiexec" \
        "$1/bin/mpich-dapl-perf" -flto=auto
    step profile-install make -C "$dir" install
    mv "$dir/.interrupted" "$dir/.configured"
    touch "$dir/.profiled"
}
