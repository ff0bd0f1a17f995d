// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// The duration of TCP transfers, simulated window by window; `orchestrator.engine.tcp_model`
// describes the model and its sources.

#pragma once

#include "links.h"

namespace engine {

enum Control { CUBIC, RENO, BBR };

// Linux's smallest retransmission timeout in addition to the round trip.
constexpr double LEAST_TIMEOUT_S = 0.2;
// Additional delay of a probe: two ticks of a kernel's timers.
constexpr double PROBE_S = 0.02;
constexpr double HYSTART_FRAMES = 16, HYSTART_SPACING_S = 2e-3, HYSTART_BEYOND_S = 1e-3;
// Parameters of cubic, with the values of Linux.
constexpr double BETA = 717.0 / 1024, SCALE = 0.4;
// Largest number of acknowledged frames per frame of window growth, before cubic has had a loss.
constexpr double FIRST_GROWTH = 20.0;
// Limit of a sender's own queue in Linux (TCP small queues): the larger of frames and time.
constexpr double QUEUE_FRAMES = 3.0, QUEUE_S = 1.2e-3;
constexpr double RECEIVER_GROWTH = 3.0;
// Interval, duration and window of bbr's search for the shortest round trip.
constexpr double PROBE_RTT_EVERY_S = 10.0, PROBE_RTT_S = 0.2, PROBE_RTT_FRAMES = 4.0;
// Time between the opening of a connection and a UAV's first upload, as measured; emulated seconds.
constexpr double CONNECTED_S = 1.9;
constexpr double MOST_PACKET_BITS = 8.0 * 64000;
// Slots whose mean rates limit packets: `testbed.network.slot_table.WHILE_SLOTS`.
constexpr int64_t MEAN_SLOTS = 50;
// Time after a packet for which Linux waits for acknowledgements that permit larger packets.
constexpr double DEFER_S = 1e-3;
// Linux's delay of the acknowledgement of a single frame.
constexpr double DELAYED_S = 0.04;
// Number of later frames whose acknowledgements show that a frame was lost (RFC 5681).
constexpr int64_t LATER_FRAMES = 3;
constexpr double PI = 3.14159265358979323846;

// The state of a sender.
struct Sender {
  double window, threshold, ceiling, origin, turn_s, since_s, friendly, idle_from_s, offered;
  double look_s, looked_s;  // start of bbr's next search for the shortest round trip, end of its last
  double bad;
  double begun;             // transfers that have begun, with a radio that grants resources
  double shortest_s, smoothed_s;  // round trips on a serial line until now; 0: none was measured
};

// Links with delay and loss; mirror of `core_library.Paths`, whose arrays `tcp_model.Paths` explains.
struct Paths {
  const double *delay_s, *jitter_s, *loss, *airtime;  // [3, K, slots]
  int64_t slots;
  double slot_s;
  const double *losses;  // [2, K, 4]
  int64_t clients;
  int32_t control, by_grant, impaired, round_trips;
  double frame_bits, initial, offered, credit_s, receipt_bits, opening_bits, packet_s, held_s;
  double acknowledgement_bits;
  int64_t queued_frames;
  double grant_s[2];
  const double *delivery_s;  // [2, K]
  Sender *senders;   // [2, K]
  uint64_t *draws;   // [2, K]
  double *free_s;    // [2, K]
  double *packets;   // [3, K]: frames of a packet on a serial line in this round; 0: not known yet
  int64_t limited_from;  // slot of the round's first transfer on serial lines; below 0: none yet
  double *unacknowledged;  // [3, acknowledgements]
  int64_t acknowledgements;
  double *windows;   // [2, 2, K, transfers]
  int64_t transfers;
};

inline double at(const Paths &paths, const double *table, int way, int64_t k, int64_t now) {
  return table[(way * paths.clients + k) * paths.slots + now];
}

// The round trip without the time on the link.
inline double back_s_of(const Paths &paths, int64_t k, int64_t now) {
  return at(paths, paths.delay_s, UP, k, now) + at(paths, paths.delay_s, DOWN, k, now);
}

// The slot of a moment; 0 where slots do not differ.
inline int64_t slot_of(const Paths &paths, double time_s) {
  if (paths.slots == 1 || time_s >= static_cast<double>(paths.slots) * paths.slot_s) {
    return paths.slots - 1;
  }
  return static_cast<int64_t>(time_s / paths.slot_s + 1e-9);
}

// The next random number from 0 to below 1, by splitmix64 (Steele, Lea and Flood 2014).
inline double uniform(Paths &paths, int side, int64_t k) {
  uint64_t state = paths.draws[side * paths.clients + k] + 0x9E3779B97F4A7C15u;
  paths.draws[side * paths.clients + k] = state;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  state = state ^ (state >> 31);
  return static_cast<double>(state >> 11) * 0x1p-53;
}

// Whether the next frame of a slot is lost; one step of the link's Gilbert-Elliott process.
inline bool is_lost(Paths &paths, int way, int64_t k, int64_t now) {
  const int side = side_of(way);
  const double *process = paths.losses + (side * paths.clients + k) * 4;
  Sender &sender = paths.senders[side * paths.clients + k];
  const bool bad = sender.bad > 0.0;
  if (process[0] > 0.0 && uniform(paths, side, k) < (bad ? process[1] : process[0])) {
    sender.bad = bad ? 0.0 : 1.0;
  }
  const double chance = bad ? process[3] : at(paths, paths.loss, way, k, now);
  return chance > 0.0 && uniform(paths, side, k) < chance;
}

// A random number of the normal distribution (Box and Muller 1958).
inline double normal(Paths &paths, int side, int64_t k) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(paths, side, k)));
  return radius * std::cos(2.0 * PI * uniform(paths, side, k));
}

