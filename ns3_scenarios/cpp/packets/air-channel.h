// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef AIR_CHANNEL_H
#define AIR_CHANNEL_H

#include "ns3/net-device.h"
#include "ns3/node.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

extern "C" struct Impairment
{
    double delay;     // s
    double jitter;    // standard deviation of the delay, s; normal, cut at 0
    double goodToBad; // Gilbert-Elliott, a step a frame: p
    double badToGood; // r
    double lossGood;  // 1 - k
    double lossBad;   // 1 - h
    uint64_t seed;
    int32_t reorders; // 0 or 1: frames wait for those before them, or overtake them
};

/// A point-to-point channel that delays and loses the frames of each direction by itself.
class AirChannel : public ns3::PointToPointChannel
{
  public:
    /// What happens to frames of the devices, in the order in which they were attached.
    void Impair(const Impairment& first, const Impairment& second)
    {
        m_ways = {Way{first, std::mt19937_64(first.seed)}, Way{second, std::mt19937_64(second.seed)}};
    }

    /// From now on, frames of the first or the second device have this delay and jitter, in s, and
    /// this probability to be lost in the good state.
    void Change(std::size_t way, double delay, double jitter, double loss)
    {
        auto& air = m_ways.at(way).air;
        air.delay = delay;
        air.jitter = jitter;
        air.lossGood = loss;
    }

    /// Lose frames from now on; before, all arrive.
    void LoseFrames()
    {
        m_loses = true;
    }

    /// Frames lost of what the first or the second device has sent.
    uint64_t Lost(std::size_t way) const
    {
        return m_ways.at(way).lost;
    }

    bool TransmitStart(ns3::Ptr<const ns3::Packet> frame,
                       ns3::Ptr<ns3::PointToPointNetDevice> source,
                       ns3::Time sending) override
    {
        const std::size_t index = source == GetSource(0) ? 0 : 1;
        Way& way = m_ways[index];
        if (m_loses && way.Loses())
        {
            ++way.lost;
            return true;
        }
        const auto sent = ns3::Simulator::Now() + sending;
        const auto due = sent + ns3::Seconds(way.Delay());
        way.last = way.air.reorders ? due : std::max(way.last, due);
        auto destination = GetDestination(index);
        ns3::Simulator::ScheduleWithContext(destination->GetNode()->GetId(),
                                            way.last - ns3::Simulator::Now(),
                                            &ns3::PointToPointNetDevice::Receive,
                                            destination,
                                            frame->Copy());
        return true;
    }

  private:
    struct Way
    {
        Impairment air{};
        std::mt19937_64 random;
        bool bad{false};
        uint64_t lost{0};
        ns3::Time last{0};

        bool Chance(double probability)
        {
            return probability > 0 && std::uniform_real_distribution<>()(random) < probability;
        }

        bool Loses()
        {
            const bool now = bad;
            if (air.goodToBad > 0 && Chance(bad ? air.badToGood : air.goodToBad))
            {
                bad = !bad;
            }
            return Chance(now ? air.lossBad : air.lossGood);
        }

        double Delay()
        {
            if (air.jitter == 0)
            {
                return air.delay;
            }
            return std::max(0.0, std::normal_distribution<>(air.delay, air.jitter)(random));
        }
    };

    std::array<Way, 2> m_ways;
    bool m_loses{false};
};

#endif
