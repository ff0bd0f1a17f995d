// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_STACK_H
#define RADIO_STACK_H

#include "air.h"
#include "counts.h"

#include "ns3/ipv4-address.h"
#include "ns3/packet.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace radio
{

/// A radio access: packets of IP go in at one end of a UAV's link and come out at the other.
///
/// ns-3's own IP has no part in it: what sends and receives them is either in this program, or
/// outside of ns-3.
class Stack
{
  public:
    /// @param uavs K, how many UAVs there are.
    explicit Stack(std::size_t uavs)
        : m_uavs(uavs)
    {
    }

    virtual ~Stack() = default;

    /// Connect all UAVs, which takes simulated time, at most `limit` (s).
    /// @return The numbers of those that were not connected in time.
    virtual std::vector<std::size_t> Attach(double limit) = 0;

    /// Whether a sending end takes packets: not if it has no connection at present.
    virtual bool IsOpen(Direction direction, std::size_t uav) const = 0;

    /// Hand a packet of IP to the sending end.
    virtual void Send(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet) = 0;

    /// Bytes that wait at the sending end.
    virtual int64_t Held(Direction direction, std::size_t uav) const = 0;

    /// What is known of why a UAV's packets of a direction did not arrive, in words.
    virtual std::string Why(Direction direction, std::size_t uav) const = 0;

    /// Append what this access itself knows of the slot that ends now; at first nothing.
    virtual void Report(std::vector<double>&)
    {
    }

    /// Called when a packet has come out.
    std::function<void(Direction, std::size_t uav, ns3::Ptr<const ns3::Packet>)> arrived;
    /// Called when there may be less at a sending end than before.
    std::function<void(Direction, std::size_t uav)> drained;
    /// What this access itself counts; null while nothing is counted.
    Counts* counts{nullptr};

  protected:
    /// Count a packet that has come out, and pass it on; not if no UAV has that number.
    void ComesOut(Direction direction, std::size_t uav, ns3::Ptr<const ns3::Packet> packet)
    {
        if (uav >= m_uavs)
        {
            return;
        }
        if (counts)
        {
            (*counts)(direction, uav).bytes += packet->GetSize();
        }
        if (arrived)
        {
            arrived(direction, uav, packet);
        }
    }

  private:
    const std::size_t m_uavs;
};

/// Protocol number of packets of IP.
inline constexpr uint16_t IPV4 = 0x0800;

/// Address of a UAV by its number, in 10.0.0.0/8; the base station has number K.
ns3::Ipv4Address AddressOf(std::size_t uav);

} // namespace radio

#endif
