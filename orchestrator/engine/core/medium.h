// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// Uplink and downlink that their active links share: fluid, event by event.
//
// If each link has a fixed share, a transfer's end is known when it begins. If a medium is divided
// among the links that have something to send, each beginning and each end changes the rates of all
// others, with Wi-Fi also those of the other direction. Between two such events, every active link
// has the rate of `shared_bps` in a slot; `Medium` contains the bits that each still has to send. A
// link in an outage is not counted: the others have its part. If there are several cells, links
// share the cell to which they belong, and interfere with those of the other cells that send.

#pragma once

#include "links.h"

namespace engine {

constexpr int64_t STALE = -1;

// The state of both directions; mirror of `core_library.Medium`.
struct Medium {
  int64_t *clients;   // the active clients of each direction in any order [2, K]
  double *left_bits;  // what each active client still has to send [2, K]
  double *bps;        // its present rate [2, K]
  double *from;       // the lowest slot value for which that is valid [2, K]
  double *below;      // the value from which on it is not [2, K]
  int64_t all;        // K
  double answers;     // share of time in which a cell answers an active uplink in its downlink
  double now_s;       // time for which `left_bits` is valid
  int64_t count[2];   // active clients of each direction
  int64_t until[2];   // the slot until which their rates are valid, or STALE
};

inline void clear(Medium &medium, double start_s) {
  medium.now_s = start_s;
  medium.count[UP] = medium.count[DOWN] = 0;
  medium.until[UP] = medium.until[DOWN] = STALE;
}

inline bool is_busy(const Medium &medium) { return medium.count[UP] + medium.count[DOWN] > 0; }

// Start the sending of a client, when the medium has advanced up to that nanosecond.
inline void begin_transfer(Medium &medium, int way, int64_t k, double bits, double at_s) {
  medium.now_s = most(medium.now_s, at_s);
  medium.clients[way * medium.all + medium.count[way]] = k;
  medium.left_bits[way * medium.all + k] = bits;
  ++medium.count[way];
  medium.until[UP] = medium.until[DOWN] = STALE;
}

// Stop the sending of a client, whether or not it has sent everything.
inline void end_transfer(Medium &medium, int way, int64_t k) {
  int64_t *clients = medium.clients + way * medium.all;
  const int64_t last = medium.count[way] - 1;
  for (int64_t place = 0; place <= last; ++place) {
    if (clients[place] == k) {
      clients[place] = clients[last];
      medium.count[way] = last;
      medium.until[UP] = medium.until[DOWN] = STALE;
      return;
    }
  }
}

// Number of active clients that share the band with a client, including the client; with `carrying`
// only those that have a rate; `every` is the number of links that share a single cell.
inline int64_t sharing_with(const Slots &slots, const Medium &medium, int way, int64_t k,
                            int64_t slot, bool carrying, int64_t every) {
  if (!slots.cells) return every;
  int64_t count = 0;
  for (int64_t place = 0; place < medium.count[way]; ++place) {
    const int64_t other = medium.clients[way * medium.all + place];
    count += cell_of(slots, other, slot) == cell_of(slots, k, slot) &&
             (!carrying || medium.bps[way * medium.all + other] > 0.0);
  }
  return count;
}

// Whether an active client counts: with `carrying` only if it has a rate.
inline bool counts(const Medium &medium, int way, int64_t place, bool carrying) {
  return !carrying || medium.bps[way * medium.all + medium.clients[way * medium.all + place]] > 0.0;
}

// The share of time in which a cell sends in its downlink.
inline double busy_of(const Medium &medium, const Slots &slots, int64_t cell, int64_t slot,
                      bool carrying) {
  double busy = slots.load[cell];
  for (int way = UP; way <= DOWN; ++way) {
    for (int64_t place = 0; place < medium.count[way]; ++place) {
      const int64_t other = medium.clients[way * medium.all + place];
      if (cell_of(slots, other, slot) != cell || !counts(medium, way, place, carrying)) continue;
      busy = most(busy, way == DOWN ? 1.0 : medium.answers);
    }
  }
  return busy;
}

// The slot value of an active uplink. The clients of another cell have equal parts of its band, in
// which they spread their power; the mean over the band is that of the ratio in dB, by which the
// scheduler selects a scheme. The places of clients of several cells are independent.
inline double uplink_value(const Medium &medium, const Slots &slots, const Link &link, int64_t k,
                           int64_t slot, bool carrying) {
  const int64_t own = cell_of(slots, k, slot), blocks = link.steps.blocks;
  double loss = 0.0, before = 0.0;  // logarithms of noise and interference
  for (int64_t cell = 0; cell < slots.sites; ++cell) {
    if (cell == own) continue;
    int64_t senders = 0;
    for (int64_t place = 0; place < medium.count[UP]; ++place) {
      const int64_t other = medium.clients[UP * medium.all + place];
      senders += cell_of(slots, other, slot) == cell && counts(medium, UP, place, carrying);
    }
    if (!senders) continue;
    double part = 1.0, mean = 0.0;
    const int64_t each = turn(blocks, senders, link.grants, part);
    const double of_band = static_cast<double>(each) / static_cast<double>(blocks);
    for (int64_t place = 0; place < medium.count[UP]; ++place) {
      const int64_t other = medium.clients[UP * medium.all + place];
      if (cell_of(slots, other, slot) != cell || !counts(medium, UP, place, carrying)) continue;
      const double sent = strength_of(slots, UP, own, other, slot) / of_band;
      mean += part * of_band * std::log1p(sent / std::exp(before));
    }
    loss += mean;
    before = loss;
  }
  return strength_of(slots, UP, own, k, slot) / std::exp(loss) * static_cast<double>(blocks) / link.snr;
}

// The rate of an active client in a slot; see `shared_slot_bps`.
inline Rate active_bps(const Medium &medium, const Link *links, const Slots &slots, int way, int64_t k,
                       int64_t slot, int64_t active, int64_t others, bool carrying) {
  const Link &link = links[way * medium.all + k];
  if (!slots.strength || value_of(slots, way, k, slot) == 0.0) {
    return shared_slot_bps(slots, link, way, k, slot, active, others);
  }
  const auto rate = [&](double value) { return shared_bps(link, value, active, others).bps; };
  const auto busy = [&](int64_t cell) { return busy_of(medium, slots, cell, slot, carrying); };
  const double bps = way == UP ? rate(uplink_value(medium, slots, link, k, slot, carrying))
                               : interfered_bps(slots, link, k, slot, busy, rate);
  return {kept_of(slots, k, slot) * bps, NEVER, -NEVER};
}

// Compute the rates of all active clients in a slot.
inline void share(Medium &medium, const Link *links, const Slots &slots, int64_t slot) {
  int64_t sharing[2] = {medium.count[UP], medium.count[DOWN]};
  for (int again = 0; again < 2; ++again) {
    int64_t carry[2] = {0, 0};
    for (int way = UP; way <= DOWN; ++way) {
      const int64_t every = sharing[way], others = sharing[1 - way];
      for (int64_t place = 0; place < medium.count[way]; ++place) {
        const int64_t k = medium.clients[way * medium.all + place], at = way * medium.all + k;
        if (!again || medium.bps[at] > 0.0) {
          const int64_t active = sharing_with(slots, medium, way, k, slot, again > 0, every);
          const Rate rate =
              active_bps(medium, links, slots, way, k, slot, active, others, again > 0);
          medium.bps[at] = rate.bps;
          medium.from[at] = rate.from;
          medium.below[at] = rate.below;
        }
        carry[way] += medium.bps[at] > 0.0;
      }
    }
    if (carry[UP] == sharing[UP] && carry[DOWN] == sharing[DOWN]) break;
    sharing[UP] = carry[UP];  // the others are in an outage, however many send
    sharing[DOWN] = carry[DOWN];
  }
  medium.until[UP] = medium.until[DOWN] = slot + 1;
}

// Find how long the rates of a direction hold, up to a moment.
inline void reach(Medium &medium, const Slots &slots, int way, double until_s) {
  int64_t until = medium.until[way];
  bool same = true;
  while (same && until < slots.slots && edge_of(slots, until) < until_s) {
    for (int64_t place = 0; place < medium.count[way]; ++place) {
      const int64_t k = medium.clients[way * medium.all + place], at = way * medium.all + k;
      const double value = value_of(slots, way, k, until);
      same = same && medium.from[at] <= value && value < medium.below[at];
      if (slots.cells) {
        same = same && cell_of(slots, k, until) == cell_of(slots, k, until - 1);
      }
    }
    until += same;
  }
  medium.until[way] = until;
}

struct Ended {
  int way = -1;
  int64_t k = -1;
  double at_s = NEVER;
};

// Send until a transfer ends, but no longer than until a moment. Returns the direction and the client
// whose transfer ends first, or -1, and when; ties go by direction, then by client. The moment is
// NEVER if no transfer ends before the trace does. `slot` moves on.
inline Ended advance(Medium &medium, const Link *links, const Slots &slots, int64_t &slot,
                     double until_s) {
  double now_s = medium.now_s;
  while (is_busy(medium) && now_s < until_s + HALF_NS) {
    slot = slot_at(slots, now_s, slot);
    if (slot >= slots.slots) return {};
    Ended first;
    if (slot >= least(medium.until[UP], medium.until[DOWN])) share(medium, links, slots, slot);
    for (int way = UP; way <= DOWN; ++way) {
      for (int64_t place = 0; place < medium.count[way]; ++place) {
        const int64_t k = medium.clients[way * medium.all + place], at = way * medium.all + k;
        double end_s = now_s;
        if (medium.left_bits[at] > 0.0) {
          end_s = medium.bps[at] > 0.0 ? now_s + medium.left_bits[at] / medium.bps[at] : NEVER;
        }
        if (end_s < first.at_s || (end_s == first.at_s && way == first.way && k < first.k)) {
          first = {way, k, end_s};
        }
      }
    }
    double horizon_s = least(first.at_s, until_s);
    for (int way = UP; way <= DOWN; ++way) {
      reach(medium, slots, way, horizon_s);
      horizon_s = least(horizon_s, edge_of(slots, medium.until[way]));
    }
    if (first.at_s > horizon_s + HALF_NS) first = {-1, -1, most(now_s, horizon_s)};
    for (int way = UP; way <= DOWN; ++way) {
      for (int64_t place = 0; place < medium.count[way]; ++place) {
        const int64_t at = way * medium.all + medium.clients[way * medium.all + place];
        const double sent = medium.bps[at] * (first.at_s - now_s);
        medium.left_bits[at] = most(0.0, medium.left_bits[at] - sent);
      }
    }
    now_s = first.at_s;
    if (first.k >= 0) {
      medium.now_s = now_s;
      end_transfer(medium, first.way, first.k);
      return first;
    }
    if (now_s >= until_s) break;
  }
  medium.now_s = most(now_s, until_s);
  return {-1, -1, until_s};
}

}  // namespace engine