// Arrival time of a frame; it does not overtake those that were sent shortly before.
inline double arrival(Paths &paths, int way, int64_t k, double sent_s, double spacing_s) {
  const int64_t now = slot_of(paths, sent_s);
  const double jitter_s = at(paths, paths.jitter_s, way, k, now);
  const double delay_s = at(paths, paths.delay_s, way, k, now);
  if (jitter_s == 0.0) return sent_s + delay_s;
  double last_s = sent_s;
  const int64_t frames = least(
      int64_t{1000}, 1 + static_cast<int64_t>(4.0 * jitter_s / most(spacing_s, 1e-6)));
  for (int64_t before = 0; before < frames; ++before) {
    const double late_s = most(0.0, delay_s + jitter_s * normal(paths, side_of(way), k));
    last_s = most(last_s, sent_s - static_cast<double>(before) * spacing_s + late_s);
  }
  return last_s;
}

// When a sender that opens a connection at a time may send on it. The frames that it sends for this
// count as part of its message.
inline double opened(const Paths &paths, const Slots &slots, int way, int64_t k, double time_s,
                     int64_t slot, const Link &back) {
  for (int trip = 0; trip < paths.round_trips && time_s != NEVER; ++trip) {
    time_s += back_s_of(paths, k, slot_of(paths, time_s));
    if (paths.receipt_bits > 0.0) {
      time_s = carried(slots, nullptr, 1, opposite(way), k, paths.acknowledgement_bits, time_s,
                       slot, back);
    }
  }
  return time_s;
}

