// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "live.h"

#include "exchange.h"

#include "ns3/nstime.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/prctl.h>
#include <unistd.h>

namespace radio
{

namespace
{
/// ns-3 starts at a multiple of it: the period of LTE's sounding, and a multiple of the ticks at which
/// clocks begin. What is played then does not depend on how long it took to get there.
constexpr int64_t TICK = 320'000'000; // ns
/// Bytes that a frame has beside the MTU, at most, and that a packet takes at a sending end beside it.
constexpr std::size_t HEADERS = 64;
/// Packets that were overtaken and may still come.
constexpr std::size_t MOST_PASSED = 4096;
/// Frames that a device is asked for once it had as many as it was asked for.
constexpr std::size_t MORE = 16;
/// Steps in which a device has fewer frames than it is asked for until it is asked for fewer.
constexpr int QUIET_STEPS = 16;
/// So much of stdin is read per step, so that a long channel does not delay packets.
constexpr std::size_t MOST_ORDERS = 1 << 18;
/// Slots before the present one whose channel is kept: a clock may start in any of them.
constexpr int64_t KEPT_SLOTS = 1;
/// A packet that is inside while nothing waits at the sending end for so long was lost.
constexpr int64_t LOST_AFTER = 500'000'000; // ns of simulated time
/// A ratio of -300 dB to 300 dB in the log, in steps of 0.01 dB.
constexpr double SINR_OFFSET = 300;
constexpr double SINR_STEPS = 100;
} // namespace

void
Live::Way::Lose()
{
    passed.insert(inside.front().first);
    inside.pop_front();
    ++lost;
    if (passed.size() > MOST_PASSED)
    {
        passed.erase(passed.begin());
    }
}

void
Live::Way::Expect(std::size_t found)
{
    const std::size_t wanted = found + 1; // The last call finds that there are no more.
    if (wanted < expected && ++quietSteps < QUIET_STEPS)
    {
        return;
    }
    expected = std::max(wanted, expected - 1);
    quietSteps = 0;
}

Live::Live(Stack& stack, Air& air, const LiveSettings& settings, Log& log)
    : m_stack(stack),
      m_air(air),
      m_settings(settings),
      m_log(log),
      m_uavs(settings.uavTaps.size()),
      m_calls(settings.isOneEntry),
      m_input(1 << 16, '\0')
{
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        const int uav = settings.uavTaps[k];
        const int station = settings.stationTaps[k];
        m_ways[UP].push_back({uav, station});
        m_ways[DOWN].push_back({station, uav});
        fcntl(uav, F_SETFL, O_NONBLOCK);
        fcntl(station, F_SETFL, O_NONBLOCK);
    }
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    stack.arrived = [this](Direction direction,
                           std::size_t uav,
                           ns3::Ptr<const ns3::Packet> packet) { Arrived(direction, uav, packet); };
    prctl(PR_SET_TIMERSLACK, 1);
}

int64_t
Live::Boundary(int64_t slot) const
{
    const double after = static_cast<double>(slot) * m_clock.slot - m_clock.startTime;
    return m_clock.start + std::llround(after * m_settings.dilation * 1e9);
}

int64_t
Live::Simulated(int64_t at) const
{
    const double after = static_cast<double>(at - m_zero);
    return m_simulatedZero + std::llround(after / m_settings.dilation);
}

void
Live::Start()
{
    m_simulatedZero = ns3::Simulator::Now().GetNanoSeconds();
    m_zero = (KernelClock() / TICK + 1) * TICK;
    m_now = m_zero;
    m_log.clock = [this] {
        const auto simulated = ns3::Simulator::Now().GetNanoSeconds() - m_simulatedZero;
        return m_zero + std::llround(static_cast<double>(simulated) * m_settings.dilation);
    };
    m_calls.Make(m_zero);
}

void
Live::Run()
{
    Exchange(m_zero);
    for (int64_t n = 1; ReadOrders(); ++n)
    {
        const auto simulated = static_cast<double>(n * m_settings.step);
        Step(m_zero + std::llround(simulated * m_settings.dilation));
    }
    m_log.Flush();
}

