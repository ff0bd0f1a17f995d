// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "wifi.h"

#include "ns3/ap-wifi-mac.h"
#include "ns3/callback.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/nstime.h"
#include "ns3/propagation-delay-model.h"
#include "ns3/qos-txop.h"
#include "ns3/queue-size.h"
#include "ns3/simulator.h"
#include "ns3/ssid.h"
#include "ns3/sta-wifi-mac.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-helper.h"
#include "ns3/wifi-mac-header.h"
#include "ns3/wifi-mac-helper.h"
#include "ns3/wifi-mac-queue-scheduler.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-phy.h"
#include "ns3/yans-wifi-channel.h"
#include "ns3/yans-wifi-helper.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace radio
{

using namespace ns3;

namespace
{
constexpr int ASSOCIATION_STEP_MS = 50;
/// Interval at which senders may look at their queues: less than 64 frames take at any rate.
constexpr int TICK_US = 500;
/// Larger than any frame: no RTS/CTS.
constexpr uint32_t NO_RTS = 4692480;
/// ns-3's receivers detect no weaker preamble (802.11's least sensitivity at 20 MHz), dBm.
constexpr double WEAKEST_PREAMBLE = -82;
constexpr double SLOT_METRES = 9e-6 / 2 * 299792458; // way there and back in a slot of 9 us
/// Data, and requests for block acknowledgements.
const std::list<WifiContainerQueueType> HELD_QUEUES = {WIFI_QOSDATA_QUEUE, WIFI_CTL_QUEUE};
} // namespace

Wifi::Wifi(const Air& air, const WifiSettings& settings)
    : Stack(air.Uavs()),
      m_air(air),
      m_accessPointPower(settings.accessPointPower),
      m_uavPower(settings.uavPower)
{
    // Senders bound what waits.
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", QueueSizeValue(QueueSize("1000000p")));
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(1000)));
    Install(air, settings);
    Watch();
    Simulator::Schedule(MicroSeconds(TICK_US), &Wifi::Tick, this);
}

void
Wifi::Install(const Air& air, const WifiSettings& settings)
{
    NodeContainer nodes(air.Uavs());
    m_accessPointNode.Create(1);
    m_accessPointNode.Get(0)->AggregateObject(air.BaseStation());
    auto channel = CreateObject<YansWifiChannel>();
    channel->SetPropagationLossModel(CreateObject<GivenLoss>());
    channel->SetPropagationDelayModel(CreateObject<ConstantSpeedPropagationDelayModel>());
    YansWifiPhyHelper phy;
    phy.SetChannel(channel);
    // Gains are given, so that the band has no effect but on timing: at 2.4 GHz, ns-3 resets the
    // slot time with each beacon (see below).
    phy.Set("ChannelSettings",
            StringValue("{0, " + std::to_string(settings.width) + ", BAND_5GHZ, 0}"));
    phy.Set("RxNoiseFigure", DoubleValue(settings.noiseFigure));
    WifiHelper wifi;
    wifi.SetStandard(settings.standard == "n"    ? WIFI_STANDARD_80211n
                     : settings.standard == "ac" ? WIFI_STANDARD_80211ac
                                                 : WIFI_STANDARD_80211ax);
    wifi.SetRemoteStationManager("ns3::IdealWifiManager",
                                 "RtsCtsThreshold",
                                 UintegerValue(settings.rts ? 0 : NO_RTS));
    auto install = [&](const std::string& mac, double power, Ptr<Node> node) {
        phy.Set("TxPowerStart", DoubleValue(power));
        phy.Set("TxPowerEnd", DoubleValue(power));
        WifiMacHelper helper;
        helper.SetType("ns3::" + mac, "Ssid", SsidValue(Ssid("testbed")));
        return wifi.Install(phy, helper, node);
    };
    NetDeviceContainer devices;
    for (std::size_t k = 0; k < air.Uavs(); ++k)
    {
        nodes.Get(k)->AggregateObject(air.Uav(k));
        devices.Add(install("StaWifiMac", settings.uavPower[k], nodes.Get(k)));
    }
    devices.Add(install("ApWifiMac", settings.accessPointPower, m_accessPointNode.Get(0)));
    WifiHelper::AssignStreams(devices, 100);
    m_accessPoint = DynamicCast<WifiNetDevice>(devices.Get(air.Uavs()));
    for (std::size_t k = 0; k < air.Uavs(); ++k)
    {
        m_stations.push_back({nodes.Get(k), DynamicCast<WifiNetDevice>(devices.Get(k))});
        m_byAddress[m_stations[k].device->GetMac()->GetAddress()] = k;
    }
    // Coverage class: a slot lasts as long as a signal takes there and back.
    const double farther = settings.farthest / SLOT_METRES - 1;
    for (uint32_t i = 0; farther > 0 && i < devices.GetN(); ++i)
    {
        auto each = DynamicCast<WifiNetDevice>(devices.Get(i))->GetPhy();
        each->SetSlot(each->GetSlot() + MicroSeconds(static_cast<uint64_t>(std::ceil(9 * farther))));
    }
}