// Arrival time of a message of a single frame that is sent in a slot or later: an answer on the
// connection of a transfer, or a message that `opens` a connection if each has its own.
inline double note(Paths &paths, const Slots &slots, const Link *links, int way, int64_t k,
                   double time_s, int64_t slot, bool opens) {
  if (opens) {
    const Link &back = links[opposite(way) * paths.clients + k];
    time_s = opened(paths, slots, way, k, time_s, slot, back);
  }
  if (paths.receipt_bits > 0.0) {
    double &free_s = paths.free_s[way * paths.clients + k];
    const double bits = paths.receipt_bits + (opens ? paths.opening_bits : 0.0);
    time_s = free_s = carried(slots, nullptr, 1, way, k, bits, most(time_s, free_s), slot,
                              links[way * paths.clients + k]);
  }
  if (time_s == NEVER) return NEVER;
  int64_t now = slot_of(paths, time_s);
  const double end_s = static_cast<double>(paths.slots) * paths.slot_s;
  double timeout_s = LEAST_TIMEOUT_S + at(paths, paths.delay_s, UP, k, now) +
                     at(paths, paths.delay_s, DOWN, k, now);
  while (is_lost(paths, way, k, now)) {
    time_s += timeout_s;
    timeout_s *= 2.0;
    now = slot_of(paths, time_s);
    if (time_s >= end_s && paths.slots > 1) return NEVER;
  }
  return arrival(paths, way, k, time_s, 1.0);
}

// An idle sender halves its window per retransmission timeout (RFC 2861).
inline void after_idle(const Paths &paths, Sender &sender, double time_s, double timeout_s) {
  double idle_s = time_s - sender.idle_from_s;
  if (paths.control == BBR || idle_s <= timeout_s) return;
  sender.threshold = most(sender.threshold, 0.75 * sender.window);
  while (idle_s > timeout_s && sender.window > paths.initial) {
    sender.window = most(paths.initial, sender.window / 2);
    idle_s -= timeout_s;
  }
}

// Postpone bbr's search for the shortest round trip when a transfer begins.
inline void postpone_probe(const Paths &paths, Sender &sender, double time_s) {
  if (paths.round_trips > 0) {
    sender.look_s = time_s + PROBE_RTT_EVERY_S;
  } else if (sender.look_s == 0.0 && sender.looked_s == 0.0) {
    sender.look_s = time_s + PROBE_RTT_EVERY_S - CONNECTED_S;
  } else if (sender.looked_s > 0.0 || time_s >= sender.look_s) {
    sender.look_s = time_s + PROBE_RTT_EVERY_S;
    sender.looked_s = time_s;
  }
}

// Whether bbr keeps its window small in a flight, to measure the shortest round trip.
inline bool probes_round_trip(Sender &sender, double start_s, double trip_s) {
  if (start_s >= sender.look_s) {
    sender.looked_s = start_s + trip_s + PROBE_RTT_S;
    sender.look_s = sender.looked_s + PROBE_RTT_EVERY_S;
  }
  return start_s < sender.looked_s;
}

// Reduce the window after a loss, in whole frames.
inline void shrink(const Paths &paths, Sender &sender) {
  const double window = std::floor(sender.window);
  if (paths.control == BBR) return;
  if (paths.control == RENO) {
    sender.window = most(2.0, std::floor(window / 2));
  } else {
    double ceiling = window;
    if (window < sender.ceiling) ceiling = std::floor(window * (1 + BETA) / 2);
    sender.ceiling = ceiling;
    sender.window = most(2.0, std::floor(window * BETA));
  }
  sender.threshold = sender.window;
  sender.since_s = 0.0;
}

// Shrink the window for a flight of `frames` frames, whose frame `first` is the first loss to shrink
// it, while the window has grown by `grown` frames since the flight left. Returns the frames of the
// next flight that leave before the loss is detected; `early` becomes the number of frames by which
// that flight is larger than the window.
inline int64_t recovery(const Paths &paths, Sender &sender, int64_t frames, int64_t first,
                        double grown, double &early) {
  const double before = sender.window;
  shrink(paths, sender);
  early = 0.0;
  if (paths.control == BBR) return 0;
  const int64_t shows = least(frames, first + 1 + LATER_FRAMES);
  // The last acknowledgement that shows the loss releases the retransmission.
  const double left = static_cast<double>(most(first, shows - 2)) + grown;
  const double flight = left + 1 + sender.window / before * static_cast<double>(frames - shows);
  early = most(0.0, flight - sender.window);
  return static_cast<int64_t>(left);
}

