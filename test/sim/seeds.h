/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_SEEDS_H
#define MDAPL_TEST_SEEDS_H
/*
 * The seeds of a test program, each of which fixes all that happens in one run of a test. PROGRAM
 * [SEED [TEST]] runs that one seed (0: all), and that test alone.
 */
#include "unit.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t only_seed;       /* 0: all */

/* How many of n seeds to run: a third of many with a sanitizer, which takes several times as long
 * and looks for what nearly any seed shows. */
static inline uint64_t seeds(uint64_t n)
{
    return only_seed ? 1 : SANITIZED && n > 10 ? n / 3 : n;
}

/* Has it happened often enough in all seeds together: more than `least` times, if none is left
 * out? */
static inline bool shown(uint64_t times, uint64_t least)
{
    return only_seed || times > (SANITIZED ? least / 5 : least);
}

/* The i-th of them, from 0. */
static inline uint64_t seed_at(uint64_t i)
{
    return only_seed ? only_seed : i + 1;
}

static inline void read_seed(int argc, char **argv)
{
    if (argc > 1)
        only_seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
}

#endif
