// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_EPC_H
#define RADIO_EPC_H

#include "stack.h"

#include "ns3/ipv4.h"
#include "ns3/net-device.h"
#include "ns3/node.h"
#include "ns3/virtual-net-device.h"

#include <functional>
#include <utility>

namespace radio
{

/// What LTE and NR have in common: UEs and the gateway of an EPC. Packets of IP are handed over
/// below ns-3's IP, whose interfaces stay down: it must not answer them.

using Receiver = std::function<void(ns3::Ptr<const ns3::Packet>)>;

/// Call `receive` with each packet that a device receives.
inline void
Listen(ns3::Ptr<ns3::Node> node, ns3::Ptr<ns3::NetDevice> device, Receiver receive)
{
    node->RegisterProtocolHandler(
        [receive = std::move(receive)](ns3::Ptr<ns3::NetDevice>,
                                       ns3::Ptr<const ns3::Packet> packet,
                                       uint16_t,
                                       const ns3::Address&,
                                       const ns3::Address&,
                                       ns3::NetDevice::PacketType) { receive(packet); },
        ANY_PROTOCOL,
        device);
}

/// Give a UE the address that its bearer needs, and listen to what it receives.
inline void
InstallUe(ns3::Ptr<ns3::Node> node,
          ns3::Ptr<ns3::NetDevice> device,
          std::size_t uav,
          Receiver receive)
{
    auto ipv4 = node->GetObject<ns3::Ipv4>();
    const auto interface = ipv4->AddInterface(device);
    ipv4->AddAddress(interface,
                     ns3::Ipv4InterfaceAddress(AddressOf(uav), ns3::Ipv4Mask("255.0.0.0")));
    Listen(node, device, std::move(receive));
}

/// Listen to what comes out of the tunnels that end at a gateway.
/// @return The application that sends into them.
template <typename Gateway>
ns3::Ptr<Gateway>
InstallGateway(ns3::Ptr<ns3::Node> node, Receiver receive)
{
    ns3::Ptr<ns3::NetDevice> tunnel;
    for (uint32_t i = 0; i < node->GetNDevices(); ++i)
    {
        if (ns3::DynamicCast<ns3::VirtualNetDevice>(node->GetDevice(i)))
        {
            tunnel = node->GetDevice(i);
        }
    }
    auto ipv4 = node->GetObject<ns3::Ipv4>();
    ipv4->SetDown(ipv4->GetInterfaceForDevice(tunnel));
    Listen(node, tunnel, std::move(receive));
    ns3::Ptr<Gateway> gateway;
    for (uint32_t i = 0; i < node->GetNApplications(); ++i)
    {
        if (auto found = ns3::DynamicCast<Gateway>(node->GetApplication(i)))
        {
            gateway = found;
        }
    }
    return gateway;
}

} // namespace radio

#endif
