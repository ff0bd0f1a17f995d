// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_LIVE_H
#define RADIO_LIVE_H

#include "air.h"
#include "calls.h"
#include "log.h"
#include "stack.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace radio
{

struct LiveSettings
{
    std::vector<int> uavTaps;     // open files of the UAVs' devices, K
    std::vector<int> stationTaps; // and of the base station's, K
    int64_t window;               // bytes that wait at a sending end
    int64_t step;                 // ns; packets enter and leave ns-3 at its multiples
    double dilation;              // s of the kernel's clock per simulated s
    std::size_t steps;            // gains per slot
    bool isPlaced;                // whether slots come with positions
    std::size_t mtu;              // of the devices, bytes
    bool isOneEntry;              // whether a step is one entry into the kernel: see Calls
};

/// The loop that couples ns-3 to the kernel's clock and to the devices of nodes.
///
/// Time advances by whole steps. Within a step, nothing enters ns-3, so it computes the step ahead
/// of the clock; what leaves ns-3 meanwhile is handed to the kernel when the step is over. Devices
/// are read only while the sending end has less than a window waiting, so that queues form in the
/// kernel.
///
/// Orders come as lines on stdin, some with numbers after them:
/// `channel FIRST COUNT`: float64 [C, K, steps] for each direction and, if placed, [K, 3], per slot;
/// `epoch START_NS START_S SLOT_S`: a clock, whose slots are those of the channel; `pause`;
/// `counts`, answered by `counts ROWS` and int64 [K, 2, FIELDS], then [ROWS, 4];
/// `watch`, until `pause`; and `samples`, answered by `samples ROWS EXHAUSTED` and int64 [ROWS, 4 + 10 K].
class Live
{
  public:
    Live(Stack& stack, Air& air, const LiveSettings& settings, Log& log);

    /// Wait until the moment from which ns-3 is coupled to the kernel's clock.
    void Start();

    /// Couple until stdin ends.
    void Run();

  private:
    static constexpr std::size_t FIELDS = 8;

    /// One direction of one UAV's link.
    struct Way
    {
        int from; // open file of the device whose frames enter
        int to;
        std::deque<std::pair<uint64_t, int64_t>> inside; // number and time of packets, ns
        std::set<uint64_t> passed; // numbers of those that were overtaken
        uint64_t entered{0};
        uint64_t enteredBytes{0}; // of frames
        uint64_t left{0};
        uint64_t leftBytes{0}; // of IP
        uint64_t lost{0};
        uint64_t refused{0}; // frames that are no packets of IP, and what a device did not take
        std::size_t expected{1}; // frames for which the device is asked in a step
        int quietSteps{0};       // in which it had fewer
        bool isBusy{false};

        /// Count the first packet inside as lost, unless it comes later.
        void Lose();

        /// Note how many frames the device had in this step.
        void Expect(std::size_t found);
    };

    /// A frame that has left ns-3.
    struct Frame
    {
        Way* way;
        std::vector<uint8_t> bytes;
    };

    /// Reads of a device, among the calls of a step.
    struct Reads
    {
        Direction direction;
        std::size_t uav;
        std::size_t first; // its number
        std::size_t count;
    };

    struct Clock
    {
        bool isRunning{false};
        int64_t start{0}; // ns of the kernel's clock
        double startTime{0}; // s
        double slot{1};      // s
    };

    int64_t Boundary(int64_t slot) const; // ns of the kernel's clock
    int64_t Simulated(int64_t at) const;  // ns of ns-3's clock

    void Step(int64_t due);
    void EnterSlots(int64_t now);
    void BeginSlot(int64_t slot, int64_t boundary);
    void NoteServed();
    void Sample(int64_t boundary);
    void Exchange(int64_t due);
    std::size_t Room(Direction direction, std::size_t uav) const; // frames that a sending end takes
    uint8_t* Plan(const Reads& reads, uint8_t* frame); // returns where the next one may be
    void EnterFrames();
    std::size_t EnterFrames(const Reads& reads, const std::vector<int>& sizes, const uint8_t* frame);
    void Enter(Direction direction, std::size_t uav, const uint8_t* frame, std::size_t size);
    void Arrived(Direction direction, std::size_t uav, ns3::Ptr<const ns3::Packet> packet);
    void NoteBacklogs();
    bool ReadOrders();
    std::size_t Obey(); // bytes of the first order that is complete
    void AnswerCounts();
    void AnswerSamples();

    Stack& m_stack;
    Air& m_air;
    const LiveSettings m_settings;
    Log& m_log;
    const std::size_t m_uavs;
    std::vector<Way> m_ways[2];
    std::vector<Frame> m_frames;
    Calls m_calls;
    std::vector<Reads> m_reads;
    std::vector<int> m_sizes;          // of what the calls have read, by number
    std::vector<uint8_t> m_read;       // frames, one every MTU and headers
    std::vector<uint8_t> m_more;
    std::string m_input;               // what stdin may bring in a step
    std::string m_orders; // what stdin has brought and was not obeyed yet
    std::map<int64_t, std::vector<double>> m_channel;
    Clock m_clock;
    int64_t m_slot{0};
    int64_t m_zero{0}; // the kernel's clock at m_simulatedZero
    int64_t m_simulatedZero{0};
    int64_t m_now{0}; // the kernel's clock at the end of the last step
    int64_t m_worst{0}; // largest lateness of a step since the last slot began, ns
    int64_t m_exhausted{0};
    bool m_isWatched{false};
    std::vector<int64_t> m_slots;
    std::vector<int64_t> m_samples;
};

} // namespace radio

#endif