void
Wifi::Watch()
{
    auto comesOut = [this](Ptr<Node> node, Ptr<WifiNetDevice> device, auto number, Direction way) {
        node->RegisterProtocolHandler(
            [this, number, way](Ptr<NetDevice>,
                                Ptr<const Packet> packet,
                                uint16_t,
                                const Address& from,
                                const Address&,
                                NetDevice::PacketType) { ComesOut(way, number(from), packet); },
            ANY_PROTOCOL,
            device);
    };
    comesOut(
        m_accessPointNode.Get(0),
        m_accessPoint,
        [this](const Address& from) { return Number(Mac48Address::ConvertFrom(from)); },
        UP);
    WatchPhy(m_accessPoint);
    for (std::size_t k = 0; k < m_stations.size(); ++k)
    {
        comesOut(
            m_stations[k].node,
            m_stations[k].device,
            [k](const Address&) { return k; },
            DOWN);
        WatchPhy(m_stations[k].device);
        using Beacon = Callback<void, StaWifiMac::ApInfo>;
        m_stations[k].device->GetMac()->TraceConnectWithoutContext(
            "ReceivedBeaconInfo",
            Beacon([this, k](StaWifiMac::ApInfo) { ++m_stations[k].beacons; }));
        m_stations[k].device->GetMac()->TraceConnectWithoutContext(
            "DeAssoc",
            Callback<void, Mac48Address>([this, k](Mac48Address) { Hold(k, true); }));
        m_stations[k].device->GetMac()->TraceConnectWithoutContext(
            "Assoc",
            Callback<void, Mac48Address>([this, k](Mac48Address) { Hold(k, false); }));
    }
}

void
Wifi::Hold(std::size_t uav, bool isHeld)
{
    const Mac48Address to = m_stations[uav].device->GetMac()->GetAddress();
    const auto mac = m_accessPoint->GetMac();
    const auto change =
        isHeld ? &WifiMacQueueScheduler::BlockQueues : &WifiMacQueueScheduler::UnblockQueues;
    ((*mac->GetMacQueueScheduler()).*change)(WifiQueueBlockedReason::POWER_SAVE_MODE,
                                             AC_BE,
                                             HELD_QUEUES,
                                             to,
                                             mac->GetAddress(),
                                             {0},
                                             {0});
}

Wifi::Frames*
Wifi::FramesOf(Ptr<const Packet> frame, Ptr<WifiNetDevice> device, bool isSender)
{
    WifiMacHeader header;
    frame->PeekHeader(header);
    if (!header.IsData() && !header.IsMgt())
    {
        return nullptr;
    }
    const bool isAccessPoint = device == m_accessPoint;
    const Mac48Address own = device->GetMac()->GetAddress();
    const Mac48Address to = header.GetAddr1();
    // Stations hear each other, too.
    if (!isSender && to != own && !to.IsGroup())
    {
        return nullptr;
    }
    const std::size_t k = Number(!isAccessPoint ? own : isSender ? to : header.GetAddr2());
    if (k == m_stations.size())
    {
        return nullptr;
    }
    const Direction direction = isAccessPoint == isSender ? DOWN : UP;
    if (header.IsMgt())
    {
        return direction == UP ? &m_stations[k].requests : nullptr;
    }
    return counts ? &m_stations[k].data[direction] : nullptr;
}

void
Wifi::WatchPhy(Ptr<WifiNetDevice> device)
{
    auto phy = device->GetPhy();
    phy->TraceConnectWithoutContext(
        "PhyTxBegin",
        Callback<void, Ptr<const Packet>, double>([this, device](Ptr<const Packet> frame, double) {
            if (auto* frames = FramesOf(frame, device, true))
            {
                ++frames->sent;
            }
        }));
    phy->TraceConnectWithoutContext(
        "PhyRxEnd",
        Callback<void, Ptr<const Packet>>([this, device](Ptr<const Packet> frame) {
            if (auto* frames = FramesOf(frame, device, false))
            {
                ++frames->received;
            }
        }));
    phy->TraceConnectWithoutContext(
        "PhyRxDrop",
        Callback<void, Ptr<const Packet>, WifiPhyRxfailureReason>(
            [this, device](Ptr<const Packet> frame, WifiPhyRxfailureReason reason) {
                if (auto* frames = FramesOf(frame, device, false))
                {
                    ++frames->lost[reason];
                }
            }));
}

