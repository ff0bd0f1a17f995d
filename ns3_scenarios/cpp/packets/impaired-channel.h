// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef IMPAIRED_CHANNEL_H
#define IMPAIRED_CHANNEL_H

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
    double jitter;    // standard deviation of the delay, s; normal, clipped at 0
    double goodToBad; // Gilbert-Elliott with one step per frame: p
    double badToGood; // r
    double lossGood;  // 1 - k
    double lossBad;   // 1 - h
    uint64_t seed;
    int32_t reorders; // 1: frames may overtake earlier ones; 0: they stay in order
};

/// A point-to-point channel with separate delay and loss of frames for each direction.
class ImpairedChannel : public ns3::PointToPointChannel
{
  public:
    /// Set the impairments of the frames of both devices, in the order of attachment.
    void Impair(const Impairment& first, const Impairment& second)
    {
        m_ways = {Way{first, std::mt19937_64(first.seed)}, Way{second, std::mt19937_64(second.seed)}};
    }

    /// Change delay and jitter in s, and the loss probability in the good state, of the frames of
    /// the first or the second device.
    void Change(std::size_t way, double delay, double jitter, double loss)
    {
        auto& impairment = m_ways.at(way).impairment;
        impairment.delay = delay;
        impairment.jitter = jitter;
        impairment.lossGood = loss;
    }

    /// Start to lose frames; before, all arrive.
    void LoseFrames()
    {
        m_loses = true;
    }

    /// Number of lost frames of the first or the second device.
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
        way.last = way.impairment.reorders ? due : std::max(way.last, due);
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
        Impairment impairment{};
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
            if (impairment.goodToBad > 0 &&
                Chance(bad ? impairment.badToGood : impairment.goodToBad))
            {
                bad = !bad;
            }
            return Chance(now ? impairment.lossBad : impairment.lossGood);
        }

        double Delay()
        {
            if (impairment.jitter == 0)
            {
                return impairment.delay;
            }
            std::normal_distribution<> delay(impairment.delay, impairment.jitter);
            return std::max(0.0, delay(random));
        }
    };

    std::array<Way, 2> m_ways;
    bool m_loses{false};
};

#endif
