// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT
//
// The plain round: the fast path of `orchestrator.rounds.conductor` for the paper's protocol without
// faults and without a model of TCP. A test holds it to the conductor.
//
// A client's round is a loop past two stations of the server, computing and downlink:
//
//     SM | CF CA [computing] [downlink] CB | CF CA [computing] [downlink] CB | ... | CM
//
// Between stations a client is on its own. A station is parallel (serves at once, with a share) or
// sequential (one at a time with all it has, from a priority queue), and a gate may hold arrivals
// back until all clients are there.
//
// Ties. Events that are simultaneous in theory must not be separated by the last bit of a float.
// Therefore moments and lags are compared in whole nanoseconds, while start and end times stay exact.
// All events of one moment happen before a sequential station picks its next client. The lowest rank
// is served first, then the earlier arrival, then the lower client number. Clients and iterations
// count from 0 here.

#pragma once

#include <cstdlib>
#include <initializer_list>

#include "medium.h"

namespace engine {

enum Station { COMPUTING, DOWNLINK, CLIENT, UPLINK, RECEIVES };
// Columns of a client's steps within an iteration, 5 i + x; CM is in column 5 I_k + 1.
enum Step { SM, CF, CA, S, SG, CB };
constexpr int64_t NO_RANK = INT64_MIN;

// The place of a client's request by an order that is not the paper's; see `engine.orders`.
using Order = int64_t (*)(int64_t, int64_t, int64_t, int64_t, int64_t, double, double, double, double,
                          double, double, double, double, double, double, double);

// A paradigm's fields; pairs are indexed by station. Mirror of `core_library.Rules`.
struct Rules {
  int32_t parallel[2];
  int32_t gated[2];
  int32_t by_lag;
  int32_t unicast;  // whether each client is sent a separate copy of the broadcast
  Order order;      // null: one of the paper's
};

// Work of a round: durations and bytes [K, I], adapters [K]. Mirror of `core_library.Work`.
struct Work {
  const double *cf_s, *cb_s, *s_s;
  const int64_t *sm_bytes, *ca_bytes, *sg_bytes, *cm_bytes;
  const int64_t *iterations_of;  // I_k [K]
  int64_t clients, iterations;
  double backward_ratio;
};

// The nanosecond that contains a moment: for comparisons only, not for arithmetic.
inline int64_t ns(double time_s) {
  return static_cast<int64_t>(std::floor(least(time_s, 9e9) * 1e9 + 0.5));
}

struct Entry {
  int64_t first, second, client;
  bool operator<(const Entry &other) const {
    if (first != other.first) return first < other.first;
    if (second != other.second) return second < other.second;
    return client < other.client;
  }
};

// A binary heap in memory that it is given; entry 1 is the top.
struct Heap {
  Entry *entries;
  int64_t size = 0;

  void push(Entry entry) {
    int64_t at = ++size;
    for (; at > 1 && entry < entries[at / 2]; at /= 2) entries[at] = entries[at / 2];
    entries[at] = entry;
  }
  int64_t pop() {
    const int64_t client = entries[1].client;
    const Entry last = entries[size--];
    int64_t at = 1;
    for (int64_t child = 2; child <= size; child = 2 * at) {
      if (child < size && entries[child + 1] < entries[child]) ++child;
      if (last < entries[child]) break;
      entries[at] = entries[child];
      at = child;
    }
    entries[at] = last;
    return client;
  }
};

class PlainRound {
 public:
  // `begin` and `end` have shape [K, 5 I + 2]. `service_order` [2, K, I] contains places in the order
  // in which the stations serve, from 0; a sequential station then waits for the client with the next
  // place; null: the rules decide. `medium` is null if each link has a rate of its own.
  PlainRound(const Rules &rules, const Work &work, const Slots &slots, const Link *links,
             Medium *medium, double start_s, const int64_t *service_order, double *begin, double *end)
      : rules_(rules), work_(work), slots_(slots), links_(links), medium_(medium), start_s_(start_s),
        service_order_(service_order), columns_(5 * work.iterations + 2), clients_(work.clients),
        begin_(begin), end_(end) {
    const int64_t n = clients_;
    memory_ = static_cast<char *>(std::malloc(
        3 * (n + 1) * sizeof(Entry) + 5 * n * sizeof(int64_t) + 5 * n * sizeof(double) +
        work.iterations * sizeof(int64_t)));
    char *free = memory_;
    auto take = [&free]<typename T>(T *&array, int64_t size) {
      array = reinterpret_cast<T *>(free);
      free += size * sizeof(T);
    };
    for (Heap *heap : {&events_, &queues_[COMPUTING], &queues_[DOWNLINK]}) take(heap->entries, n + 1);
    for (int64_t **array : {&slot_, &iteration_, &place_, &held_[0], &held_[1]}) take(*array, n);
    for (double **array : {&arrived_s_[0], &arrived_s_[1], &ready_s_[0], &ready_s_[1], &event_s_}) {
      take(*array, n);
    }
    take(waits_, work.iterations);
  }
  ~PlainRound() { std::free(memory_); }
  PlainRound(const PlainRound &) = delete;
  PlainRound &operator=(const PlainRound &) = delete;