std::vector<std::size_t>
Wifi::Attach(double limit)
{
    std::vector<std::size_t> missing;
    for (int at = 0; at < 1e3 * limit; at += ASSOCIATION_STEP_MS)
    {
        Simulator::Stop(MilliSeconds(ASSOCIATION_STEP_MS));
        Simulator::Run();
        missing.clear();
        for (std::size_t k = 0; k < m_stations.size(); ++k)
        {
            if (!IsOpen(UP, k) || !IsOpen(DOWN, k))
            {
                missing.push_back(k);
            }
        }
        if (missing.empty())
        {
            break;
        }
    }
    return missing;
}

bool
Wifi::IsOpen(Direction direction, std::size_t uav) const
{
    auto mac = m_stations[uav].device->GetMac();
    // The two ends may see it differently: the answer to a request may be lost, and ns-3's access
    // point does not notice that a station has gone.
    return DynamicCast<StaWifiMac>(mac)->IsAssociated() &&
           (direction == UP ||
            m_accessPoint->GetRemoteStationManager()->IsAssociated(mac->GetAddress()));
}

void
Wifi::Tick()
{
    for (std::size_t k = 0; drained && k < m_stations.size(); ++k)
    {
        drained(UP, k);
        drained(DOWN, k);
    }
    Simulator::Schedule(MicroSeconds(TICK_US), &Wifi::Tick, this);
}

void
Wifi::Carry(Direction direction, std::size_t uav, Ptr<Packet> packet)
{
    const auto& station = m_stations[uav].device;
    const auto& from = direction == UP ? station : m_accessPoint;
    const auto& to = direction == UP ? m_accessPoint : station;
    from->Send(packet, to->GetAddress(), ProtocolOf(packet));
}

int64_t
Wifi::Held(Direction direction, std::size_t uav) const
{
    const auto& station = m_stations[uav].device;
    const auto& from = direction == UP ? station : m_accessPoint;
    const auto& to = direction == UP ? m_accessPoint : station;
    const WifiContainerQueueId link{WIFI_QOSDATA_QUEUE, WIFI_UNICAST, to->GetMac()->GetAddress(), 0};
    return from->GetMac()->GetTxopQueue(AC_BE)->GetNBytes(link);
}

std::string
Wifi::Why(Direction direction, std::size_t uav) const
{
    const Station& station = m_stations[uav];
    auto power = [this, uav](Direction way) {
        return (way == UP ? m_uavPower[uav] : m_accessPointPower) + m_air.Gain(way, uav);
    };
    auto arrive = [power](Direction way) {
        char text[120];
        std::snprintf(text, sizeof text, "they arrive at %.1f dBm at the end", power(way));
        return text + std::string(power(way) < WEAKEST_PREAMBLE
                                      ? "; ns-3 detects a preamble from -82 dBm on"
                                      : "");
    };
    auto lost = [](const Frames& frames) {
        uint64_t most = 0;
        std::string why;
        for (const auto& [reason, count] : frames.lost)
        {
            if (count > most)
            {
                most = count;
                std::ostringstream name;
                name << reason;
                why = ", most of the others were lost by " + name.str();
            }
        }
        return std::to_string(frames.received) + " of " + std::to_string(frames.sent) +
               " frames were received" + why;
    };
    if (station.beacons == 0 || (!IsOpen(UP, uav) && power(DOWN) < WEAKEST_PREAMBLE))
    {
        return "it is not associated: it receives no beacon of the access point (" + arrive(DOWN) +
               ")";
    }
    if (!IsOpen(UP, uav))
    {
        return "it is not associated: it receives beacons, but the access point does not receive "
               "its requests; " +
               lost(station.requests) + " (" + arrive(UP) + ")";
    }
    if (station.data[direction].sent == 0)
    {
        return std::string("it is associated, but ") + (direction == UP ? "it" : "the access point") +
               " did not get to send on the busy channel";
    }
    return "it is associated; " + lost(station.data[direction]) + " (" + arrive(direction) + ")";
}

std::size_t
Wifi::Number(Mac48Address address) const
{
    const auto found = m_byAddress.find(address);
    return found == m_byAddress.end() ? m_stations.size() : found->second;
}

} // namespace radio
