# SPDX-License-Identifier: MIT
# Sourced by test/fresh/run and test/packages/run (bash): the smallest Debian 12 that mmdebstrap
# makes of the archives that this machine's apt uses, in a folder under build, and commands in it.
# The caller sets top, logs and, for inside, root (the system's folder), and has a function skip.
# shellcheck shell=bash disable=SC2154

release=bookworm

# bounded SECONDS LOG COMMAND...: its output goes to the log, its progress lines are shown. In the
# background, so that the end of this script (a signal too) can end it.
child=
bounded() {
    local seconds=$1 log=$2 status
    shift 2
    : > "$log"
    timeout -k 10 "$seconds" "$@" > "$log" 2>&1 < /dev/null &
    child=$!
    tail -n +1 -f --pid=$child "$log" 2> /dev/null | sed -u -n 's/^\[\|^not ok/#   &/p' &
    wait $child
    status=$?
    child=
    wait
    return $status
}

cleanup() {
    if [ -n "$child" ]; then kill $child; fi
    wait
    rm -rf --one-file-system "$work"
}

# archives: "deb ..." lines for the release, from what this machine's apt has.
archives() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Identifier: Packages' | awk -v release=$release '
        $1 == "Debian" && $4 == "main" {
            if ($3 == release || index($3, release "-") == 1)
                seen["deb " $2 " " $3 " " $4] = 1
            if ($3 !~ /-/)
                any = $2
        }
        END {
            for (line in seen)
                print line
            if (length(seen) == 0 && any)
                print "deb " any " " release " main"
        }'
}

# reachable: can the first archive be read?
reachable() {
    local uri
    uri=$(awk -v release=$release '$3 == release { print $2; exit }' "$work/sources.list")
    timeout 60 /usr/lib/apt/apt-helper download-file "${uri%/}/dists/$release/InRelease" \
        "$work/InRelease" > "$work/archive.log" 2>&1
}

# How this machine's apt gets out, if not directly.
apt_ways() { apt-config dump | grep -iE '^Acquire::https?::(.*Proxy|CaInfo|CaPath)' || true; }

# prepare NAME: a folder for the system, work, or skip and the reason.
prepare() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    command -v mmdebstrap > /dev/null || skip "mmdebstrap is not installed"
    unshare --mount --pid --fork true 2> /dev/null || skip "no namespaces here"
    mkdir -p "$logs"
    work=$(mktemp -d "$top/build/$1.XXXXXX")
    trap cleanup EXIT
    trap 'exit 1' INT TERM
    archives > "$work/sources.list"
    if [ ! -s "$work/sources.list" ]; then
        apt-get -q update > "$work/archive.log" 2>&1
        archives > "$work/sources.list"
    fi
    [ -s "$work/sources.list" ] || skip "apt has no archive of Debian"
    reachable || skip "the archive that apt uses cannot be reached"
}

# bare_debian: makes the system in work/bare, with an ordinary user.
bare_debian() {
    apt_ways > "$work/apt.conf"
    bounded 1800 "$logs/fresh-bare.log" mmdebstrap --variant=minbase --include=sudo \
        --dpkgopt=force-unsafe-io --aptopt="$work/apt.conf" $release "$work/bare" \
        "$work/sources.list" &&
        cp -L /etc/resolv.conf /etc/hosts "$work/bare/etc/" &&
        chroot "$work/bare" useradd -m -d /srv/newcomer -s /bin/bash newcomer &&
        echo 'newcomer ALL=(ALL) NOPASSWD: ALL' > "$work/bare/etc/sudoers.d/newcomer"
}

# inside USER SECONDS LOG COMMAND: USER of the system in root runs it.
inside() {
    bounded "$2" "$3" unshare --mount --pid --ipc --uts --fork --kill-child --propagation private \
        "$top/test/fresh/enter" "$root" "$1" "$4"
}