  // Play the round. Returns its latency, NEVER if the trace ends before, or NaN if the order gave no
  // number.
  double play() {
    for (int64_t i = 0; i < work_.iterations; ++i) waits_[i] = 0;
    const int64_t first = slot_before(slots_, start_s_);
    for (int64_t k = 0; k < clients_; ++k) {
      slot_[k] = first;
      iteration_[k] = -1;
      for (int64_t i = 0; i < work_.iterations_of[k]; ++i) ++waits_[i];
    }
    medium_slot_ = first;
    last_s_ = start_s_;
    for (int station : {COMPUTING, DOWNLINK}) free_s_[station] = opens_s_[station] = start_s_;
    if (medium_) clear(*medium_, start_s_);
    if (!broadcast()) return NEVER;
    while (true) {
      if (spreads_ && have_ == clients_) begin_together();
      const int64_t moment = events_.size ? events_.entries[1].first : INT64_MAX;
      if (medium_ && is_busy(*medium_)) {
        const double until_s = events_.size ? event_s_[events_.entries[1].client] : NEVER;
        const Ended ended = advance(*medium_, links_, slots_, medium_slot_, until_s);
        if (ended.at_s == NEVER) return NEVER;
        if (ended.k >= 0) {
          transferred(ended);
          continue;
        }
      }
      if (moment == INT64_MAX) return last_s_ - start_s_;
      while (events_.size && events_.entries[1].first == moment) {
        if (!happens(events_.pop())) return NEVER;
      }
      for (int station : {COMPUTING, DOWNLINK}) {
        if (!open_gate(station)) return NAN;
      }
      for (int station : {COMPUTING, DOWNLINK}) {
        if (events_.size && events_.entries[1].first == moment) break;  // computing took no time
        if (!serve(station)) return NEVER;
      }
    }
  }

 private:
  double &begins(int64_t k, int64_t column) { return begin_[k * columns_ + column]; }
  double &ends(int64_t k, int64_t column) { return end_[k * columns_ + column]; }
  double cell(const double *table, int64_t k, int64_t i) { return table[k * work_.iterations + i]; }
  int64_t cell(const int64_t *table, int64_t k, int64_t i) { return table[k * work_.iterations + i]; }
  void wake(int64_t k, int64_t place, double at_s, int64_t second = 0) {
    place_[k] = place;
    event_s_[k] = at_s;
    events_.push({ns(at_s), second, k});
  }
  double send(int way, int64_t k, int64_t size, double at_s) {
    return carried(slots_, nullptr, 1, way, k, 8.0 * static_cast<double>(size), at_s, slot_[k],
                   links_[way * clients_ + k]);
  }

  bool broadcast() {
    const int64_t copies = rules_.unicast ? clients_ : 1;
    double together_s = start_s_;  // all clients begin when the slowest has the broadcast
    spreads_ = medium_ && rules_.unicast;  // shared links carry the broadcast
    for (int64_t k = 0; k < clients_; ++k) {
      begins(k, SM) = start_s_;
      if (spreads_) {
        ends(k, SM) = NEVER;  // until it ends
        wake(k, RECEIVES, start_s_);
        continue;
      }
      ends(k, SM) = send(BROADCAST, k, copies * work_.sm_bytes[k], start_s_);
      together_s = most(together_s, ends(k, SM));
    }
    if (together_s == NEVER) return false;
    for (int64_t k = 0; !spreads_ && k < clients_; ++k) wake(k, CLIENT, together_s);
    return true;
  }

  void begin_together() {
    double together_s = start_s_;
    spreads_ = false;
    for (int64_t k = 0; k < clients_; ++k) together_s = most(together_s, ends(k, SM));
    last_s_ = most(last_s_, together_s);
    for (int64_t k = 0; k < clients_; ++k) wake(k, CLIENT, together_s);
  }

  // A transfer on shared links has ended.
  void transferred(const Ended &ended) {
    const int64_t k = ended.k, i = iteration_[k];
    if (ended.way == DOWN) {
      ends(k, i < 0 ? int64_t{SM} : 5 * i + SG) = ended.at_s;
      wake(k, CLIENT, ended.at_s);
    } else if (i == work_.iterations_of[k]) {
      ends(k, 5 * i + 1) = ended.at_s;
      last_s_ = most(last_s_, ended.at_s);
    } else {
      ends(k, 5 * i + CA) = ended.at_s;
      wake(k, COMPUTING, ended.at_s);
    }
  }

