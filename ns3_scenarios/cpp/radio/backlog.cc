// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "backlog.h"

#include "ns3/ipv4-header.h"
#include "ns3/udp-header.h"

namespace radio
{

namespace
{
constexpr uint16_t PORT = 5001;
constexpr uint8_t UDP = 17;
constexpr uint8_t TTL = 64;

ns3::Ptr<ns3::Packet>
Datagram(ns3::Ipv4Address from, ns3::Ipv4Address to, uint32_t size)
{
    ns3::UdpHeader udp;
    udp.SetSourcePort(PORT);
    udp.SetDestinationPort(PORT);
    ns3::Ipv4Header ip;
    ip.SetSource(from);
    ip.SetDestination(to);
    ip.SetProtocol(UDP);
    ip.SetTtl(TTL);
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

Backlog::Backlog(Stack& stack, std::size_t uavs, uint32_t datagram, int64_t window)
    : m_stack(stack),
      m_uavs(uavs),
      m_datagram(datagram),
      m_window(window)
{
}

void
Backlog::Start()
{
    m_stack.drained = [this](Direction direction, std::size_t uav) { Fill(direction, uav); };
    for (std::size_t uav = 0; uav < m_uavs; ++uav)
    {
        Fill(UP, uav);
        Fill(DOWN, uav);
    }
}

void
Backlog::Fill(Direction direction, std::size_t uav)
{
    auto from = AddressOf(direction == UP ? uav : m_uavs);
    auto to = AddressOf(direction == UP ? m_uavs : uav);
    while (m_stack.Held(direction, uav) < m_window)
    {
        m_stack.Send(direction, uav, Datagram(from, to, m_datagram));
    }
}

} // namespace radio