// Grow the window after the acknowledgement of a flight of this many frames.
inline void grow(const Paths &paths, Sender &sender, double frames, double pipe, double trip_s,
                 double frame_s) {
  const double window = sender.window;
  if (paths.control == BBR) {
    sender.window = least(window + frames, 2 * pipe);
    return;
  }
  if (window < sender.threshold) {
    double grown = least(window + frames, most(window, 2 * pipe));
    const double train = (trip_s + HYSTART_BEYOND_S) / frame_s;
    if (paths.control == CUBIC && window >= HYSTART_FRAMES && frame_s <= HYSTART_SPACING_S &&
        frames > train) {
      grown = least(grown, window + train);
      sender.threshold = grown;
    }
    sender.window = least(grown, most(window, sender.threshold));
    return;
  }
  if (window > pipe) return;  // The window does not limit the sender.
  if (paths.control == RENO) {
    sender.window = window + frames / window;
    return;
  }
  if (sender.since_s == 0.0) {
    sender.origin = most(window, sender.ceiling);
    sender.turn_s = std::pow((sender.origin - window) / SCALE, 1.0 / 3);
    sender.friendly = window;
  }
  sender.since_s += trip_s * least(1.0, frames / window);
  const double ahead_s = sender.since_s + trip_s - sender.turn_s;
  const double target = sender.origin + std::trunc(SCALE * (ahead_s * (ahead_s * ahead_s)));
  double each = target > window ? window / (target - window) : 100 * window;
  if (sender.ceiling == 0.0) each = least(each, FIRST_GROWTH);
  const double friendly_each = sender.friendly * (1 + BETA) / (3 * (1 - BETA));
  sender.friendly += frames / friendly_each;
  if (sender.friendly > window) each = least(each, window / (sender.friendly - window));
  sender.window = window + frames / most(2.0, each);
}

// When a transfer of `size` bytes that begins at a time is served, where a radio grants it. From then
// on, its link's rate limits it, which is `bps` at first.
inline double served_from(Paths &paths, int way, int64_t k, int64_t size, double time_s, double bps) {
  const int side = side_of(way);
  Sender &sender = paths.senders[side * paths.clients + k];
  const double back_s = back_s_of(paths, k, 0);
  after_idle(paths, sender, time_s, back_s + LEAST_TIMEOUT_S);
  double windows_s = 0.0;
  int64_t number = 0;
  if (paths.round_trips > 0) {
    sender.window = paths.initial;
    windows_s = paths.round_trips * back_s;
  }
  if (bps > 0.0) {
    const double frame_s = paths.frame_bits / bps, trip_s = back_s + frame_s;
    double left = 8.0 * static_cast<double>(size) / paths.frame_bits, window = sender.window;
    while (window < left && window * frame_s < trip_s) {
      windows_s += trip_s - window * frame_s;
      ++number;
      left -= window;
      window *= 2.0;
    }
    sender.window = most(sender.window, least(window + left, 2.0 * trip_s / frame_s));
  }
  const int64_t place = static_cast<int64_t>(sender.begun);
  if (place < paths.transfers) {
    const int64_t row = side * paths.clients + k, rows = 2 * paths.clients;
    paths.windows[row * paths.transfers + place] = windows_s;
    paths.windows[(rows + row) * paths.transfers + place] = static_cast<double>(number);
  }
  sender.begun += 1.0;
  return time_s + paths.grant_s[side] + windows_s;
}

// When a transfer has arrived that was served until a time, where a radio grants it.
inline double arrival_of(Paths &paths, int way, int64_t k, double served_s) {
  const int side = side_of(way);
  paths.senders[side * paths.clients + k].idle_from_s = served_s;
  return served_s + paths.delivery_s[side * paths.clients + k];
}

// See `testbed.network.shaping.Shape.packet_frames`.
inline int64_t packet_frames(const Paths &paths, double bps, double back_bps) {
  double frames = std::floor(paths.packet_s * bps / paths.frame_bits);
  if (paths.packet_s > 0.0 && back_bps > 0.0) {
    const double needed = 2.0 * paths.acknowledgement_bits * bps / back_bps / paths.frame_bits;
    frames = most(frames, least(std::ceil(needed), static_cast<double>(paths.queued_frames / 4)));
  }
  return static_cast<int64_t>(
      most(1.0, least(frames, std::floor(MOST_PACKET_BITS / paths.frame_bits))));
}