void
Live::Step(int64_t due)
{
    EnterSlots(m_now);
    EnterFrames();
    NoteBacklogs();
    ns3::Simulator::Stop(ns3::NanoSeconds(Simulated(due)) - ns3::Simulator::Now());
    ns3::Simulator::Run();
    Exchange(due);
}

void
Live::EnterSlots(int64_t now)
{
    while (m_clock.isRunning && Boundary(m_slot + 1) <= now)
    {
        ++m_slot;
        BeginSlot(m_slot, Boundary(m_slot));
    }
}

void
Live::BeginSlot(int64_t slot, int64_t boundary)
{
    const auto found = m_channel.find(slot);
    if (found == m_channel.end())
    {
        ++m_exhausted; // The last channel holds.
    }
    else
    {
        const auto& values = found->second;
        const auto size = static_cast<std::ptrdiff_t>(m_air.Cells() * m_uavs * m_settings.steps);
        m_air.Gains(Simulated(boundary),
                    Simulated(Boundary(slot + 1)),
                    {values.begin(), values.begin() + size},
                    {values.begin() + size, values.begin() + 2 * size});
        if (m_settings.isPlaced)
        {
            m_air.Positions({values.begin() + 2 * size, values.end()});
        }
        m_channel.erase(m_channel.begin(), m_channel.lower_bound(slot - KEPT_SLOTS));
    }
    NoteServed();
    const int64_t row[] = {slot, boundary, boundary + m_worst, 1};
    m_slots.insert(m_slots.end(), std::begin(row), std::end(row));
    if (m_isWatched)
    {
        m_samples.insert(m_samples.end(), std::begin(row), std::end(row));
        Sample(boundary);
    }
    m_worst = 0;
}

void
Live::NoteServed()
{
    std::vector<double> report;
    m_stack.Report(report);
    for (std::size_t k = 0; 2 * k < report.size(); ++k)
    {
        const double sinr = report[m_uavs + k];
        const double noted = (sinr + SINR_OFFSET) * SINR_STEPS;
        m_log.Note(Log::SERVED,
                   DOWN,
                   k,
                   std::isnan(sinr) ? UINT16_MAX : static_cast<uint32_t>(std::lround(noted)),
                   static_cast<uint32_t>(report[k]));
    }
}

void
Live::Sample(int64_t boundary)
{
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        for (const auto direction : {UP, DOWN})
        {
            const Way& way = m_ways[direction][k];
            for (const auto value : {boundary,
                                     static_cast<int64_t>(way.leftBytes),
                                     m_stack.Held(direction, k),
                                     int64_t{0},
                                     int64_t{0}})
            {
                m_samples.push_back(value);
            }
        }
    }
}

void
Live::Exchange(int64_t due)
{
    for (const Frame& frame : m_frames)
    {
        m_calls.Write(frame.way->to, frame.bytes.data(), frame.bytes.size());
    }
    m_reads.clear();
    std::size_t calls = m_frames.size();
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        for (const auto direction : {UP, DOWN})
        {
            const auto count = std::min(Room(direction, k), m_ways[direction][k].expected);
            m_reads.push_back({direction, k, calls, count});
            calls += count;
        }
    }
    m_read.resize(
        std::max(m_read.size(), (calls - m_frames.size()) * (m_settings.mtu + HEADERS)));
    uint8_t* at = m_read.data();
    for (const Reads& reads : m_reads)
    {
        at = Plan(reads, at);
    }
    m_calls.Read(STDIN_FILENO, reinterpret_cast<uint8_t*>(m_input.data()), m_input.size());
    m_sizes = m_calls.Make(due);
    m_worst = std::max(m_worst, m_calls.WokenAt() - due);
    m_now = due;
    for (std::size_t i = 0; i < m_frames.size(); ++i)
    {
        const auto& [way, bytes] = m_frames[i];
        if (m_sizes[i] == static_cast<int>(bytes.size()))
        {
            ++way->left;
            way->leftBytes += bytes.size() - Mark::ETHERNET;
        }
        else
        {
            ++way->refused;
        }
    }
    m_frames.clear();
}

