// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef IMPAIRED_CHANNEL_H
#define IMPAIRED_CHANNEL_H

#include "../tcp/impairment.h"

#include "ns3/net-device.h"
#include "ns3/node.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <array>
#include <cstdint>

/// A point-to-point channel with separate delay and loss of frames for each direction.
class ImpairedChannel : public ns3::PointToPointChannel
{
  public:
    /// Set the impairments of the frames of both devices, in the order of attachment.
    void Impair(const Impairment& first, const Impairment& second)
    {
        m_ways = {Way{ImpairedWay(first)}, Way{ImpairedWay(second)}};
    }

    /// Change delay and jitter in s, and the loss probability in the good state, of the frames of
    /// the first or the second device.
    void Change(std::size_t way, double delay, double jitter, double loss)
    {
        m_ways.at(way).impaired.Change(delay, jitter, loss);
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
        if (m_loses && way.impaired.Loses())
        {
            ++way.lost;
            return true;
        }
        const auto sent = ns3::Simulator::Now() + sending;
        const auto due = sent + ns3::Seconds(way.impaired.Delay());
        way.last = way.impaired.Reorders() ? due : std::max(way.last, due);
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
        ImpairedWay impaired;
        uint64_t lost{0};
        ns3::Time last{0};
    };

    std::array<Way, 2> m_ways;
    bool m_loses{false};
};

#endif