  // A client's next event; false if the trace ends before the transfer that follows.
  bool happens(int64_t k) {
    const int64_t station = place_[k], i = iteration_[k], all = work_.iterations_of[k];
    if (station == RECEIVES) {
      const int64_t size = i < 0 ? work_.sm_bytes[k] : cell(work_.sg_bytes, k, i);
      begin_transfer(*medium_, DOWN, k, 8.0 * static_cast<double>(size), event_s_[k]);
      return true;
    }
    if (station == UPLINK) {
      const int64_t size = i < all ? cell(work_.ca_bytes, k, i) : work_.cm_bytes[k];
      begin_transfer(*medium_, UP, k, 8.0 * static_cast<double>(size), event_s_[k]);
      return true;
    }
    if (spreads_) {
      ++have_;
      return true;
    }
    if (station == CLIENT) return goes_on(k);
    arrived_s_[station][k] = ends(k, 5 * i + (station == COMPUTING ? CA : S));
    if (station == DOWNLINK) busy_[COMPUTING] = false;
    held_[station][holds_[station]++] = k;
    return true;
  }

  // A client goes on by itself, up to the end of its next upload.
  bool goes_on(int64_t k) {
    double now_s = event_s_[k];
    if (iteration_[k] >= 0) {  // the gradient is there
      const int64_t column = 5 * iteration_[k];
      busy_[DOWNLINK] = false;
      begins(k, column + CB) = now_s = ends(k, column + SG);
      ends(k, column + CB) = now_s = now_s + cell(work_.cb_s, k, iteration_[k]);
    }
    const int64_t i = ++iteration_[k], column = 5 * i;
    const bool is_last = i == work_.iterations_of[k];
    int64_t upload = column + 1, size = work_.cm_bytes[k];
    if (!is_last) {
      begins(k, column + CF) = now_s;
      ends(k, column + CF) = now_s = now_s + cell(work_.cf_s, k, i);
      upload = column + CA;
      size = cell(work_.ca_bytes, k, i);
    }
    begins(k, upload) = now_s;
    if (medium_) {
      ends(k, upload) = NEVER;  // until it ends
      wake(k, UPLINK, now_s, 1);  // once all who begin now are known
      return true;
    }
    ends(k, upload) = now_s = send(UP, k, size, now_s);
    if (now_s == NEVER) return false;
    if (is_last) {
      last_s_ = most(last_s_, now_s);
    } else {
      wake(k, COMPUTING, now_s);
    }
    return true;
  }

  // Move clients from a gate to its queue if it opens; false if the order gives no number.
  bool open_gate(int station) {
    const int64_t count = holds_[station];
    if (!count) return true;
    // Gates do not wait for clients without further iterations.
    if (rules_.gated[station] && count < waits_[iteration_[held_[station][0]]]) return true;
    double opened_s = opens_s_[station];
    for (int64_t place = 0; place < count; ++place) {
      opened_s = most(opened_s, arrived_s_[station][held_[station][place]]);
    }
    for (int64_t place = 0; place < count; ++place) {
      const int64_t k = held_[station][place], i = iteration_[k];
      const double came_s = arrived_s_[station][k];
      int64_t rank = 0;
      ready_s_[station][k] = rules_.gated[station] ? opened_s : came_s;
      if (service_order_) {
        rank = service_order_[(station * clients_ + k) * work_.iterations + i];
      } else if (!rules_.parallel[station] && (rules_.order || rules_.by_lag)) {
        slot_[k] = slot_at(slots_, came_s, slot_[k]);
        rank = rules_.order ? place_of(station, k, i, came_s) : -ns(lag(station, k, i));
        if (rank == NO_RANK) return false;
      }
      queues_[station].push({rank, ns(came_s), k});
    }
    holds_[station] = 0;
    return true;
  }

  bool serve(int station) {
    Heap &queue = queues_[station];
    while (queue.size && !busy_[station]) {
      if (service_order_ && !rules_.parallel[station]) {
        if (queue.entries[1].first != served_[station]) break;
        ++served_[station];
      }
      const int64_t k = queue.pop(), i = iteration_[k], column = 5 * i;
      double now_s = ready_s_[station][k];
      if (!rules_.parallel[station]) {
        busy_[station] = true;
        now_s = most(now_s, free_s_[station]);
      }
      if (station == COMPUTING) {
        begins(k, column + S) = now_s;
        ends(k, column + S) = now_s = now_s + cell(work_.s_s, k, i);
        free_s_[station] = now_s;
        wake(k, DOWNLINK, now_s);
        continue;
      }
      begins(k, column + SG) = now_s;
      const int64_t size = cell(work_.sg_bytes, k, i);
      if (medium_ && rules_.parallel[DOWNLINK]) {
        ends(k, column + SG) = NEVER;
        begin_transfer(*medium_, DOWN, k, 8.0 * static_cast<double>(size), now_s);
        continue;
      }
      ends(k, column + SG) = now_s = send(DOWN, k, size, now_s);
      if (now_s == NEVER) return false;
      free_s_[station] = now_s;
      wake(k, CLIENT, now_s);
    }
    return true;
  }

