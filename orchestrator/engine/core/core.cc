// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// The C interface of the compiled part of the engine; `orchestrator.engine.core_library` calls it.

#include <vector>

#include "medium.h"
#include "orders.h"
#include "round.h"
#include "sequences.h"
#include "tcp.h"

using namespace engine;

// The links of a round on a channel, for the transfers of `orchestrator.rounds.computed`. Mirror of
// `core_library.LinkState`.
struct LinkState {
  const Slots *slots;
  const Link *links;  // [3, K]
  Paths *paths;       // null: links neither delay nor lose
  Medium *medium;     // null: each link has a rate of its own
  int64_t *slot;      // the slot in which each client's last transfer ended [K]; written to
  int64_t medium_slot;
};

extern "C" {

int64_t link_bytes() { return sizeof(Link); }

void engine_links(const Bands *bands, int32_t in_turns, const double *beta, const double *rho,
                  Link *links) {
  fill_links(*bands, in_turns, beta, rho, links);
}

// Fill the rates of all links in the slots from `first` on, [3, K, count]. With `active`, the links
// of a shared band have the rate with that number of active links, or, if it is 0, with all of the cell.
void engine_rates(const Slots *slots, const Link *links, int64_t first, int64_t count, int64_t active,
                  double *bps) {
  std::vector<char> takes(static_cast<std::size_t>(slots->clients));
  for (int way = UP; way <= BROADCAST; ++way) {
    const Link *row = links + way * slots->clients;
    for (int64_t s = 0; s < count; ++s) {
      const int64_t slot = first + s;
      const bool by_all = !active && is_shared_by_all(*slots, row[0]);
      for (int64_t k = 0; by_all && k < slots->clients; ++k) {
        takes[k] = takes_part(*slots, row[k], way, k, slot);
      }
      for (int64_t k = 0; k < slots->clients; ++k) {
        double &rate = bps[(way * slots->clients + k) * count + s];
        if (by_all) {
          rate = shared_by_all_bps(*slots, row[k], way, k, slot, [&](int64_t j) { return takes[j]; });
        } else if (active && row[k].shared) {
          rate = shared_slot_bps(*slots, row[k], way, k, slot, active, 0).bps;
        } else {
          rate = slot_bps(*slots, row[k], way, k, slot);
        }
      }
    }
  }
}

// See `lte::used`; of n links.
void engine_used(const int64_t *has, const double *reached, int64_t n, int64_t *used) {
  for (int64_t i = 0; i < n; ++i) used[i] = lte::used(has[i], reached[i]);
}

// See `turn`.
int64_t engine_turn(int64_t blocks, int64_t active, int64_t grants, double *part) {
  return turn(blocks, active, grants, *part);
}

// Shannon's rates of n bands.
void engine_shannon(const double *hz, const double *snr, int64_t n, double *bps) {
  for (int64_t i = 0; i < n; ++i) bps[i] = shannon_bps(hz[i], snr[i]);
}

// The rate of a link at a time; 0 after the end of the trace.
double engine_rate(const LinkState *air, int32_t way, int64_t k, double time_s) {
  const Slots &slots = *air->slots;
  const int64_t slot = slot_at(slots, time_s, slot_before(slots, time_s));
  return slot < slots.slots ? slot_bps(slots, air->links[way * slots.clients + k], way, k, slot) : 0.0;
}

// When a transfer of `size` bytes over a link with a rate of its own ends.
double engine_transfer(LinkState *air, int32_t way, int64_t k, int64_t size, double time_s) {
  const Slots &slots = *air->slots;
  const Link &link = air->links[way * slots.clients + k];
  if (air->paths) {
    const Link &back = air->links[opposite(way) * slots.clients + k];
    return delivered(*air->paths, slots, way, k, size, time_s, air->slot[k], link, back);
  }
  return carried(slots, nullptr, 1, way, k, 8.0 * static_cast<double>(size), time_s, air->slot[k],
                 link);
}

// When a message of a single frame arrives; see `note`.
double engine_note(LinkState *air, int32_t way, int64_t k, double time_s, int32_t opens) {
  return note(*air->paths, *air->slots, air->links, way, k, time_s, air->slot[k], opens != 0);
}

// When a transfer that begins on shared links is served; `active` links are active then.
double engine_served(LinkState *air, int32_t way, int64_t k, int64_t size, double time_s, int64_t active) {
  const Slots &slots = *air->slots;
  const int64_t slot = air->slot[k] = slot_at(slots, time_s, air->slot[k]);
  const double bps =
      slot < slots.slots
          ? active_bps(*air->medium, air->links, slots, way, k, slot, active, 0, false).bps
          : 0.0;
  return served_from(*air->paths, way, k, size, time_s, bps);
}

double engine_arrival(LinkState *air, int32_t way, int64_t k, double served_s) {
  return arrival_of(*air->paths, way, k, served_s);
}

void engine_clear(LinkState *air, double start_s) {
  const Slots &slots = *air->slots;
  air->medium_slot = slot_before(slots, start_s);
  for (int64_t k = 0; k < slots.clients; ++k) air->slot[k] = air->medium_slot;
  if (air->medium) clear(*air->medium, start_s);
}

void engine_begin(LinkState *air, int32_t way, int64_t k, double bits, double at_s) {
  begin_transfer(*air->medium, way, k, bits, at_s);
}

void engine_end(LinkState *air, int32_t way, int64_t k) { end_transfer(*air->medium, way, k); }

// Send on shared links until a transfer ends, but no longer than until a moment. Returns 2 k + the
// direction of that transfer, or -1; `at_s` becomes its end, or infinity if the trace ends before.
int64_t engine_advance(LinkState *air, double until_s, double *at_s) {
  const Ended ended = advance(*air->medium, air->links, *air->slots, air->medium_slot, until_s);
  *at_s = ended.at_s;
  return ended.k < 0 ? -1 : 2 * ended.k + ended.way;
}

// Play rounds of equal work on equal links, each of which starts where the one before ended. Fill
// their starts and latencies [N], the moments at which steps begin and end [N, K, 5 I + 2], and
// energies [N, K]; returns the number of rounds that were played. If it is below N, the latency of
// the next round is NEVER (the trace was too short) or NaN (the order gave no number).
int64_t engine_repeated(const Rules *rules, const Work *work, const Slots *slots, const Link *links,
                        Medium *medium, double start_s, int64_t rounds, const int64_t *service_order,
                        const double *compute_w, const double *uplink_w, double *begin, double *end,
                        double *starts_s, double *latency_s, double *energy_j) {
  const int64_t clients = work->clients, steps = clients * (5 * work->iterations + 2);
  for (int64_t n = 0; n < rounds; ++n) {
    starts_s[n] = start_s;
    latency_s[n] =
        PlainRound(*rules, *work, *slots, links, medium, start_s, service_order, begin, end).play();
    if (!(latency_s[n] < NEVER)) return n;
    fill_energy(*work, compute_w, uplink_w, begin, end, energy_j + n * clients);
    start_s += latency_s[n];
    begin += steps;
    end += steps;
  }
  return rounds;
}

// Costs of the splits, [u, K]; mirror of `core_library.Menu`.
struct Menu {
  const double *cf_s, *cb_s, *server_s;
  const int64_t *smashed_bytes, *gradient_bytes, *adapter_bytes, *broadcast_bytes;
};

// Fill starts and latencies [N], energies and finishes [N, K] of N rounds with these splits and
// shares [N, K]; returns the number of rounds that were played. If it is below N, the latency of the
// next round is NEVER (the trace was too short) or NaN (the order gave no number). With `follow` each
// round starts where the one before ended, otherwise all start together. `room` has the arrays of
// `work`, which are filled here.
int64_t engine_rounds(const Rules *rules, const Menu *menu, const Work *work, const Bands *bands,
                      const Slots *slots, Link *links, Medium *medium, double start_s, int32_t follow,
                      int64_t rounds, const int64_t *split, const double *alpha, const double *beta,
                      const double *rho, const double *compute_w, const double *uplink_w,
                      double *begin, double *end, double *starts_s, double *latency_s,
                      double *energy_j, double *finish_s) {
  const int64_t clients = work->clients, all = work->iterations, columns = 5 * all + 2;
  auto room = []<typename T>(const T *array) { return const_cast<T *>(array); };
  for (int64_t n = 0; n < rounds; ++n) {
    const double *shares = beta + n * clients;
    for (int64_t k = 0; k < clients; ++k) {
      const int64_t at = (split[n * clients + k] - 1) * clients + k;
      room(work->sm_bytes)[k] = menu->broadcast_bytes[at];
      room(work->cm_bytes)[k] = menu->adapter_bytes[at];
      const double server_s =
          menu->server_s[at] / (rules->parallel[COMPUTING] ? alpha[n * clients + k] : 1.0);
      for (int64_t i = k * all; i < (k + 1) * all; ++i) {
        room(work->ca_bytes)[i] = menu->smashed_bytes[at];
        room(work->sg_bytes)[i] = menu->gradient_bytes[at];
        room(work->cf_s)[i] = menu->cf_s[at];
        room(work->cb_s)[i] = menu->cb_s[at];
        room(work->s_s)[i] = server_s;
      }
    }
    fill_links(*bands, !rules->parallel[DOWNLINK], shares, rho + n * clients, links);
    if (!engine_repeated(rules, work, slots, links, medium, start_s, 1, nullptr, compute_w, uplink_w,
                         begin, end, starts_s + n, latency_s + n, energy_j + n * clients)) {
      return n;
    }
    for (int64_t k = 0; k < clients; ++k) {
      finish_s[n * clients + k] = end[k * columns + 5 * work->iterations_of[k] + 1] - start_s;
    }
    if (follow) start_s += latency_s[n];
  }
  return rounds;
}

double engine_served_in(const Chain *chain, const int64_t *order) { return served(*chain, order); }

double engine_best_sequence(const Chain *chain, double best_s) {
  std::vector<double> ready(chain->ready_s, chain->ready_s + chain->clients);
  std::vector<int64_t> left(ready.size(), chain->iterations);
  return searched(*chain, ready, left, 0.0, 0.0, best_s);
}

// Fill the normalised innovations [n, m] of columns [n, m], and return the logarithm of the
// determinant; see `orchestrator.flights.likelihood`.
double engine_whitened(const double *columns, const double *step_m, int64_t n, int64_t m,
                       double distance_m, double share, double *white) {
  std::vector<double> state(static_cast<std::size_t>(m), 0.0);
  double variance = 1.0, log_scale = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    const double kept = std::exp(-step_m[i] / distance_m);
    variance = 1.0 + kept * kept * (variance - 1.0);
    const double whole = variance + share, gain = variance / whole, scale = 1.0 / std::sqrt(whole);
    log_scale += std::log(whole);
    for (int64_t j = 0; j < m; ++j) {
      const double expected = kept * state[j], innovation = columns[i * m + j] - expected;
      white[i * m + j] = innovation * scale;
      state[j] = expected + gain * innovation;
    }
    variance *= 1.0 - gain;
  }
  return log_scale;
}

}  // extern "C"
