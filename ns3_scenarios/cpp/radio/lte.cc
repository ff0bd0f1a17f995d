// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "lte.h"

#include "ns3/boolean.h"
#include "ns3/callback.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4.h"
#include "ns3/lte-common.h"
#include "ns3/lte-pdcp.h"
#include "ns3/lte-radio-bearer-info.h"
#include "ns3/lte-rlc-um.h"
#include "ns3/lte-ue-phy.h"
#include "ns3/lte-ue-rrc.h"
#include "ns3/nstime.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"
#include "ns3/virtual-net-device.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace radio
{

using namespace ns3;

namespace
{
constexpr int ATTACH_STEP_MS = 10;
/// RLC's queues are never full: what is held is bounded by what sends.
constexpr uint32_t RLC_BYTES = 100'000'000;
/// Every UE has its own subframe of this period for its sounding, so there may be so many UEs.
constexpr std::size_t SOUNDING_TTIS = 320;
constexpr uint32_t PDCP_HEADER = 2; // bytes

/// Reads a private member, by an explicit instantiation: ns-3 shows the size of RLC's queue only to
/// the MAC.
template <auto Member>
struct Revealed
{
    friend uint32_t QueueBytes(const LteRlcUm& rlc)
    {
        return rlc.*Member;
    }
};

/// The differentiated services codepoint of a packet of IPv4 or IPv6, RFC 2474.
int
Dscp(const Packet& packet)
{
    uint8_t head[2] = {0, 0};
    packet.CopyData(head, sizeof head);
    const bool isIpv6 = head[0] >> 4 == 6;
    return isIpv6 ? (head[0] & 0x0f) << 2 | head[1] >> 6 : head[1] >> 2;
}

uint32_t QueueBytes(const LteRlcUm& rlc);
template struct Revealed<&LteRlcUm::m_txBufferSize>;

template <typename Ues, typename Tunnels>
std::pair<Ipv4Address, uint32_t>
FirstTunnel(Ues& ues, uint64_t imsi, Tunnels tunnels)
{
    auto& ue = *ues.at(imsi);
    return {ue.GetSgwAddr(), (ue.*tunnels).begin()->second};
}

/// The same for the tunnel of a UE's default bearer, which ns-3's gateway selects by the packet's
/// address; the packets here may have any.
template <auto Ues, auto Tunnels>
struct RevealedTunnel
{
    friend std::pair<Ipv4Address, uint32_t> TunnelTo(EpcPgwApplication& gateway, uint64_t imsi)
    {
        return FirstTunnel(gateway.*Ues, imsi, Tunnels);
    }
};

std::pair<Ipv4Address, uint32_t> TunnelTo(EpcPgwApplication& gateway, uint64_t imsi);
template struct RevealedTunnel<&EpcPgwApplication::m_ueInfoByImsiMap,
                               &EpcPgwApplication::UeInfo::m_teidByBearerIdMap>;
} // namespace

Lte::Lte(const Air& air, const LteSettings& settings)
    : Stack(air.Uavs()),
      m_air(air),
      m_isByDscp(settings.isByDscp)
{
    Configure(settings);
    m_epc = CreateObject<PointToPointEpcHelper>();
    m_lte = CreateObject<LteHelper>();
    m_lte->SetEpcHelper(m_epc);
    m_lte->SetSchedulerType(Scheduler::GetTypeId().GetName());
    m_lte->SetPathlossModelType(GivenLoss::GetTypeId());
    m_lte->SetEnbDeviceAttribute("DlBandwidth", UintegerValue(settings.resourceBlocks));
    m_lte->SetEnbDeviceAttribute("UlBandwidth", UintegerValue(settings.resourceBlocks));
    m_enb.Create(1);
    m_enb.Get(0)->AggregateObject(air.BaseStation());
    m_enbDevices = m_lte->InstallEnbDevice(m_enb);
    InstallUes(air, settings);
    SetTerms(settings);
    FindGateway();

    auto device = DynamicCast<LteEnbNetDevice>(m_enbDevices.Get(0));
    auto carrier = DynamicCast<ComponentCarrierEnb>(device->GetCcMap().at(0));
    auto scheduler = DynamicCast<Scheduler>(carrier->GetFfMacScheduler());
    scheduler->Use([this](uint16_t rnti) {
        const std::size_t uav = Number(rnti);
        return uav < m_ues.size() ? m_ues[uav].terms : Terms{};
    });
    scheduler->Observe(
        [this](const Grant& grant) {
            const std::size_t uav = Number(grant.rnti);
            if (log && uav < m_ues.size())
            {
                log->Note(grant.isNew ? Log::GRANT : Log::RETRANSMISSION,
                          grant.direction,
                          uav,
                          grant.bytes,
                          grant.resourceBlocks,
                          grant.mcs);
            }
            if (counts && uav < m_ues.size())
            {
                Count& count = (*counts)(grant.direction, uav);
                ++count.blocks;
                count.blockBits += 8ULL * grant.bytes;
                count.resourceBlocks += grant.resourceBlocks;
                // The DCI of a retransmission has an MCS that says so (29 to 31) or none.
                count.mcs[grant.mcs] += grant.isNew;
            }
        },
        [this](Direction direction, uint16_t rnti) {
            const std::size_t uav = Number(rnti);
            if (log && uav < m_ues.size())
            {
                log->Note(Log::LOST, direction, uav);
            }
            if (counts && uav < m_ues.size())
            {
                ++(*counts)(direction, uav).lost;
            }
        });
}

void
Lte::Configure(const LteSettings& settings) const
{
    auto set = [](const std::string& name, const AttributeValue& value) {
        Config::SetDefault("ns3::" + name, value);
    };
    set("LteRlcUm::MaxTxBufferSize", UintegerValue(RLC_BYTES));
    set("LteRlcUm::EnablePdcpDiscarding", BooleanValue(false));
    set("LteEnbRrc::EpsBearerToRlcMapping", StringValue("RlcUmAlways"));
    set("LteEnbRrc::SrsPeriodicity", UintegerValue(SOUNDING_TTIS));
    // TS 36.331, 9.2.1; ns-3's 100 ms would delay what arrives after each lost block by a slot.
    set("LteRlcUm::ReorderingTimer", TimeValue(MilliSeconds(35)));
    set("LteUeRrc::T300", TimeValue(MilliSeconds(2000)));
    set("LteUePhy::EnableUplinkPowerControl", BooleanValue(false));
    set("LteUePhy::EnableRlfDetection", BooleanValue(false)); // A UAV comes back from an outage.
    set("LteUePhy::NoiseFigure", DoubleValue(settings.downlinkNoiseFigure));
    set("LteEnbPhy::NoiseFigure", DoubleValue(settings.uplinkNoiseFigure));
    set("LteEnbPhy::TxPower", DoubleValue(settings.downlinkPower));
    set("LteAmc::AmcModel", StringValue("Vienna"));
}

void
Lte::SetTerms(const LteSettings& settings)
{
    std::array<std::size_t, 2> start{0, 0};
    for (std::size_t k = 0; k < m_ues.size(); ++k)
    {
        for (const auto direction : {UP, DOWN})
        {
            if (const auto& own = settings.ownBlocks[direction]; !own.empty())
            {
                const auto blocks = static_cast<std::size_t>(own.at(k));
                m_ues[k].terms.own[direction] = Span{start[direction], blocks};
                start[direction] += blocks;
            }
        }
    }
}

void
Lte::InstallUes(const Air& air, const LteSettings& settings)
{
    NodeContainer nodes(air.Uavs());
    for (std::size_t k = 0; k < air.Uavs(); ++k)
    {
        nodes.Get(k)->AggregateObject(air.Uav(k));
    }
    auto devices = m_lte->InstallUeDevice(nodes);
    InternetStackHelper internet;
    internet.Install(nodes);
    m_lte->AssignStreams(m_enbDevices, 0);
    m_lte->AssignStreams(devices, 1000);
    for (std::size_t k = 0; k < air.Uavs(); ++k)
    {
        m_ues.push_back({nodes.Get(k), DynamicCast<LteUeNetDevice>(devices.Get(k))});
        m_ues[k].device->GetPhy()->SetTxPower(settings.uplinkPower[k]);
        // The bearer needs an address. The interface stays down: packets are handed over below it,
        // and ns-3's IP must not answer them.
        auto ipv4 = m_ues[k].node->GetObject<Ipv4>();
        const auto interface = ipv4->AddInterface(m_ues[k].device);
        ipv4->AddAddress(interface, Ipv4InterfaceAddress(AddressOf(k), Ipv4Mask("255.0.0.0")));
        m_ues[k].node->RegisterProtocolHandler(
            [this, k](Ptr<NetDevice>,
                      Ptr<const Packet> packet,
                      uint16_t,
                      const Address&,
                      const Address&,
                      NetDevice::PacketType) { ComesOut(DOWN, k, packet); },
            ANY_PROTOCOL,
            m_ues[k].device);
    }
    m_lte->Attach(devices, m_enbDevices.Get(0));
}

void
Lte::FindGateway()
{
    auto node = m_epc->GetPgwNode();
    Ptr<NetDevice> tunnel;
    for (uint32_t i = 0; i < node->GetNDevices(); ++i)
    {
        if (DynamicCast<VirtualNetDevice>(node->GetDevice(i)))
        {
            tunnel = node->GetDevice(i);
        }
    }
    for (uint32_t i = 0; i < node->GetNApplications(); ++i)
    {
        if (auto found = DynamicCast<EpcPgwApplication>(node->GetApplication(i)))
        {
            m_gateway = found;
        }
    }
    auto ipv4 = node->GetObject<Ipv4>();
    ipv4->SetDown(ipv4->GetInterfaceForDevice(tunnel));
    node->RegisterProtocolHandler(
        [this](Ptr<NetDevice>,
               Ptr<const Packet> packet,
               uint16_t,
               const Address&,
               const Address&,
               NetDevice::PacketType) {
            const Mark mark = Mark::Of(packet);
            ComesOut(UP, mark.serial ? mark.uav : m_ues.size(), packet);
        },
        ANY_PROTOCOL,
        tunnel);
}

std::vector<std::size_t>
Lte::Attach(double limit)
{
    std::vector<std::size_t> missing;
    for (int at = 0; at < 1e3 * limit; at += ATTACH_STEP_MS)
    {
        Simulator::Stop(MilliSeconds(ATTACH_STEP_MS));
        Simulator::Run();
        missing.clear();
        for (std::size_t k = 0; k < m_ues.size(); ++k)
        {
            if (!HasBearer(k))
            {
                missing.push_back(k);
            }
        }
        if (missing.empty())
        {
            Watch();
            break;
        }
    }
    return missing;
}

bool
Lte::HasBearer(std::size_t uav) const
{
    auto rrc = m_ues[uav].device->GetRrc();
    const auto bearers = Config::LookupMatches("/NodeList/" +
                                               std::to_string(m_ues[uav].node->GetId()) +
                                               "/DeviceList/*/LteUeRrc/DataRadioBearerMap/*");
    return rrc->GetState() == LteUeRrc::CONNECTED_NORMALLY && bearers.GetN() > 0;
}

bool
Lte::IsOpen(Direction direction, std::size_t uav) const
{
    return m_ues[uav].queue[direction] != nullptr;
}

void
Lte::Watch()
{
    const std::string base = "/NodeList/" + std::to_string(m_enb.Get(0)->GetId());
    for (std::size_t k = 0; k < m_ues.size(); ++k)
    {
        const uint16_t rnti = m_ues[k].device->GetRrc()->GetRnti();
        const std::string node = "/NodeList/" + std::to_string(m_ues[k].node->GetId());
        const std::string ue = "/DeviceList/*/LteUeRrc/";
        const std::string enb = "/DeviceList/*/LteEnbRrc/UeMap/" + std::to_string(rnti) + "/";
        m_byRnti[rnti] = k;
        for (const auto direction : {UP, DOWN})
        {
            const auto bearers = Config::LookupMatches(
                (direction == UP ? node + ue : base + enb) + "DataRadioBearerMap/*");
            auto bearer = DynamicCast<LteDataRadioBearerInfo>(bearers.Get(0));
            m_ues[k].queue[direction] = DynamicCast<LteRlcUm>(bearer->m_rlc);
            auto left = [this, direction, k](uint16_t, uint8_t, uint32_t) { Left(direction, k); };
            using Sent = Callback<void, uint16_t, uint8_t, uint32_t>;
            bearer->m_rlc->TraceConnectWithoutContext("TxPDU", Sent(left));
            if (direction == DOWN)
            {
                auto enters = [this, k](uint16_t, uint8_t, uint32_t bytes) {
                    m_ues[k].underWay -= bytes - PDCP_HEADER;
                };
                bearer->m_pdcp->TraceConnectWithoutContext("TxPDU", Sent(enters));
            }
        }
    }
}

void
Lte::Left(Direction direction, std::size_t uav)
{
    if (drained)
    {
        // Not within RLC, which is about to say how much is left.
        Simulator::ScheduleNow([this, direction, uav] { drained(direction, uav); });
    }
}

void
Lte::Carry(Direction direction, std::size_t uav, Ptr<Packet> packet)
{
    if (direction == UP)
    {
        m_ues[uav].device->Send(packet, Address(), ProtocolOf(packet));
    }
    else
    {
        if (m_isByDscp)
        {
            m_ues[uav].terms.priority = Dscp(*packet);
        }
        const auto [address, tunnel] = TunnelTo(*m_gateway, m_ues[uav].device->GetImsi());
        m_ues[uav].underWay += packet->GetSize();
        m_gateway->SendToS5uSocket(packet, address, tunnel);
    }
}

int64_t
Lte::Held(Direction direction, std::size_t uav) const
{
    const Ue& ue = m_ues[uav];
    return QueueBytes(*ue.queue[direction]) + (direction == DOWN ? ue.underWay : 0);
}

std::string
Lte::Why(Direction direction, std::size_t uav) const
{
    char text[80];
    const double gain = m_air.Gain(direction, uav);
    std::snprintf(text, sizeof text, "its channel is too weak, %.1f dB at the end", gain);
    return text;
}

std::size_t
Lte::Number(uint16_t rnti) const
{
    const auto found = m_byRnti.find(rnti);
    return found == m_byRnti.end() ? m_ues.size() : found->second;
}

} // namespace radio