// The same in a round: packets are as large as the mean rates at its beginning allow, see
// `testbed.network.injection`. `slot` is that of a transfer; those of a round begin in time order.
inline double frames_from(Paths &paths, const Slots &slots, int way, int64_t k, int64_t slot,
                          const Link &link, const Link &back) {
  if (paths.limited_from < 0) paths.limited_from = slot;
  double &frames = paths.packets[way * paths.clients + k];
  if (frames == 0.0) {
    const int64_t end = least(paths.limited_from + MEAN_SLOTS, slots.slots);
    double bps = 0.0, back_bps = 0.0;
    for (int64_t of = paths.limited_from; of < end; ++of) {
      bps += slot_bps(slots, link, way, k, of);
      back_bps += slot_bps(slots, back, opposite(way), k, of);
    }
    const double count = static_cast<double>(end - paths.limited_from);
    frames = static_cast<double>(packet_frames(paths, bps / count, back_bps / count));
  }
  return frames;
}

// Whether acknowledgements in these slots surely arrive before a sender needs them.
inline bool acknowledged_in_time(const Paths &paths, const Slots &slots, int way, int64_t k,
                                 int64_t first, int64_t last, const Link &link, const Link &back) {
  for (int64_t slot = first; slot < least(last + 1, slots.slots); ++slot) {
    const double bps = slot_bps(slots, link, way, k, slot);
    const double back_bps = slot_bps(slots, back, opposite(way), k, slot);
    // The first packets are halves of the initial window at most.
    const double frames = least(static_cast<double>(packet_frames(paths, bps, back_bps)),
                                most(1.0, std::floor(paths.initial / 2)));
    const double packet_bits = paths.frame_bits * frames;
    if (2.0 * paths.acknowledgement_bits * bps > packet_bits * back_bps) return false;
  }
  return true;
}

// The frames of a transfer.
inline int64_t frames_of(const Paths &paths, int64_t size) {
  return most(int64_t{1}, static_cast<int64_t>(std::ceil(
                              8.0 * static_cast<double>(size) / paths.frame_bits - 1e-9)));
}

