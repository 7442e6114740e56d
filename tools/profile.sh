# SPDX-License-Identifier: MIT
# Sourced by quickstart --profile (bash), after steps.sh: compiles the files that a message passes
# through once more, with the profile of a few jobs and across files. The rest of MPICH stays as it
# is: in all of it link-time optimisation would take minutes, and brings no message anything.
# shellcheck shell=bash disable=SC2154

# The folders of MPICH's build with those files. Not src/util: what the profile makes of the loops
# that copy was slower; -mmemcpy-strategy: nor is a memcpy() of many sizes expanded.
on_the_way=(src/binding/c/pt2pt src/binding/c/request src/mpi/pt2pt src/mpi/request src/mpid/ch3/src
    src/mpid/ch3/channels/dapl/{src,shm,dapl})

# again DIR FLAG...: those files are compiled with FLAGS, too, and libmpich is linked.
again() {
    local dir=$1 plain folder
    shift
    plain=$(sed -n 's/^CFLAGS = *//p' "$dir/Makefile")
    for folder in "${on_the_way[@]}"; do
        find "$dir/$folder" \( -name '*.lo' -o -name '*.o' \) -delete
    done
    rm -f "$dir"/src/mpid/ch3/channels/dapl/*.la "$dir/lib/libmpich.la"
    make -C "$dir" -j"$jobs" V=0 CFLAGS="$plain $*" lib/libmpich.la
}

# train DIR PREFIX: short messages above all: waited for, many under way, and reduced; long ones.
train() {
    local job test
    for test in "lat 0 20000" "lat 8 20000" "lat 64 20000" "lat 1024 20000" "lat 16384 1000" \
        "rate 8 2000 64" "rate 1024 1000 64" "bw 262144 100" "reduce 64 2000"; do
        read -ra job <<< "$2/bin/mpiexec -n 2 $2/bin/mpich-dapl-perf $test"
        LD_LIBRARY_PATH=$1/lib/.libs DAT_OVERRIDE=$2/etc/dat.conf timeout -k 5 300 "${job[@]}" ||
            return
    done
}

# profile_device PREFIX: after build_device, and again when something has been compiled since.
profile_device() {
    local dir=$top/build/mpich-obj calls=(-mmemcpy-strategy=libcall:-1:noalign) cc
    cc=$(sed -n 's/^CC = *//p' "$dir/Makefile")
    if $cc -dM -E - < /dev/null | grep -q __clang__; then
        die "--profile: MPICH was compiled by $cc; this needs gcc"
    fi
    # an option of x86; elsewhere memcpy() is called without it
    if ! $cc "${calls[@]}" -E - < /dev/null > /dev/null 2>&1; then calls=(); fi
    if [ "$dir/.profiled" -nt "$dir/lib/libmpich.la" ]; then return; fi
    mv "$dir/.configured" "$dir/.interrupted"    # so that the next build begins anew, if it is
    find "$dir" -name '*.gcda' -delete
    step profile-counting again "$dir" -fprofile-generate -fprofile-update=atomic
    step profile-jobs train "$dir" "$1"
    step profile-use again "$dir" -fprofile-use -fprofile-correction \
        -fprofile-partial-training "${calls[@]}" -Wno-missing-profile -flto=auto
    step profile-install make -C "$dir" install
    mv "$dir/.interrupted" "$dir/.configured"
    touch "$dir/.profiled"
}
