// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// The service orders of `testbed.core.orders` that are not the paper's, as functions of the type
// `Order`. A test holds them to the functions in Python, by which a base station serves.

#pragma once

#include "round.h"

namespace engine {

constexpr double OUTAGE_S = 1e9;

// `testbed.core.orders.transfer_s`.
inline double transfer_s(double size_bytes, double rate_bps) {
  if (size_bytes == 0.0) return 0.0;
  return rate_bps > 0.0 ? least(8.0 * size_bytes / rate_bps, OUTAGE_S) : OUTAGE_S;
}

// `testbed.core.orders.place`.
inline int64_t place(double rank) {
  return static_cast<int64_t>(std::floor(least(most(rank, -9e9), 9e9) * 1e9 + 0.5));
}

#define ENGINE_ORDER(name, rank)                                                                   \
  int64_t name([[maybe_unused]] int64_t at_downlink, [[maybe_unused]] int64_t client,              \
               [[maybe_unused]] int64_t clients, [[maybe_unused]] int64_t iteration, int64_t,      \
               double, double, double, [[maybe_unused]] double server_s, double,                   \
               [[maybe_unused]] double compute_s, [[maybe_unused]] double gradient_bytes,          \
               [[maybe_unused]] double uplink_bytes, [[maybe_unused]] double downlink_bytes,       \
               [[maybe_unused]] double uplink_bps, [[maybe_unused]] double downlink_bps) {         \
    return engine::place(rank);                                                                          \
  }

}  // namespace engine

extern "C" {

ENGINE_ORDER(engine_shortest_job_first,
             at_downlink ? engine::transfer_s(gradient_bytes, downlink_bps) : server_s)
ENGINE_ORDER(engine_longest_remaining_work_first,
             -((compute_s + engine::transfer_s(uplink_bytes, uplink_bps) +
                engine::transfer_s(downlink_bytes, downlink_bps)) +
               (at_downlink ? 0.0 : server_s)))
ENGINE_ORDER(engine_round_robin, static_cast<double>((iteration - 1) * clients + client))

}  // extern "C"
