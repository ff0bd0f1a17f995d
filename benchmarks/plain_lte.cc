// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

// A plain ns-3 program: K UEs in an LTE cell of 20 MHz send 60 Mbit/s by UDP for S seconds.

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/lte-module.h>
#include <ns3/mobility-module.h>
#include <ns3/network-module.h>

#include <cmath>
#include <iostream>

using namespace ns3;

int main(int argc, char** argv)
{
    const uint32_t ues = std::stoul(argv[1]);
    const Time end = Seconds(std::stod(argv[2]));
    auto epc = CreateObject<PointToPointEpcHelper>();
    auto lte = CreateObject<LteHelper>();
    lte->SetEpcHelper(epc);
    lte->SetEnbDeviceAttribute("UlBandwidth", UintegerValue(100));
    lte->SetEnbDeviceAttribute("DlBandwidth", UintegerValue(100));

    NodeContainer enb(1);
    NodeContainer all(ues);
    auto places = CreateObject<ListPositionAllocator>();
    places->Add(Vector(0, 0, 25));
    for (uint32_t k = 0; k < ues; ++k)
    {
        const double angle = 2 * M_PI * k / ues;
        places->Add(Vector(300 * std::cos(angle), 300 * std::sin(angle), 20));
    }
    MobilityHelper mobility;
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.SetPositionAllocator(places);
    mobility.Install(enb);
    mobility.Install(all);

    auto station = lte->InstallEnbDevice(enb);
    auto devices = lte->InstallUeDevice(all);
    InternetStackHelper().Install(all);
    epc->AssignUeIpv4Address(devices);
    lte->Attach(devices, station.Get(0));

    auto gateway = epc->GetPgwNode();
    auto address = gateway->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
    PacketSinkHelper receiver("ns3::UdpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), 5000));
    auto received = receiver.Install(gateway);
    Ipv4StaticRoutingHelper routing;
    OnOffHelper sender("ns3::UdpSocketFactory", InetSocketAddress(address, 5000));
    sender.SetConstantRate(DataRate(60'000'000 / ues), 1400);
    for (uint32_t k = 0; k < ues; ++k)
    {
        routing.GetStaticRouting(all.Get(k)->GetObject<Ipv4>())
            ->SetDefaultRoute(epc->GetUeDefaultGatewayAddress(), 1);
        sender.Install(all.Get(k));
    }
    Simulator::Stop(end);
    Simulator::Run();
    std::cout << DynamicCast<PacketSink>(received.Get(0))->GetTotalRx() << "\n";
    Simulator::Destroy();
}