// As `delivered`, packet by packet, for a serial line whose acknowledgements may be late.
inline double clocked(Paths &paths, const Slots &slots, int way, int64_t k, int64_t size,
                      double time_s, int64_t &slot, const Link &link, const Link &back) {
  const int side = side_of(way), other = opposite(way);
  Sender &sender = paths.senders[side * paths.clients + k];
  const int64_t places = paths.acknowledgements;
  // Of the acknowledgements on their way: times of arrival, frames, and when the last was sent.
  double *arrive_s = paths.unacknowledged, *of_frames = arrive_s + places;
  double *sent_s = of_frames + places;
  double &line_free_s = paths.free_s[side * paths.clients + k];
  double &back_free_s = paths.free_s[other * paths.clients + k];
  after_idle(paths, sender, time_s, LEAST_TIMEOUT_S);
  int64_t left = frames_of(paths, size);
  double left_bits = 8.0 * static_cast<double>(size);  // all frames but the last are full
  int64_t flying = 0, since = 0, largest = 0;  // frames in flight, not acknowledged yet, and most
  int64_t first = 0, last = 0;  // acknowledgements on their way: those from first to before last
  double now_s = time_s, left_s = most(time_s, line_free_s);
  int64_t back_slot = slot;
  double wrote_s = -NEVER;  // when the last packet was handed over
  // A round trip of HyStart ends with the acknowledgement of what had been sent when it began.
  double turn_s = -1.0, train_s = -1.0;
  int64_t turn_end = 0, turn_frames = 0;
  while (left > 0) {
    const int64_t here = least(slot_at(slots, left_s, slot), slots.slots - 1);
    const double bps = slot_bps(slots, link, way, k, here);
    const double back_bps = slot_bps(slots, back, other, k, here);
    double queue_s = QUEUE_S;
    if (bps > 0.0) {
      queue_s = most(QUEUE_S, QUEUE_FRAMES * paths.frame_bits / bps);
      if (back_bps > 0.0) {  // Receipts have measured it, at the latest.
        const double trip_s = paths.frame_bits / bps + paths.acknowledgement_bits / back_bps;
        if (sender.shortest_s == 0.0 || trip_s < sender.shortest_s) sender.shortest_s = trip_s;
      }
    }
    now_s = most(now_s, left_s - queue_s);
    while (first < last && arrive_s[first % places] <= now_s) {
      const double at_s = arrive_s[first % places], frames = of_frames[first % places];
      const double trip_s = at_s - sent_s[first % places];
      if (first >= turn_end) {  // a new round trip
        sender.offered =
            most(sender.offered, RECEIVER_GROWTH * static_cast<double>(turn_frames));
        turn_s = train_s = at_s;
        turn_end = last;
        turn_frames = 0;
      }
      const double part = sender.smoothed_s > 0.0 ? 8.0 : 1.0;  // RFC 6298
      sender.smoothed_s += (trip_s - sender.smoothed_s) / part;
      turn_frames += static_cast<int64_t>(frames);
      largest = most(largest, flying);
      flying -= static_cast<int64_t>(frames);
      const bool in_slow_start = sender.window < sender.threshold;
      const bool looks = paths.control == CUBIC && sender.threshold == NEVER;
      if (looks && sender.window >= HYSTART_FRAMES && at_s - train_s <= HYSTART_SPACING_S) {
        train_s = at_s;
        // Without pacing, half a round trip is enough.
        if (at_s - turn_s > 0.5 * (sender.shortest_s + HYSTART_BEYOND_S)) {
          sender.threshold = sender.window;
        }
      }
      if (in_slow_start && sender.threshold > sender.window) {
        if (sender.window < 2.0 * static_cast<double>(largest)) {
          sender.window = least(sender.window + frames, sender.threshold);
        }
      } else if (static_cast<double>(flying) + frames + 1 >= std::trunc(sender.window)) {
        sender.window += frames / FIRST_GROWTH;
      }
      ++first;
    }
    const int64_t window = static_cast<int64_t>(least(sender.window, sender.offered));
    const int64_t wanted = least(packet_frames(paths, bps, back_bps), left);
    const int64_t now = least(least(wanted, window - flying), most(int64_t{1}, window / 2));
    bool defers = now < wanted && 3 * now < window && first < last;
    if (defers) {  // An acknowledgement is expected soon, and the last packet left recently.
      const double age_s = now_s - sent_s[first % places];
      defers = now_s - wrote_s <= DEFER_S && age_s >= 0.5 * sender.smoothed_s;
    }
    if (now <= 0 || defers || last - first == places) {
      if (first == last) {  // The last frame is not acknowledged by itself.
        now_s = left_s + DELAYED_S;
        flying = since = 0;
      } else {
        now_s = most(now_s, arrive_s[first % places]);
        if (now_s == NEVER) return NEVER;
      }
      continue;
    }
    double begin_s = most(now_s, left_s);
    const double bits = least(static_cast<double>(now) * paths.frame_bits, left_bits);
    left_s = carried(slots, nullptr, 1, way, k, bits, begin_s, slot, link);
    if (left_s == NEVER) return NEVER;
    wrote_s = now_s;
    flying += now;
    left -= now;
    left_bits -= bits;
    since += now;
    if (since >= 2 || left == 0) {
      begin_s = most(left_s, back_free_s);
      back_free_s =
          carried(slots, nullptr, 1, other, k, paths.acknowledgement_bits, begin_s, back_slot, back);
      const int64_t place = last % places;
      arrive_s[place] = back_free_s;
      of_frames[place] = static_cast<double>(since);
      // A frame that a line has held back until now has waited in its queue.
      sent_s[place] = now_s - (way == BROADCAST && first == 0 ? paths.held_s : 0.0);
      ++last;
      since = 0;
    }
  }
  sender.idle_from_s = left_s;
  return left_s;
}

