// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// Parts of the engine's compiled code that tests call by themselves; see `engine_shim.py`.

#include "../../orchestrator/engine/core/core.cc"

extern "C" {

double shim_carried(const Slots *slots, const double *airtime, int64_t n, int32_t way, int64_t k,
                    double bits, double time_s, int64_t *slot, const Link *links) {
  return carried(*slots, airtime, n, way, k, bits, time_s, *slot, links[way * slots->clients + k]);
}

void shim_shared(const Link *link, double value, int64_t active, int64_t others, Rate *rate) {
  *rate = shared_bps(*link, value, active, others);
}

void shim_grow(const Paths *paths, Sender *sender, double frames, double pipe, double trip_s,
               double frame_s) {
  grow(*paths, *sender, frames, pipe, trip_s, frame_s);
}

int64_t shim_recovery(const Paths *paths, Sender *sender, int64_t frames, int64_t first,
                      double grown, double *early) {
  return recovery(*paths, *sender, frames, first, grown, *early);
}

double shim_served_from(Paths *paths, int32_t way, int64_t k, int64_t size, double time_s,
                        double bps) {
  return served_from(*paths, way, k, size, time_s, bps);
}

int64_t shim_packet_frames(const Paths *paths, double bps, double back_bps) {
  return packet_frames(*paths, bps, back_bps);
}

}  // extern "C"