uint8_t*
Live::Plan(const Reads& reads, uint8_t* frame)
{
    for (std::size_t i = 0; i < reads.count; ++i)
    {
        m_calls.Read(m_ways[reads.direction][reads.uav].from, frame, m_settings.mtu + HEADERS);
        frame += m_settings.mtu + HEADERS;
    }
    return frame;
}

std::size_t
Live::Room(Direction direction, std::size_t uav) const
{
    const int64_t left =
        m_stack.IsOpen(direction, uav) ? m_settings.window - m_stack.Held(direction, uav) : 0;
    const auto most = static_cast<int64_t>(m_settings.mtu + HEADERS);
    return left > 0 ? static_cast<std::size_t>((left + most - 1) / most) : 0;
}

void
Live::EnterFrames()
{
    const uint8_t* frame = m_read.data();
    for (const Reads& reads : m_reads)
    {
        std::size_t found = EnterFrames(reads, m_sizes, frame);
        frame += reads.count * (m_settings.mtu + HEADERS);
        std::size_t all = found;
        // The device may have more, as long as the sending end takes them.
        for (std::size_t asked = reads.count; found == asked;)
        {
            asked = std::min(Room(reads.direction, reads.uav), MORE);
            if (asked == 0)
            {
                break;
            }
            const Reads more{reads.direction, reads.uav, 0, asked};
            m_more.resize(MORE * (m_settings.mtu + HEADERS));
            Plan(more, m_more.data());
            found = EnterFrames(more, m_calls.Make(), m_more.data());
            all += found;
        }
        m_ways[reads.direction][reads.uav].Expect(all);
    }
}

std::size_t
Live::EnterFrames(const Reads& reads, const std::vector<int>& sizes, const uint8_t* frame)
{
    std::size_t found = 0;
    for (std::size_t i = reads.first; i < reads.first + reads.count; ++i)
    {
        const int size = sizes[i];
        if (size > 0)
        {
            ++found;
            Enter(reads.direction, reads.uav, frame, static_cast<std::size_t>(size));
        }
        else if (size < 0 && size != -EAGAIN && size != -EINTR && size != -EIO)
        {
            throw std::runtime_error(std::string("device: ") + std::strerror(-size));
        }
        frame += m_settings.mtu + HEADERS;
    }
    return found;
}

void
Live::Enter(Direction direction, std::size_t uav, const uint8_t* frame, std::size_t size)
{
    Way& way = m_ways[direction][uav];
    ++way.entered;
    way.enteredBytes += size;
    auto packet = ns3::Create<ns3::Packet>(
        frame + Mark::ETHERNET,
        static_cast<uint32_t>(size > Mark::ETHERNET ? size - Mark::ETHERNET : 0));
    if (packet->GetSize() == 0 || ProtocolOf(packet) == 0)
    {
        ++way.refused;
        return;
    }
    Mark mark;
    mark.serial = way.entered;
    mark.uav = static_cast<uint16_t>(uav);
    std::copy_n(frame, Mark::ETHERNET, mark.header.begin());
    packet->AddByteTag(mark);
    way.inside.emplace_back(mark.serial, m_now);
    m_stack.Send(direction, uav, packet);
}

void
Live::Arrived(Direction direction, std::size_t uav, ns3::Ptr<const ns3::Packet> packet)
{
    const Mark mark = Mark::Of(packet);
    Way& way = m_ways[direction][uav];
    // Packets keep their order, but in a handover; so those before it count as lost unless they
    // come later.
    while (!way.inside.empty() && way.inside.front().first < mark.serial)
    {
        way.Lose();
    }
    if (!way.inside.empty() && way.inside.front().first == mark.serial)
    {
        way.inside.pop_front();
    }
    else if (way.passed.erase(mark.serial))
    {
        --way.lost;
    }
    else
    {
        return; // It is none of those that entered, or came twice.
    }
    std::vector<uint8_t> bytes(Mark::ETHERNET + packet->GetSize());
    std::copy(mark.header.begin(), mark.header.end(), bytes.begin());
    packet->CopyData(bytes.data() + Mark::ETHERNET, packet->GetSize());
    m_frames.push_back({&way, std::move(bytes)});
}