  // τ_CB(i-1) + τ_CF(i) of a client whose smashed data are in.
  double client_s(int64_t k, int64_t i) {
    return (i ? cell(work_.cb_s, k, i - 1) : work_.backward_ratio * cell(work_.cf_s, k, 0)) +
           cell(work_.cf_s, k, i);
  }

  double step_s(int64_t k, int64_t column) { return ends(k, column) - begins(k, column); }

  double rate(int way, int64_t k) {
    if (slot_[k] >= slots_.slots) return 0.0;
    return slot_bps(slots_, links_[way * clients_ + k], way, k, slot_[k]);
  }

  // A client's lag as it arrives at a station: before the downlink eq. (12); before computing eq.
  // (22), for i = 1 with the rate of the slot in which the smashed data arrived. Infinite where no
  // gradient can be sent.
  double lag(int station, int64_t k, int64_t i) {
    double lag_s = client_s(k, i) + step_s(k, 5 * i + CA);
    if (station == DOWNLINK) return lag_s + cell(work_.s_s, k, i);
    if (i) return lag_s + step_s(k, 5 * (i - 1) + SG);
    if (slot_[k] >= slots_.slots) return lag_s;
    const double bps = rate(DOWN, k);
    return lag_s + (bps > 0.0 ? 8.0 * static_cast<double>(work_.sg_bytes[k * work_.iterations]) / bps
                              : NEVER);
  }

  // A client's place by an order of a package, with estimates of the future at the slot's rates.
  int64_t place_of(int station, int64_t k, int64_t i, double came_s) {
    const int64_t all = work_.iterations_of[k];
    double compute_s = cell(work_.cb_s, k, i);
    double up_bytes = static_cast<double>(work_.cm_bytes[k]);
    double down_bytes = static_cast<double>(cell(work_.sg_bytes, k, i));
    for (int64_t later = i + 1; later < all; ++later) {
      compute_s += cell(work_.cf_s, k, later) + cell(work_.s_s, k, later) + cell(work_.cb_s, k, later);
      up_bytes += static_cast<double>(cell(work_.ca_bytes, k, later));
      down_bytes += static_cast<double>(cell(work_.sg_bytes, k, later));
    }
    return rules_.order(station == DOWNLINK, k + 1, clients_, i + 1, all, came_s - start_s_,
                        client_s(k, i), step_s(k, 5 * i + CA), cell(work_.s_s, k, i),
                        i ? step_s(k, 5 * (i - 1) + SG) : -1.0, compute_s,
                        static_cast<double>(cell(work_.sg_bytes, k, i)), up_bytes, down_bytes,
                        rate(UP, k), rate(DOWN, k));
  }

  const Rules &rules_;
  const Work &work_;
  const Slots &slots_;
  const Link *links_;
  Medium *medium_;
  const double start_s_;
  const int64_t *service_order_;
  const int64_t columns_, clients_;
  double *begin_, *end_;

  char *memory_;
  Heap events_, queues_[2];
  int64_t *slot_, *iteration_;
  int64_t *place_;     // where the client's next event puts it
  int64_t *held_[2];   // clients at each station's gate
  int64_t *waits_;     // clients that do each iteration
  double *arrived_s_[2], *ready_s_[2];  // before and past the gate
  double *event_s_;    // the exact time of each client's event
  int64_t holds_[2] = {0, 0}, served_[2] = {0, 0};
  bool busy_[2] = {false, false};
  double free_s_[2], opens_s_[2];
  double last_s_ = 0.0;
  int64_t medium_slot_ = 0;  // the slot up to which shared links have sent
  bool spreads_ = false;
  int64_t have_ = 0;  // clients that have the broadcast from shared links
};

// Energy of each client [K] in J, eq. (11).
inline void fill_energy(const Work &work, const double *compute_w, const double *uplink_w,
                        const double *begin, const double *end, double *energy) {
  const int64_t columns = 5 * work.iterations + 2;
  for (int64_t k = 0; k < work.clients; ++k) {
    const int64_t all = work.iterations_of[k], last = k * columns + 5 * all + 1;
    double compute_s = 0.0, send_s = end[last] - begin[last];
    for (int64_t i = 0; i < all; ++i) {
      const int64_t upload = k * columns + 5 * i + CA;
      compute_s += work.cf_s[k * work.iterations + i] + work.cb_s[k * work.iterations + i];
      send_s += end[upload] - begin[upload];
    }
    energy[k] = compute_w[k] * compute_s + uplink_w[k] * send_s;
  }
}

}  // namespace engine