// A transfer on a serial line without delay and loss.
inline double over_serial_line(Paths &paths, const Slots &slots, int way, int64_t k, int64_t size,
                               double time_s, int64_t &slot, const Link &link, const Link &back) {
  const int side = side_of(way), other = opposite(way);
  time_s = opened(paths, slots, way, k, time_s, slot, back);
  if (paths.round_trips > 0) paths.senders[side * paths.clients + k].window = paths.initial;
  const double begin_s = most(time_s, paths.free_s[side * paths.clients + k]);
  const int64_t begin_slot = slot_at(slots, begin_s, slot);
  int64_t end_slot = slot;
  const double end_s = carried(slots, nullptr, 1, way, k, 8.0 * static_cast<double>(size), begin_s,
                               end_slot, link);
  if (end_s == NEVER) {
    slot = end_slot;
    return NEVER;
  }
  if (!acknowledged_in_time(paths, slots, way, k, begin_slot, end_slot, link, back)) {
    return clocked(paths, slots, way, k, size, time_s, slot, link, back);
  }
  slot = end_slot;
  // The last packet may be so short that the acknowledgement of the one before is still being sent.
  double acknowledged_s = end_s;
  const double bits = 8.0 * static_cast<double>(size);
  // Packets of a single frame are acknowledged in pairs.
  const double each = paths.frame_bits * most(2.0, frames_from(paths, slots, way, k, begin_slot, link,
                                                               back));
  const double before_bits = (std::ceil(bits / each) - 1.0) * each;
  if (before_bits > 0.0) {
    int64_t before_slot = begin_slot;
    const double before_s =
        carried(slots, nullptr, 1, way, k, before_bits, begin_s, before_slot, link);
    acknowledged_s = most(end_s, carried(slots, nullptr, 1, other, k, paths.acknowledgement_bits,
                                         before_s, before_slot, back));
  }
  paths.free_s[other * paths.clients + k] = carried(
      slots, nullptr, 1, other, k, paths.acknowledgement_bits, acknowledged_s, end_slot, back);
  return end_s;
}

