// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// CPSFL's downlink as `orchestrator.theory.closed_forms.Pipeline` describes it: one priority for the
// whole round, and the best of all sequences.

#pragma once

#include <vector>

#include "links.h"

namespace engine {

// Mirror of `core_library.Chain`; arrays have shape [K], in s.
struct Chain {
  const double *ready_s, *lag_s, *sg_s, *tail_s;
  int64_t clients, iterations;
};

// Latency if, among the ready gradients, the first client in `order` [K] is served.
inline double served(const Chain &chain, const int64_t *order) {
  std::vector<double> ready(chain.ready_s, chain.ready_s + chain.clients);
  std::vector<int64_t> left(ready.size(), chain.iterations);
  double free_s = 0.0, end_s = 0.0;
  for (int64_t n = 0; n < chain.clients * chain.iterations; ++n) {
    double now_s = NEVER;
    for (int64_t at = 0; at < chain.clients; ++at) {
      const int64_t k = order[at];
      if (left[k] > 0) now_s = least(now_s, most(free_s, ready[k]));
    }
    for (int64_t at = 0; at < chain.clients; ++at) {
      const int64_t k = order[at];
      if (left[k] == 0 || ready[k] > now_s) continue;
      free_s = now_s + chain.sg_s[k];
      ready[k] = free_s + chain.lag_s[k];
      --left[k];
      end_s = most(end_s, free_s + chain.tail_s[k]);
      break;
    }
  }
  return end_s;
}

// The earliest end that can follow from a state; `best_s` if it is not below `best_s`.
inline double searched(const Chain &chain, std::vector<double> &ready, std::vector<int64_t> &left,
                       double free_s, double end_s, double best_s) {
  double total_s = 0.0, first_s = NEVER, last_s = NEVER, bound_s = end_s;
  for (int64_t k = 0; k < chain.clients; ++k) {
    if (left[k] == 0) continue;
    const double start_s = most(free_s, ready[k]), count = static_cast<double>(left[k]);
    const double alone_s = count * chain.sg_s[k] + (count - 1.0) * chain.lag_s[k] + chain.tail_s[k];
    bound_s = most(bound_s, start_s + alone_s);
    total_s += count * chain.sg_s[k];
    first_s = least(first_s, start_s);
    last_s = least(last_s, chain.tail_s[k]);
  }
  if (total_s == 0.0) return least(best_s, end_s);
  if (most(bound_s, first_s + total_s + last_s) >= best_s) return best_s;
  for (int64_t k = 0; k < chain.clients; ++k) {
    if (left[k] == 0) continue;
    const double was_s = ready[k], done_s = most(free_s, was_s) + chain.sg_s[k];
    ready[k] = done_s + chain.lag_s[k];
    --left[k];
    const double end_here_s = most(end_s, done_s + chain.tail_s[k]);
    best_s = searched(chain, ready, left, done_s, end_here_s, best_s);
    ready[k] = was_s;
    ++left[k];
  }
  return best_s;
}

}  // namespace engine
