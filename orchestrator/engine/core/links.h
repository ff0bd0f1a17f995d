// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// Rates: from a radio and a round's shares to the rate of each link in each slot.
//
// Each radio is stated here once, for the engine and for the rates that links are given; the Python
// classes (`fdma`, `lte`, `nr`, `wifi`, `curve`, `radio`) compute the tables that these functions read.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../../../ns3_scenarios/cpp/lte/uplink.h"

namespace engine {

using std::int64_t;

constexpr double NEVER = INFINITY;
constexpr double HALF_NS = 0.5e-9;

enum Direction { UP, DOWN, BROADCAST };
enum Kind { SHANNON, GIVEN, LTE, WIFI, CURVE, NR };

inline double least(double a, double b) { return b < a ? b : a; }
inline double most(double a, double b) { return b > a ? b : a; }
inline int64_t least(int64_t a, int64_t b) { return b < a ? b : a; }
inline int64_t most(int64_t a, int64_t b) { return b > a ? b : a; }
inline int side_of(int way) { return way == UP ? UP : DOWN; }
inline int opposite(int way) { return way == UP ? DOWN : UP; }

// A direction of a radio whose rates are steps: the least SNR or gain of each step but the first,
// and the rates in bit/s, a row for each number of resource blocks or senders.
struct Steps {
  const double *least;
  const double *bps;
  int64_t steps;
  int64_t blocks;
};

// A radio; mirror of `orchestrator.engine.core_library.Bands`.
struct Bands {
  int32_t kind;
  // GIVEN: whether a rate of the downlink is that of the whole cell. LTE, NR: whether those that are
  // active share the resource blocks.
  int32_t shared;
  int64_t clients;
  double uplink_hz, downlink_hz, noise_w_per_hz, downlink_power_w;
  // SHANNON, CURVE: transmit powers [K]. LTE, NR: SNR of each UAV in one resource block at gain 1.
  const double *uplink;
  double downlink_snr;
  Steps up, down;
  double (*curve)(double snr, double hz);
  int64_t grants;  // LTE: most uplinks in a TTI, NR: most links of a direction; 0: any number
};

// One link of a round.
struct Link {
  int32_t kind;
  bool uplink;
  bool shared;         // with the other links of its direction that send at the same time
  double hz, snr;      // bandwidth, and SNR at gain 1
  double part;         // GIVEN: of the slots' values
  int64_t blocks;      // LTE, NR: resource blocks; of a shared band, all
  int64_t all;         // WIFI: links of its direction while all send
  int64_t grants;      // LTE: most uplinks in a TTI, NR: most links; 0: any number
  Steps steps;
  double (*curve)(double snr, double hz);
};

struct Rate {
  double bps;
  // The rate is the same for slot values from `from` on and below `below`.
  double from, below;
};

// The resource blocks of an uplink in a TTI in which it sends, and the fraction of all TTIs in
// which it does, while `active` uplinks are active; see `lte::at_once` for `grants`.
inline int64_t turn(int64_t blocks, int64_t active, int64_t grants, double &part) {
  const int64_t at_once = lte::at_once(blocks, active, grants);
  part = static_cast<double>(at_once) / static_cast<double>(active);
  return blocks / at_once;
}

// Shannon's rate in bit/s, eqs. (1), (2), (19).
inline double shannon_bps(double hz, double snr) {
  if (snr > 1e-3) return hz * std::log2(1.0 + snr);
  return hz * (std::log1p(snr) / std::log(2.0));  // 1 + snr would lose the digits of snr
}

// Fill the links [3, K] of a round under its shares; `in_turns`: each gradient has the whole cell.
inline void fill_links(const Bands &bands, bool in_turns, const double *beta, const double *rho,
                       Link *links) {
  const int64_t clients = bands.clients;
  for (int way = UP; way <= BROADCAST; ++way) {
    for (int64_t k = 0; k < clients; ++k) {
      Link link{};
      link.kind = bands.kind;
      link.uplink = way == UP;
      link.part = 1.0;
      link.curve = bands.curve;
      link.grants = bands.grants;
      link.steps = way == UP ? bands.up : bands.down;
      const bool whole = way == BROADCAST || (way == DOWN && in_turns);
      switch (bands.kind) {
        case SHANNON:
        case CURVE:
          if (way == UP) {
            link.hz = beta[k] * bands.uplink_hz;
            link.snr = bands.uplink[k] / (link.hz * bands.noise_w_per_hz);
          } else if (whole) {
            link.hz = bands.downlink_hz;
            link.snr = bands.downlink_power_w / (bands.downlink_hz * bands.noise_w_per_hz);
          } else {
            link.hz = beta[k] * bands.downlink_hz;
            link.snr = rho[k] * bands.downlink_power_w / (link.hz * bands.noise_w_per_hz);
          }
          break;
        case GIVEN:
          if (way == DOWN && bands.shared && !in_turns) link.part = rho[k];
          break;
        case LTE:
        case NR:
          link.snr = way == UP ? bands.uplink[k] : bands.downlink_snr;
          link.blocks = link.steps.blocks;
          link.shared = bands.shared && !whole;
          if (!whole && !bands.shared) {
            link.blocks = static_cast<int64_t>(std::floor(beta[k] * link.steps.blocks + 1e-9));
          }
          break;
        case WIFI:
          link.steps.least += k * link.steps.steps;
          link.all = whole ? 1 : clients;
          link.shared = !whole;
          break;
      }
      links[way * clients + k] = link;
    }
  }
}

// The rate with a number of resource blocks in every TTI. Uplinks concentrate their power: with too
// little for all blocks, they use the number that it reaches.
inline Rate blocks_bps(const Link &link, double value, int64_t blocks) {
  const double *from = link.steps.least;
  const int64_t steps = link.steps.steps, row = steps + 1;
  double snr_at_1 = link.snr, snr = link.snr * value;
  int64_t lowest = 0;
  if (link.uplink) {
    lowest = 1;
    const double reached = snr / from[0];
    if (snr < static_cast<double>(blocks) * from[0]) {
      const int64_t used = lte::used(blocks, reached);
      const double fewest = static_cast<double>(least(blocks, lte::LEAST_BLOCKS));
      return {link.steps.bps[used * row + least(used, int64_t{1})],
              static_cast<double>(used) * from[0] / snr_at_1,
              (used ? static_cast<double>(used + 1) : fewest) * from[0] / snr_at_1};
    }
    snr /= static_cast<double>(blocks);
    snr_at_1 /= static_cast<double>(blocks);
  }
  const int64_t step = most(lowest, std::upper_bound(from, from + steps, snr) - from);
  return {link.steps.bps[blocks * row + step], step > 0 ? from[step - 1] / snr_at_1 : 0.0,
          step < steps ? from[step] / snr_at_1 : NEVER};
}

// The rate of an NR link while `active` links divide its blocks: those that remain are given to each
// in turn, and with too many links for `lte::LEAST_BLOCKS` each, these are served in turns.
inline Rate divided_bps(const Link &link, double value, int64_t active) {
  double part = 1.0;
  const int64_t blocks = turn(link.blocks, active, link.grants, part);
  const int64_t at_once = std::lround(part * static_cast<double>(active));
  Rate rate = blocks_bps(link, value, blocks);
  if (const int64_t more = link.blocks - blocks * at_once; more > 0) {
    const Rate wider = blocks_bps(link, value, blocks + 1);
    rate.bps += (wider.bps - rate.bps) * static_cast<double>(more) / static_cast<double>(at_once);
    rate.from = most(rate.from, wider.from);
    rate.below = least(rate.below, wider.below);
  }
  rate.bps *= part;
  return rate;
}

// The rate of a Wi-Fi link while `active` links of its direction and `others` of the other contend.
inline Rate contended_bps(const Link &link, double value, int64_t active, int64_t others) {
  const double *from = link.steps.least;
  const int64_t steps = link.steps.steps, row = steps + 1;
  int64_t step = steps;
  while (step > 0 && value < from[step - 1]) --step;
  Rate rate{0.0, step > 0 ? from[step - 1] : 0.0, step < steps ? from[step] : NEVER};
  if (link.uplink) {
    rate.bps = link.steps.bps[(active + (others > 0)) * row + step];
  } else {
    rate.bps = link.steps.bps[(1 + others) * row + step] / static_cast<double>(active);
  }
  return rate;
}

// The rate of a link in bit/s in a slot in which the channel has that value; of a shared band, while
// all clients send.
inline double link_bps(const Link &link, double value) {
  switch (link.kind) {
    case SHANNON:
      return shannon_bps(link.hz, link.snr * value);
    case GIVEN:
      return link.part * value;
    case LTE:
    case NR:
      return blocks_bps(link, value, link.blocks).bps;
    case WIFI:
      return contended_bps(link, value, link.all, 0).bps;
    default:
      return link.curve(link.snr * value, link.hz);
  }
}

// The rate of a link of a shared band in bit/s while `active` clients send in its direction and
// `others` in the other, and the range of slot values in which it is the same. The rate is 0 for each
// number of clients or for none.
inline Rate shared_bps(const Link &link, double value, int64_t active, int64_t others) {
  if (link.kind == WIFI) return contended_bps(link, value, active, others);
  if (link.kind == NR) return divided_bps(link, value, active);
  double part = 1.0 / static_cast<double>(active);
  int64_t blocks = link.steps.blocks;
  if (link.uplink) blocks = turn(blocks, active, link.grants, part);
  Rate rate = blocks_bps(link, value, blocks);
  rate.bps = part * rate.bps;
  return rate;
}

// A channel trace, of which the slots before `begin` are not kept: arrays of S slots hold those from
// `begin` to `slots`. Mirror of `core_library.Slots`.
struct Slots {
  const double *values;  // [ways, K, S]
  int64_t ways, clients, slots, begin;
  double slot_s;
  const double *edges_s;   // [S + 1], with `begin` 0; null where slots are multiples of `slot_s`
  const float *fading;     // power of small-scale fading [2, K, S, B]; null: there is none
  int64_t blocks;          // B
  const int64_t *cells;    // number of the cell that serves each client [K, S]; null: there is one
  // Several cells, or null: SNR of each client's link with each of `sites` cells, without
  // interference and over the whole band [2, sites, K, S]; the share of its downlink in which each
  // cell sends for others [sites]; the share of each slot in which no handover interrupts a client
  // [K, S].
  const double *strength;
  const double *load;
  const double *kept;
  int64_t sites;
};

// The place of a slot in an array with a row of S slots for each client.
inline int64_t place_in(const Slots &slots, int64_t row, int64_t slot) {
  return row * (slots.slots - slots.begin) + slot - slots.begin;
}

inline double strength_of(const Slots &slots, int way, int64_t cell, int64_t k, int64_t slot) {
  const int64_t row = (side_of(way) * slots.sites + cell) * slots.clients + k;
  return slots.strength[place_in(slots, row, slot)];
}

inline int64_t cell_of(const Slots &slots, int64_t k, int64_t slot) {
  return slots.cells[place_in(slots, k, slot)];
}

inline double kept_of(const Slots &slots, int64_t k, int64_t slot) {
  return slots.kept ? slots.kept[place_in(slots, k, slot)] : 1.0;
}

inline double value_of(const Slots &slots, int way, int64_t k, int64_t slot) {
  const int64_t row = slots.ways > 1 ? side_of(way) : 0;
  return slots.values[place_in(slots, row * slots.clients + k, slot)];
}

inline const float *fading_of(const Slots &slots, int way, int64_t k, int64_t slot) {
  return slots.fading + place_in(slots, side_of(way) * slots.clients + k, slot) * slots.blocks;
}

// The rate of a downlink while each other cell sends for a part of the time, `busy(cell)`, in the
// whole band; those that do not send always do so together. `rate` is that at a slot value.
template <typename Busy, typename AtValue>
double interfered_bps(const Slots &slots, const Link &link, int64_t k, int64_t slot, Busy busy,
                      AtValue rate) {
  const int64_t own = cell_of(slots, k, slot);
  double noise = 1.0, at_times = 0.0, weighted = 0.0;
  for (int64_t cell = 0; cell < slots.sites; ++cell) {
    const double part = cell == own ? 0.0 : busy(cell);
    const double strength = part > 0.0 ? strength_of(slots, DOWN, cell, k, slot) : 0.0;
    (part < 1.0 ? at_times : noise) += strength;
    weighted += part < 1.0 ? part * strength : 0.0;
  }
  const double signal = strength_of(slots, DOWN, own, k, slot) / link.snr;
  if (at_times == 0.0) return rate(signal / noise);
  const double part = weighted / at_times;
  return (1.0 - part) * rate(signal / noise) + part * rate(signal / (noise + at_times));
}

// The mean rate of a link in a slot while `active` and `others` send; see `shared_bps`.
inline Rate shared_slot_bps(const Slots &slots, const Link &link, int way, int64_t k, int64_t slot,
                            int64_t active, int64_t others) {
  const double value = value_of(slots, way, k, slot);
  if (!slots.fading) return shared_bps(link, value, active, others);
  const float *powers = fading_of(slots, way, k, slot);
  double total = 0.0;
  for (int64_t b = 0; b < slots.blocks; ++b) {
    total += shared_bps(link, value * static_cast<double>(powers[b]), active, others).bps;
  }
  return {total / static_cast<double>(slots.blocks), NEVER, -NEVER};
}

// Whether a scheduler assigns resource blocks.
inline bool is_scheduled(const Link &link) { return link.kind == LTE || link.kind == NR; }

// Whether a link of a shared band takes part in a slot while all send: with a scheduler, the others have
// the part of one that is out of range.
inline bool takes_part(const Slots &slots, const Link &link, int way, int64_t k, int64_t slot) {
  return !is_scheduled(link) || shared_slot_bps(slots, link, way, k, slot, 1, 0).bps > 0.0;
}

// The mean rate of a link of a shared band in a slot while all clients of its cell send that take part,
// which `takes_part(k)` says.
template <typename TakesPart>
double shared_by_all_bps(const Slots &slots, const Link &link, int way, int64_t k, int64_t slot,
                         TakesPart takes_part) {
  int64_t count = 0;
  for (int64_t other = 0; other < slots.clients; ++other) {
    const bool here = !slots.cells || cell_of(slots, other, slot) == cell_of(slots, k, slot);
    count += here && (other == k || takes_part(other));
  }
  const double bps = shared_slot_bps(slots, link, way, k, slot, count, 0).bps;
  if (!slots.strength) return bps;
  if (way == UP || value_of(slots, way, k, slot) == 0.0) return kept_of(slots, k, slot) * bps;
  const auto rate = [&](double at) { return shared_bps(link, at, count, 0).bps; };
  const auto busy = [&](int64_t cell) {
    for (int64_t other = 0; other < slots.clients; ++other) {
      if (cell_of(slots, other, slot) == cell && takes_part(other)) return 1.0;
    }
    return slots.load[cell];
  };
  return kept_of(slots, k, slot) * interfered_bps(slots, link, k, slot, busy, rate);
}

inline bool is_shared_by_all(const Slots &slots, const Link &link) {
  return link.shared && (slots.cells || is_scheduled(link));
}

// The mean rate of a link in a slot, in bit/s; of a shared band, while all clients of its cell send.
// `link` is the client's in an array with those of its direction.
inline double slot_bps(const Slots &slots, const Link &link, int way, int64_t k, int64_t slot) {
  if (is_shared_by_all(slots, link)) {
    const Link *links = &link - k;
    return shared_by_all_bps(slots, link, way, k, slot, [&](int64_t other) {
      return takes_part(slots, links[other], way, other, slot);
    });
  }
  const double value = value_of(slots, way, k, slot);
  // A gradient in turns is the only downlink of all cells.
  if (slots.strength && way == DOWN && link.blocks == link.steps.blocks && value > 0.0) {
    const auto rate = [&](double at) { return link_bps(link, at); };
    const auto busy = [&](int64_t cell) { return slots.load[cell]; };
    return kept_of(slots, k, slot) * interfered_bps(slots, link, k, slot, busy, rate);
  }
  if (!slots.fading) return link_bps(link, value);
  const float *powers = fading_of(slots, way, k, slot);
  double total = 0.0;
  for (int64_t b = 0; b < slots.blocks; ++b) {
    total += link_bps(link, value * static_cast<double>(powers[b]));
  }
  return total / static_cast<double>(slots.blocks);
}

// Start of a slot, in s.
inline double edge_of(const Slots &slots, int64_t slot) {
  return slots.edges_s ? slots.edges_s[slot] : static_cast<double>(slot) * slots.slot_s;
}

// The slot that contains a moment, searched from an earlier one on; a boundary belongs to the new
// slot.
inline int64_t slot_at(const Slots &slots, double time_s, int64_t slot) {
  while (slot < slots.slots && edge_of(slots, slot + 1) <= time_s + HALF_NS) ++slot;
  return slot;
}

// A slot at or shortly before a moment, from which `slot_at` can search.
inline int64_t slot_before(const Slots &slots, double time_s) {
  int64_t first = 0;
  if (slots.edges_s) {
    int64_t low = 0, high = slots.slots + 1;  // the first edge after the moment
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (slots.edges_s[middle] <= time_s) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    first = low - 1;
  } else {
    first = static_cast<int64_t>(time_s / slots.slot_s) - 1;
  }
  return most(slots.begin, first);
}

// When a link has carried a number of bits: when the integral of its slots' rates reaches them,
// eq. (3). In an outage the rate is 0 and the transfer waits. `airtime` [3, K, n] is how often a
// frame is sent in the mean; null stands for once. `slot` becomes the slot of the end.
inline double carried(const Slots &slots, const double *airtime, int64_t n, int way, int64_t k,
                      double bits, double time_s, int64_t &slot, const Link &link) {
  slot = slot_at(slots, time_s, slot);
  if (bits == 0.0) return time_s;
  while (slot < slots.slots) {
    const double edge_s = edge_of(slots, slot + 1);
    double rate = slot_bps(slots, link, way, k, slot);
    if (airtime) rate /= airtime[(way * slots.clients + k) * n + least(slot, n - 1)];
    if (rate > 0.0) {
      if (bits <= rate * (edge_s - time_s + HALF_NS)) return time_s + bits / rate;
      bits -= rate * (edge_s - time_s);
    }
    time_s = edge_s;
    ++slot;
  }
  return NEVER;
}

}  // namespace engine
