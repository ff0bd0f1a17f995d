// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_STACK_H
#define RADIO_STACK_H

#include "air.h"
#include "counts.h"
#include "log.h"

#include "ns3/ipv4-address.h"
#include "ns3/packet.h"
#include "ns3/tag.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace radio
{

/// What a packet of IP carries through ns-3, whatever that adds, cuts and joins: where it belongs.
struct Mark : public ns3::Tag
{
    static constexpr std::size_t ETHERNET = 14; // bytes

    uint64_t serial{0}; // of its direction and UAV, from 1; 0: there is no mark
    uint16_t uav{0};
    std::array<uint8_t, ETHERNET> header{}; // of the frame in which it came

    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override;
    uint32_t GetSerializedSize() const override;
    void Serialize(ns3::TagBuffer buffer) const override;
    void Deserialize(ns3::TagBuffer buffer) override;
    void Print(std::ostream& stream) const override;

    /// The mark of a packet.
    static Mark Of(ns3::Ptr<const ns3::Packet> packet);
};

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

    /// Hand a packet of IPv4 or IPv6 to the sending end; it gets a mark unless it has one.
    void Send(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet);

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
    /// Where this access notes what happens; null: nowhere.
    Log* log{nullptr};

  protected:
    virtual void Carry(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet) = 0;

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

/// Protocol numbers of packets of IP.
inline constexpr uint16_t IPV4 = 0x0800;
inline constexpr uint16_t IPV6 = 0x86dd;

/// ns-3's nodes hand packets of any protocol to a handler that is registered for this one.
inline constexpr uint16_t ANY_PROTOCOL = 0;

/// Protocol number of a packet of IP by its version; 0 if it is none.
uint16_t ProtocolOf(ns3::Ptr<const ns3::Packet> packet);

/// Address of a UAV by its number, in 10.0.0.0/8; the base station has number K.
ns3::Ipv4Address AddressOf(std::size_t uav);

/// Simulate until this time, ns.
void RunUntil(int64_t end);

/// When slot 0 starts, ns: at a frame of LTE, at least `settle` seconds from now.
int64_t StartOfSlots(double settle);

} // namespace radio

#endif