// Arrival time of the last byte of a transfer; `slot` becomes the slot in which it was sent. `back`
// is the link of the other direction, which carries the acknowledgements.
inline double delivered(Paths &paths, const Slots &slots, int way, int64_t k, int64_t size,
                        double time_s, int64_t &slot, const Link &link, const Link &back) {
  if (paths.receipt_bits > 0.0 && !paths.impaired) {
    return over_serial_line(paths, slots, way, k, size, time_s, slot, link, back);
  }
  if (paths.by_grant) {
    slot = slot_at(slots, time_s, slot);
    const double bps = slot < slots.slots ? slot_bps(slots, link, way, k, slot) : 0.0;
    const double served_s = served_from(paths, way, k, size, time_s, bps);
    return arrival_of(paths, way, k,
                      carried(slots, nullptr, 1, way, k, 8.0 * static_cast<double>(size), served_s,
                              slot, link));
  }
  const int side = side_of(way), other = opposite(way);
  int64_t now = slot_of(paths, time_s);
  Sender &sender = paths.senders[side * paths.clients + k];
  double back_s = back_s_of(paths, k, now);
  after_idle(paths, sender, time_s, back_s + LEAST_TIMEOUT_S);
  if (paths.round_trips > 0) {
    sender.window = paths.initial;
    sender.threshold = NEVER;
    sender.offered = paths.offered;
    sender.ceiling = sender.since_s = 0.0;
    time_s = opened(paths, slots, way, k, time_s, slot, back);
    if (time_s == NEVER) return NEVER;
  }
  if (paths.control == BBR) postpone_probe(paths, sender, time_s);
  int64_t left = frames_of(paths, size);
  const double each = 8.0 * static_cast<double>(size) / static_cast<double>(left);
  double left_s = time_s, ready_s = time_s, frame_s = 0.0, timeout_s = LEAST_TIMEOUT_S, early = 0.0;
  int64_t before = 0, again = 0, point = 0;
  bool recovers = false, conserves = false;
  while (left > 0) {
    const double start_s = most(left_s, ready_s);
    now = slot_of(paths, start_s);
    back_s = back_s_of(paths, k, now);
    int64_t first_slot = slot;
    const double first_s = carried(slots, paths.airtime, paths.slots, way, k, each, start_s,
                                   first_slot, link);
    if (first_s == NEVER) return NEVER;
    frame_s = most(first_s - start_s, 1e-9);
    const double trip_s = back_s + frame_s;
    const double pipe = trip_s / frame_s + most(QUEUE_FRAMES, QUEUE_S / frame_s);
    double allowed = least(least(sender.window + early, sender.offered), pipe);
    if (paths.control == BBR && probes_round_trip(sender, start_s, trip_s)) {
      allowed = least(allowed, PROBE_RTT_FRAMES);
    }
    const int64_t frames = least(left, most(int64_t{1}, static_cast<int64_t>(allowed)));
    left_s = carried(slots, paths.airtime, paths.slots, way, k, static_cast<double>(frames) * each,
                     start_s, slot, link);
    if (left_s == NEVER) return NEVER;
    int64_t lost = 0, tail = 0, first = frames, last_lost = 0, lost_twice = 0, shown = 0;
    for (int64_t place = 0; place < frames; ++place) {
      if (is_lost(paths, way, k, now)) {
        ++lost;
        ++tail;
        last_lost = place;
        if (first == frames && place >= point) first = place;
        lost_twice += place < again;
      } else {
        tail = 0;
        shown += lost_twice > 0;
      }
    }
    const bool all_sent = frames == left;
    left -= frames - lost;
    sender.offered = most(sender.offered, RECEIVER_GROWTH * static_cast<double>(before));
    before = frames;
    ready_s = first_s + back_s;
    if (paths.receipt_bits > 0.0) {
      int64_t from = slot;
      ready_s = back_s + carried(slots, nullptr, 1, other, k, paths.acknowledgement_bits, first_s,
                                 from, back);
    }
    const double held = sender.window;
    if (paths.control == BBR) {
      conserves = lost > 0 && !conserves;
      if (!conserves) grow(paths, sender, static_cast<double>(frames), pipe, trip_s, frame_s);
    } else if (first > point && (lost == 0 || first < frames)) {
      grow(paths, sender, static_cast<double>(first - point), pipe, trip_s, frame_s);
    }
    const double grown = sender.window - held;
    again = lost;
    point = 0;
    early = 0.0;
    if (lost == 0) {
      recovers = false;
      timeout_s = LEAST_TIMEOUT_S;
      continue;
    }
    if (lost_twice > 0 && shown < LATER_FRAMES && paths.control != BBR) {
      ready_s = first_s + back_s + timeout_s;
      sender.window = 1.0;
      timeout_s *= 2.0;
      recovers = true;
      continue;
    }
    if (first < frames) {
      point = recovery(paths, sender, frames, first, grown, early);
      point = most(point, again);
    }
    if (lost == frames || (all_sent && tail > 0)) {  // No later frame shows the loss.
      if (recovers || tail == 1) {
        ready_s = left_s + back_s + trip_s + timeout_s;
        timeout_s *= 2.0;
        if (recovers && paths.control != BBR) {
          sender.window = 1.0;
          early = 0.0;
        }
      } else {
        ready_s = left_s + back_s + 3 * trip_s + PROBE_S;
      }
    } else if (all_sent) {
      ready_s = start_s + static_cast<double>(last_lost + 1) * (left_s - start_s) /
                              static_cast<double>(frames);
      ready_s += back_s + static_cast<double>(least(LATER_FRAMES, frames - 1 - last_lost)) * frame_s;
    }
    recovers = true;
  }
  sender.idle_from_s = left_s;
  return arrival(paths, way, k, left_s, frame_s);
}

}  // namespace engine
