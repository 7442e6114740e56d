#!/bin/sh
# SPDX-License-Identifier: MIT
# link-order.sh FUNCTIONS COMMAND...: prints the linker's own script for the library that COMMAND
# links, in which the code begins with the functions that the file FUNCTIONS names, each of which
# has a section of its own (-ffunction-sections). Fails where the linker prints no script.
set -eu

functions=$1
shift
"$@" -Wl,--verbose | awk -v functions="$functions" '
    /^=====/ { inside = !inside; next }
    inside { print }
    inside && /^  \.text +:/ { text = 1 }
    inside && text && /^  [{]/ {
        while ((getline name < functions) > 0)
            if (name !~ /^#/)
                printf "    *(.text.%s .text.%s.*)\n", name, name
        text = 0
        done = 1
    }
    END { exit !done }'
