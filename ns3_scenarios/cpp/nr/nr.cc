// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "nr.h"

#include "../radio/epc.h"

#include "ns3/boolean.h"
#include "ns3/bwp-manager-gnb.h"
#include "ns3/bwp-manager-ue.h"
#include "ns3/callback.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/isotropic-antenna-model.h"
#include "ns3/multi-model-spectrum-channel.h"
#include "ns3/nr-amc.h"
#include "ns3/nr-gnb-phy.h"
#include "ns3/nr-pdcp.h"
#include "ns3/nr-radio-bearer-info.h"
#include "ns3/nr-spectrum-phy.h"
#include "ns3/nr-ue-phy.h"
#include "ns3/nr-ue-rrc.h"
#include "ns3/pointer.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <utility>

namespace radio
{

using namespace ns3;

namespace
{
constexpr uint32_t NR_RLC_BYTES = 100'000'000; // the queue of a sending end; others limit it
constexpr uint32_t NR_PDCP_HEADER = 2;         // bytes
constexpr int NR_ATTACH_STEP_MS = 10;
constexpr double NR_CARRIER = 3.5e9; // Hz; the loss is given
constexpr double NR_BLOCK = 180e3;   // Hz, with 15 kHz

template <auto Size>
struct RevealedNrQueue
{
    friend uint32_t QueueBytes(const NrRlcUm& rlc)
    {
        return rlc.*Size;
    }
};

uint32_t QueueBytes(const NrRlcUm& rlc);
template struct RevealedNrQueue<&NrRlcUm::m_txBufferSize>;

template <typename Ues, typename Tunnels>
std::pair<Ipv4Address, uint32_t>
FirstNrTunnel(Ues& ues, uint64_t imsi, Tunnels tunnels)
{
    auto& ue = *ues.at(imsi);
    return {ue.GetSgwAddr(), (ue.*tunnels).begin()->second};
}

template <auto Ues, auto Tunnels>
struct RevealedNrTunnel
{
    friend std::pair<Ipv4Address, uint32_t> TunnelTo(NrEpcPgwApplication& gateway, uint64_t imsi)
    {
        return FirstNrTunnel(gateway.*Ues, imsi, Tunnels);
    }
};

std::pair<Ipv4Address, uint32_t> TunnelTo(NrEpcPgwApplication& gateway, uint64_t imsi);
template struct RevealedNrTunnel<&NrEpcPgwApplication::m_ueInfoByImsiMap,
                                 &NrEpcPgwApplication::NrUeInfo::m_teidByBearerIdMap>;

/// The slots of a TDD carrier as 5G-LENA reads them.
std::string
SlotsOf(const std::string& pattern)
{
    std::string slots;
    for (const char slot : pattern)
    {
        slots += slot == 'D' ? "DL|" : slot == 'U' ? "UL|" : "S|";
    }
    return slots;
}
} // namespace

double
Nr::Mean::Value() const
{
    return count ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

Nr::Nr(const Air& air, const NrSettings& settings)
    : Stack(air.Uavs()),
      m_air(air),
      m_isFdd(settings.pattern.empty()),
      m_bandBlocks(settings.bandBlocks)
{
    Configure(settings);
    InstallCell(settings);
    InstallInternet();
    FindGateway();
}

void
Nr::Configure(const NrSettings& settings) const
{
    auto set = [](const std::string& name, const AttributeValue& value) {
        Config::SetDefault("ns3::" + name, value);
    };
    set("NrRlcUm::MaxTxBufferSize", UintegerValue(NR_RLC_BYTES));
    set("NrRlcUm::EnablePdcpDiscarding", BooleanValue(false));
    set("NrRlcUm::ReorderingTimer", TimeValue(MilliSeconds(35)));
    set("NrGnbRrc::EpsBearerToRlcMapping", StringValue("RlcUmAlways"));
    set("NrUePhy::EnableRlfDetection", BooleanValue(false));
    set("NrUePhy::NoiseFigure", DoubleValue(settings.downlinkNoiseFigure));
    set("NrGnbPhy::NoiseFigure", DoubleValue(settings.uplinkNoiseFigure));
    set("NrUePhy::PowerAllocationType", StringValue("UniformPowerAllocUsed"));
    // By default the gNB's power is in the blocks that a slot uses: a retransmission alone in its
    // slot would be received so well that the next block gets a scheme that is far too high.
    set("NrGnbPhy::PowerAllocationType", StringValue("UniformPowerAllocBw"));
    set("NrUeNetDevice::PrimaryUlIndex", UintegerValue(m_isFdd));
    // The core of the network takes no time.
    set("NrNoBackhaulEpcHelper::S5LinkDelay", TimeValue(Seconds(0)));
}

void
Nr::InstallCell(const NrSettings& settings)
{
    m_epc = CreateObject<NrPointToPointEpcHelper>();
    m_nr = CreateObject<NrHelper>();
    m_nr->SetEpcHelper(m_epc);
    m_nr->SetSchedulerTypeId(NrScheduler::GetTypeId());
    // In a slot in which a UE sounds it has no data, and without beams sounding is of no use.
    m_nr->SetSchedulerAttribute("EnableSrsInUlSlots", BooleanValue(false));
    m_nr->SetSchedulerAttribute("EnableSrsInFSlots", BooleanValue(false));
    const std::string errors = settings.is256Qam ? "ns3::NrEesmIrT2" : "ns3::NrEesmIrT1";
    m_nr->SetDlErrorModel(errors);
    m_nr->SetUlErrorModel(errors);
    m_nr->SetGnbDlAmcAttribute("AmcModel", EnumValue(NrAmc::ShannonModel));
    m_nr->SetGnbUlAmcAttribute("AmcModel", EnumValue(NrAmc::ShannonModel));
    // One isotropic element at each end: no gain, and with no matrix of a channel, no beams.
    for (const auto& [name, value] : std::map<std::string, Ptr<AttributeValue>>{
             {"NumRows", Create<UintegerValue>(1)},
             {"NumColumns", Create<UintegerValue>(1)},
             {"AntennaElement", Create<PointerValue>(CreateObject<IsotropicAntennaModel>())}})
    {
        m_nr->SetGnbAntennaAttribute(name, *value);
        m_nr->SetUeAntennaAttribute(name, *value);
    }
    if (m_isFdd)
    {
        // The default bearer's uplink belongs to the second part of the band.
        m_nr->SetUeBwpManagerAlgorithmAttribute("NGBR_VIDEO_TCP_DEFAULT", UintegerValue(1));
    }

    BandwidthPartInfoPtrVector parts;
    m_parts.resize(m_isFdd ? 2 : 1);
    for (std::size_t b = 0; b < m_parts.size(); ++b)
    {
        // By hand: 5G-LENA's helper cuts two carriers of 100 MHz to 99 MHz each.
        const double width = settings.bandwidth[b ? UP : DOWN];
        auto& part = m_parts[b] = std::make_unique<BandwidthPartInfo>();
        part->m_bwpId = static_cast<uint8_t>(b);
        part->m_centralFrequency = NR_CARRIER + 1e9 * static_cast<double>(b);
        part->m_lowerFrequency = part->m_centralFrequency - width / 2;
        part->m_higherFrequency = part->m_centralFrequency + width / 2;
        part->m_channelBandwidth = width;
        auto channel = CreateObject<MultiModelSpectrumChannel>();
        channel->AddPropagationLossModel(CreateObject<GivenLoss>());
        part->SetChannel(channel);
        parts.emplace_back(part);
    }

    NodeContainer gnb(1);
    gnb.Get(0)->AggregateObject(m_air.BaseStation());
    NodeContainer nodes(m_air.Uavs());
    for (std::size_t k = 0; k < m_air.Uavs(); ++k)
    {
        nodes.Get(k)->AggregateObject(m_air.Uav(k));
    }
    m_gnb = m_nr->InstallGnbDevice(gnb, parts);
    auto devices = m_nr->InstallUeDevice(nodes, parts);
    int64_t stream = 1;
    stream += m_nr->AssignStreams(m_gnb, stream);
    stream += m_nr->AssignStreams(devices, stream);
    UseParts(settings, devices);
    for (std::size_t k = 0; k < m_air.Uavs(); ++k)
    {
        m_ues.push_back({nodes.Get(k), DynamicCast<NrUeNetDevice>(devices.Get(k)), {}});
    }
}

void
Nr::UseParts(const NrSettings& settings, const NetDeviceContainer& devices)
{
    auto own = [this, blocks = settings.ownBlocks](Direction direction, uint16_t rnti) {
        const std::size_t uav = Number(rnti);
        const auto& each = blocks[direction];
        return uav < each.size() ? static_cast<std::size_t>(each[uav]) : 0;
    };
    for (std::size_t b = 0; b < m_parts.size(); ++b)
    {
        const Direction direction = b ? UP : DOWN;
        const auto blocks = settings.bandBlocks[direction];
        const double block = NR_BLOCK * (1 << settings.numerology);
        // Such that 5G-LENA rounds to this number of blocks.
        const double unused =
            1 - (static_cast<double>(blocks) + 0.5) * block / settings.bandwidth[direction];
        auto phy = NrHelper::GetGnbPhy(m_gnb.Get(0), b);
        phy->SetAttribute("Numerology", UintegerValue(settings.numerology));
        phy->SetAttribute("Pattern",
                          StringValue(!m_isFdd ? SlotsOf(settings.pattern) : b ? "UL|" : "DL|"));
        phy->SetAttribute("TxPower", DoubleValue(settings.downlinkPower));
        phy->SetAttribute("RbOverhead", DoubleValue(std::max(0.0, unused)));
        phy->GetSpectrumPhy()->TraceConnectWithoutContext(
            "RxPacketTraceGnb",
            Callback<void, RxPacketTraceParams>(
                [this](RxPacketTraceParams each) { Received(UP, each); }));
        for (std::size_t k = 0; k < m_air.Uavs(); ++k)
        {
            auto ue = NrHelper::GetUePhy(devices.Get(k), b);
            ue->SetAttribute("TxPower", DoubleValue(settings.uplinkPower[k]));
            ue->GetSpectrumPhy()->TraceConnectWithoutContext(
                "RxPacketTraceUe",
                Callback<void, RxPacketTraceParams>(
                    [this](RxPacketTraceParams each) { Received(DOWN, each); }));
        }
        SchedulerOf(direction)->Use(settings.resourceBlocks ? settings.resourceBlocks : blocks,
                                    std::pow(10, settings.leastSnr / 10),
                                    settings.ownBlocks[UP].empty() ? NrScheduler::Own() : own);
    }
    if (m_isFdd)
    {
        NrHelper::GetBwpManagerGnb(m_gnb.Get(0))->SetOutputLink(1, 0);
        for (std::size_t k = 0; k < m_air.Uavs(); ++k)
        {
            NrHelper::GetBwpManagerUe(devices.Get(k))->SetOutputLink(0, 1);
        }
    }
}

void
Nr::InstallInternet()
{
    InternetStackHelper internet;
    for (std::size_t k = 0; k < m_ues.size(); ++k)
    {
        internet.Install(m_ues[k].node);
        InstallUe(m_ues[k].node, m_ues[k].device, k, [this, k](Ptr<const Packet> packet) {
            ComesOut(DOWN, k, packet);
        });
        m_nr->AttachToGnb(m_ues[k].device, m_gnb.Get(0));
    }
}

void
Nr::FindGateway()
{
    m_gateway =
        InstallGateway<NrEpcPgwApplication>(m_epc->GetPgwNode(), [this](Ptr<const Packet> packet) {
            const Mark mark = Mark::Of(packet);
            ComesOut(UP, mark.serial ? mark.uav : m_ues.size(), packet);
        });
}

Ptr<NrScheduler>
Nr::SchedulerOf(Direction direction) const
{
    const uint32_t part = m_isFdd && direction == UP ? 1 : 0;
    return DynamicCast<NrScheduler>(NrHelper::GetScheduler(m_gnb.Get(0), part));
}

std::vector<std::size_t>
Nr::Attach(double limit)
{
    std::vector<std::size_t> missing;
    for (int at = 0; at < 1e3 * limit; at += NR_ATTACH_STEP_MS)
    {
        Simulator::Stop(MilliSeconds(NR_ATTACH_STEP_MS));
        Simulator::Run();
        missing.clear();
        for (std::size_t k = 0; k < m_ues.size(); ++k)
        {
            const auto bearers = Config::LookupMatches(
                "/NodeList/" + std::to_string(m_ues[k].node->GetId()) +
                "/DeviceList/*/$ns3::NrUeNetDevice/nrUeRrc/DataRadioBearerMap/*");
            if (m_ues[k].device->GetRrc()->GetState() != NrUeRrc::CONNECTED_NORMALLY ||
                bearers.GetN() == 0)
            {
                missing.push_back(k);
            }
        }
        if (missing.empty())
        {
            break;
        }
    }
    for (std::size_t b = 0; b < m_parts.size(); ++b)
    {
        const auto has = NrHelper::GetGnbPhy(m_gnb.Get(0), b)->GetRbNum();
        if (const auto blocks = m_bandBlocks[b ? UP : DOWN]; has != blocks)
        {
            throw std::runtime_error("5G-LENA has " + std::to_string(has) +
                                     " resource blocks, not " + std::to_string(blocks));
        }
    }
    for (std::size_t k = 0, next = 0; k < m_ues.size(); ++k)
    {
        next < missing.size() && missing[next] == k ? void(++next) : Watch(k);
    }
    return missing;
}

void
Nr::Watch(std::size_t uav)
{
    Ue& ue = m_ues[uav];
    const uint16_t rnti = ue.device->GetRrc()->GetRnti();
    m_byRnti[rnti] = uav;
    for (const auto direction : {UP, DOWN})
    {
        const std::string path =
            direction == UP ? "/NodeList/" + std::to_string(ue.node->GetId()) +
                                  "/DeviceList/*/$ns3::NrUeNetDevice/nrUeRrc/DataRadioBearerMap/*"
                            : "/NodeList/" + std::to_string(m_gnb.Get(0)->GetNode()->GetId()) +
                                  "/DeviceList/*/$ns3::NrGnbNetDevice/NrGnbRrc/UeMap/" +
                                  std::to_string(rnti) + "/DataRadioBearerMap/*";
        const auto found = Config::LookupMatches(path);
        if (found.GetN() == 0)
        {
            throw std::runtime_error("no bearer at " + path);
        }
        auto bearer = found.Get(0)->GetObject<NrRadioBearerInfo>();
        ue.queue[direction] = DynamicCast<NrRlcUm>(bearer->m_rlc);
        using Sent = Callback<void, uint16_t, uint8_t, uint32_t>;
        auto left = [this, direction, uav](uint16_t, uint8_t, uint32_t bytes) {
            if (log)
            {
                log->Note(Log::SENT, direction, uav, bytes);
            }
            if (drained)
            {
                Simulator::ScheduleNow([this, direction, uav] { drained(direction, uav); });
            }
        };
        bearer->m_rlc->TraceConnectWithoutContext("TxPDU", Sent(left));
        if (direction == DOWN)
        {
            auto enters = [this, uav](uint16_t, uint8_t, uint32_t bytes) {
                m_ues[uav].underWay -= bytes - NR_PDCP_HEADER;
            };
            bearer->m_pdcp->TraceConnectWithoutContext("TxPDU", Sent(enters));
        }
    }
}

std::size_t
Nr::Number(uint16_t rnti) const
{
    const auto found = m_byRnti.find(rnti);
    return found == m_byRnti.end() ? m_ues.size() : found->second;
}

void
Nr::Received(Direction direction, const RxPacketTraceParams& block)
{
    SchedulerOf(direction)->Measured(direction, block.m_rnti, block.m_sinr, block.m_rbAssignedNum);
    const std::size_t uav = Number(block.m_rnti);
    if (uav >= m_ues.size())
    {
        return;
    }
    Ue& ue = m_ues[uav];
    // The trace is called for each part of a block (data, report of the buffer), not for each block.
    const int64_t now = Simulator::Now().GetNanoSeconds();
    if (std::exchange(ue.last[direction], now) == now)
    {
        return;
    }
    const double sinr = 10 * std::log10(block.m_sinr);
    ue.sinr[direction].Add(sinr);
    if (direction == DOWN)
    {
        ue.reported.Add(sinr);
    }
    if (counts)
    {
        Count& count = (*counts)(direction, uav);
        ++count.blocks;
        count.blockBits += 8ULL * block.m_tbSize;
        count.resourceBlocks += block.m_rbAssignedNum;
        count.mcs[block.m_mcs] += block.m_rv == 0;
        count.lost += block.m_corrupt;
    }
    if (log)
    {
        log->Note(block.m_rv ? Log::RETRANSMISSION : Log::GRANT,
                  direction,
                  uav,
                  block.m_tbSize,
                  block.m_rbAssignedNum,
                  block.m_mcs);
        if (block.m_corrupt)
        {
            log->Note(Log::LOST, direction, uav);
        }
    }
}

bool
Nr::IsOpen(Direction direction, std::size_t uav) const
{
    return static_cast<bool>(m_ues[uav].queue[direction]);
}

int64_t
Nr::Held(Direction direction, std::size_t uav) const
{
    const Ue& ue = m_ues[uav];
    const auto& queue = ue.queue[direction];
    return (queue ? QueueBytes(*queue) : 0) + (direction == DOWN ? ue.underWay : 0);
}

std::string
Nr::Why(Direction direction, std::size_t uav) const
{
    const Mean& sinr = m_ues[uav].sinr[direction];
    if (!sinr.count)
    {
        return "no transport block was sent";
    }
    char text[80];
    std::snprintf(text, sizeof text, "the mean SNR of transport blocks is %.1f dB", sinr.Value());
    return text;
}

void
Nr::Report(std::vector<double>& buffer)
{
    buffer.insert(buffer.end(), m_ues.size(), 0.0);
    for (Ue& ue : m_ues)
    {
        buffer.push_back(std::exchange(ue.reported, {}).Value());
    }
}

void
Nr::Carry(Direction direction, std::size_t uav, Ptr<Packet> packet)
{
    if (direction == UP)
    {
        m_ues[uav].device->Send(packet, Address(), ProtocolOf(packet));
    }
    else
    {
        const auto [address, tunnel] = TunnelTo(*m_gateway, m_ues[uav].device->GetImsi());
        m_ues[uav].underWay += packet->GetSize();
        m_gateway->SendToS5uSocket(packet, address, tunnel);
    }
}

} // namespace radio
