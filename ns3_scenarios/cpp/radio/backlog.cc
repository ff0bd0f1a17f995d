// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "backlog.h"

#include "ns3/ipv4-header.h"
#include "ns3/udp-header.h"

#include <utility>

namespace radio
{

namespace
{
constexpr uint16_t PORT = 5001;
constexpr uint8_t UDP = 17;
constexpr uint8_t TTL = 64;

ns3::Ptr<ns3::Packet>
Datagram(ns3::Ipv4Address from, ns3::Ipv4Address to, uint32_t size, uint8_t dscp)
{
    ns3::UdpHeader udp;
    udp.SetSourcePort(PORT);
    udp.SetDestinationPort(PORT);
    ns3::Ipv4Header ip;
    ip.SetSource(from);
    ip.SetDestination(to);
    ip.SetProtocol(UDP);
    ip.SetTtl(TTL);
    ip.SetTos(dscp << 2);
    auto packet = ns3::Create<ns3::Packet>(size - ip.GetSerializedSize() - udp.GetSerializedSize());
    packet->AddHeader(udp);
    ip.SetPayloadSize(packet->GetSize());
    packet->AddHeader(ip);
    return packet;
}
} // namespace

ns3::Ipv4Address
AddressOf(std::size_t uav)
{
    return ns3::Ipv4Address(0x0a000001 + static_cast<uint32_t>(uav));
}

Backlog::Backlog(Stack& stack,
                 std::size_t uavs,
                 uint32_t datagram,
                 int64_t window,
                 std::vector<double> dscp,
                 const std::string& way)
    : m_stack(stack),
      m_uavs(uavs),
      m_datagram(datagram),
      m_window(window),
      m_dscp(std::move(dscp)),
      m_sends{way != "down", way != "up"}
{
}

void
Backlog::Start()
{
    m_stack.drained = [this](Direction direction, std::size_t uav) { Fill(direction, uav); };
    // Packet by packet: an access point sends its oldest packets first, for any UAV.
    for (bool isMore = true; isMore;)
    {
        isMore = false;
        for (std::size_t uav = 0; uav < m_uavs; ++uav)
        {
            isMore |= Add(UP, uav);
            isMore |= Add(DOWN, uav);
        }
    }
}

void
Backlog::Fill(Direction direction, std::size_t uav)
{
    while (Add(direction, uav))
    {
    }
}

bool
Backlog::Add(Direction direction, std::size_t uav)
{
    const int64_t held = m_stack.Held(direction, uav);
    if (!m_sends[direction] || !m_stack.IsOpen(direction, uav) || held >= m_window)
    {
        return false;
    }
    const auto from = AddressOf(direction == UP ? uav : m_uavs);
    const auto to = AddressOf(direction == UP ? m_uavs : uav);
    const auto dscp = static_cast<uint8_t>(direction == DOWN ? m_dscp.at(uav) : 0);
    m_stack.Send(direction, uav, Datagram(from, to, m_datagram, dscp));
    return m_stack.Held(direction, uav) > held; // not if it was dropped
}

} // namespace radio
