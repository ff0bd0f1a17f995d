// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// How the UAVs of an LTE cell share the resource blocks of its uplink: one rule, for the scheduler in
// ns-3 (`cpp/radio/scheduler.cc`) and for the rate model (`orchestrator/engine/core/links.h`).
//
// Those UAVs that have something to send and are in range get equal numbers of blocks. What a UAV's
// power does not reach of its part stays unused, as with ns-3's own schedulers.

#pragma once

#include <algorithm>
#include <cstdint>

namespace lte {

using std::int64_t;

// Smallest number of resource blocks that a UAV gets: three with the lowest MCS carry 7 B, in which
// ns-3's UAVs start no packet. If there are more UAVs, they are served in turns.
constexpr int64_t LEAST_BLOCKS = 4;

// A UAV of whose last grants so many were not heard is taken to be out of range: OpenAirInterface's
// LTE base station counts as many lost blocks until it declares an uplink failure.
constexpr int SILENT_GRANTS = 10;

// Number of UAVs that send in one TTI, of all that share the blocks; at most `grants` (0: any number).
inline int64_t at_once(int64_t blocks, int64_t sharing, int64_t grants = 0) {
  const int64_t most = grants ? std::min(sharing, grants) : sharing;
  return std::max<int64_t>(1, std::min(most, blocks / LEAST_BLOCKS));
}

// The resource blocks in which a UAV sends, of those that it has; 0: it is out of range, and the
// others have its part. `reached`: in so many blocks its power suffices for the lowest MCS.
inline int64_t used(int64_t has, double reached) {
  if (reached >= static_cast<double>(has)) return has;
  const int64_t whole = static_cast<int64_t>(std::max(reached, 0.0));
  return whole < std::min(has, LEAST_BLOCKS) ? 0 : whole;
}

}  // namespace lte