void
Live::NoteBacklogs()
{
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        for (const auto direction : {UP, DOWN})
        {
            Way& way = m_ways[direction][k];
            const bool isBusy = m_stack.IsOpen(direction, k) && m_stack.Held(direction, k) > 0;
            if (isBusy != way.isBusy)
            {
                way.isBusy = isBusy;
                m_log.Note(isBusy ? Log::BUSY : Log::IDLE, direction, k);
            }
        }
    }
}

bool
Live::ReadOrders()
{
    const std::size_t had = m_orders.size();
    for (ssize_t size = m_sizes.back(); size >= 0;)
    {
        if (size == 0)
        {
            return false;
        }
        m_orders.append(m_input.data(), static_cast<std::size_t>(size));
        if (static_cast<std::size_t>(size) < m_input.size() || m_orders.size() >= had + MOST_ORDERS)
        {
            break;
        }
        size = read(STDIN_FILENO, m_input.data(), m_input.size());
    }
    while (const std::size_t size = Obey())
    {
        m_orders.erase(0, size);
    }
    return true;
}

std::size_t
Live::Obey()
{
    const std::size_t end = m_orders.find('\n');
    if (end == std::string::npos)
    {
        return 0;
    }
    std::istringstream line(m_orders.substr(0, end));
    std::string order;
    line >> order;
    if (order == "channel")
    {
        int64_t first = 0;
        std::size_t count = 0;
        line >> first >> count;
        const std::size_t gains = 2 * m_air.Cells() * m_settings.steps;
        const std::size_t per = m_uavs * (gains + (m_settings.isPlaced ? 3 : 0));
        const std::size_t size = end + 1 + count * per * sizeof(double);
        if (m_orders.size() < size)
        {
            return 0;
        }
        m_channel.erase(m_channel.lower_bound(first), m_channel.end());
        for (std::size_t i = 0; i < count; ++i)
        {
            std::vector<double> values(per);
            std::memcpy(values.data(),
                        m_orders.data() + end + 1 + i * per * sizeof(double),
                        per * sizeof(double));
            m_channel[first + static_cast<int64_t>(i)] = std::move(values);
        }
        return size;
    }
    if (order == "epoch")
    {
        m_clock.isRunning = true;
        line >> m_clock.start >> m_clock.startTime >> m_clock.slot;
        m_slot = static_cast<int64_t>(std::floor(m_clock.startTime / m_clock.slot + 1e-9));
        m_worst = 0; // The lateness before a clock starts does not belong to it.
        BeginSlot(m_slot, Boundary(m_slot));
    }
    else if (order == "pause")
    {
        m_clock.isRunning = false;
        m_isWatched = false;
    }
    else if (order == "counts")
    {
        AnswerCounts();
    }
    else if (order == "watch")
    {
        m_isWatched = true;
    }
    else if (order == "samples")
    {
        AnswerSamples();
    }
    return end + 1;
}

void
Live::AnswerCounts()
{
    std::vector<int64_t> values;
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        for (const auto direction : {UP, DOWN})
        {
            Way& way = m_ways[direction][k];
            const int64_t held = m_stack.IsOpen(direction, k) ? m_stack.Held(direction, k) : 0;
            while (held == 0 && !way.inside.empty() &&
                   Simulated(way.inside.front().second) < Simulated(m_now) - LOST_AFTER)
            {
                way.Lose();
            }
            const std::array<uint64_t, FIELDS> fields = {way.enteredBytes,
                                                         way.entered,
                                                         way.leftBytes,
                                                         way.left,
                                                         way.lost,
                                                         way.refused,
                                                         way.inside.size(),
                                                         static_cast<uint64_t>(held)};
            values.insert(values.end(), fields.begin(), fields.end());
        }
    }
    m_log.Flush();
    WriteLine("counts " + std::to_string(m_slots.size() / 4) + ' ' + std::to_string(m_exhausted));
    values.insert(values.end(), m_slots.begin(), m_slots.end());
    WriteIntegers(values);
    m_slots.clear();
}

void
Live::AnswerSamples()
{
    const std::size_t row = 4 + 10 * m_uavs;
    WriteLine("samples " + std::to_string(m_samples.size() / row) + ' ' +
              std::to_string(m_exhausted));
    WriteIntegers(m_samples);
    m_samples.clear();
}

} // namespace radio
