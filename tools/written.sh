# SPDX-License-Identifier: MIT
# Sourced by autogen.sh and tools/lay-channel (sh): files that are written only when that changes
# them, as make goes by time stamps.
# shellcheck shell=sh

# put FILE: from stdin
put() {
    cat > "$1.new"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

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
