/* SPDX-FileCopyrightText: UAV-SFL testbed authors
 * SPDX-License-Identifier: MIT
 *
 * Flight of a UAV by a C or C++ program in its node; see docs/steered.md and testbed/pilot.py. The
 * machine must be little-endian, as x86-64 and ARM are. */
#ifndef TESTBED_PILOT_H
#define TESTBED_PILOT_H

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* $TESTBED_STATE: seconds since $TESTBED_EPOCH_NS, m, m/s. */
struct testbed_state { double t, x, y, z, vx, vy, vz; };
/* $TESTBED_LINK: the last slot; status 0: the UAV is where the program says. */
struct testbed_link { double t, up_bps, down_bps, up_snr_db, down_snr_db, cell, status; };

static inline double testbed_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec * 1000000000LL + now.tv_nsec - atoll(getenv("TESTBED_EPOCH_NS"))) / 1e9;
}

/* Both return 0 on success. */
static inline int testbed_publish(const struct testbed_state *state)
{
    int file = open(getenv("TESTBED_STATE"), O_WRONLY | O_CREAT, 0600);
    int whole = file >= 0 && pwrite(file, state, sizeof *state, 0) == (ssize_t)sizeof *state;
    return (file >= 0 ? close(file) : 0) || !whole;
}

static inline int testbed_read_link(struct testbed_link *link)
{
    int file = open(getenv("TESTBED_LINK"), O_RDONLY);
    int whole = file >= 0 && pread(file, link, sizeof *link, 0) == (ssize_t)sizeof *link;
    return (file >= 0 ? close(file) : 0) || !whole;
}

#endif
