// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "lte.h"

#include "epc.h"

#include "ns3/boolean.h"
#include "ns3/callback.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/lte-common.h"
#include "ns3/lte-enb-rrc.h"
#include "ns3/lte-pdcp-header.h"
#include "ns3/lte-pdcp.h"
#include "ns3/lte-radio-bearer-info.h"
#include "ns3/lte-rlc-sdu-status-tag.h"
#include "ns3/lte-rlc-um.h"
#include "ns3/lte-spectrum-value-helper.h"
#include "ns3/lte-ue-phy.h"
#include "ns3/lte-ue-rrc.h"
#include "ns3/nstime.h"
#include "ns3/simulator.h"
#include "ns3/spectrum-channel.h"
#include "ns3/spectrum-signal-parameters.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace radio
{

using namespace ns3;

namespace
{
constexpr int ATTACH_STEP_MS = 10;
/// RLC's queues are never full: what is held is bounded by what sends.
constexpr uint32_t RLC_BYTES = 100'000'000;
/// Every UE has its own subframe of the period of its sounding, and another one while it moves to
/// another cell.
constexpr std::array<std::size_t, 6> SOUNDING_TTIS{10, 20, 40, 80, 160, 320};
constexpr uint32_t PDCP_HEADER = 2; // bytes
constexpr int64_t INTERRUPTION_UNIT = 100'000; // ns, in the log
constexpr uint8_t DEFAULT_BEARER = 1;
constexpr int HANDOVER_PREAMBLES = 200;
const Time HANDOVER_LIMIT = Seconds(10);
const Time CONTROL_REGION = NanoSeconds(214286); // 3 symbols
constexpr int64_t FIRST_STREAM = 100'000; // of random numbers, after those of devices

/// Copies of the packets in a queue of RLC of which nothing has been sent, oldest first, without
/// headers.
template <class Queue>
std::vector<Ptr<Packet>>
UnsentOf(const Queue& queue)
{
    std::vector<Ptr<Packet>> packets;
    for (const auto& waiting : queue)
    {
        LteRlcSduStatusTag status;
        if (!waiting.m_pdu->PeekPacketTag(status) ||
            status.GetStatus() == LteRlcSduStatusTag::FULL_SDU)
        {
            packets.push_back(waiting.m_pdu->Copy());
            LtePdcpHeader header;
            packets.back()->RemoveHeader(header);
            packets.back()->RemoveAllPacketTags();
        }
    }
    return packets;
}

/// Reads private members, by an explicit instantiation: ns-3 shows the size of RLC's queue only to
/// the MAC, and what is in it to nothing.
template <auto Size, auto Queue>
struct RevealedQueue
{
    friend uint32_t QueueBytes(const LteRlcUm& rlc)
    {
        return rlc.*Size;
    }

    friend std::vector<Ptr<Packet>> Unsent(const LteRlcUm& rlc)
    {
        return UnsentOf(rlc.*Queue);
    }
};

uint32_t QueueBytes(const LteRlcUm& rlc);
std::vector<Ptr<Packet>> Unsent(const LteRlcUm& rlc);
template struct RevealedQueue<&LteRlcUm::m_txBufferSize, &LteRlcUm::m_txBuffer>;

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

/// The differentiated services codepoint of a packet of IPv4 or IPv6, RFC 2474.
int
Dscp(const Packet& packet)
{
    uint8_t head[2] = {0, 0};
    packet.CopyData(head, sizeof head);
    const bool isIpv6 = head[0] >> 4 == 6;
    return isIpv6 ? (head[0] & 0x0f) << 2 | head[1] >> 6 : head[1] >> 2;
}

int64_t
Now()
{
    return Simulator::Now().GetNanoSeconds();
}
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
    if (settings.isA3)
    {
        m_lte->SetHandoverAlgorithmType("ns3::A3RsrpHandoverAlgorithm");
        m_lte->SetHandoverAlgorithmAttribute("Hysteresis", DoubleValue(settings.hysteresis));
        m_lte->SetHandoverAlgorithmAttribute("TimeToTrigger",
                                             TimeValue(Seconds(settings.timeToTrigger)));
    }
    InstallEnbs(settings);
    InstallUes(air, settings);
    SetTerms(settings);
    FindGateway();
}

void
Lte::InstallEnbs(const LteSettings& settings)
{
    const std::size_t cells = m_air.Cells();
    m_enb.Create(cells);
    for (std::size_t c = 0; c < cells; ++c)
    {
        m_enb.Get(c)->AggregateObject(m_air.BaseStation(c));
    }
    m_enbDevices = m_lte->InstallEnbDevice(m_enb);
    for (std::size_t c = 0; c < cells; ++c)
    {
        Enb(c)->GetPhy()->SetTxPower(settings.downlinkPower[c]);
        auto carrier = DynamicCast<ComponentCarrierEnb>(Enb(c)->GetCcMap().at(0));
        auto scheduler = DynamicCast<Scheduler>(carrier->GetFfMacScheduler());
        scheduler->Use(settings.cell, FIRST_STREAM + 10 * static_cast<int64_t>(c));
        Observe(c, scheduler);
    }
    for (std::size_t c = 0; c < settings.loads.size(); ++c)
    {
        const double power = settings.downlinkPower[c];
        std::vector<int> blocks(settings.resourceBlocks);
        std::iota(blocks.begin(), blocks.end(), 0);
        m_others.push_back(
            {settings.loads[c],
             // A single user, and no UE with which it would share.
             std::make_unique<Background>(settings.loads[c], 1, FIRST_STREAM + 10 * c + 6),
             LteSpectrumValueHelper::CreateTxPowerSpectralDensity(Enb(c)->GetDlEarfcn(),
                                                                  settings.resourceBlocks,
                                                                  power,
                                                                  blocks)});
        if (settings.loads[c] > 0)
        {
            Simulator::Schedule(CONTROL_REGION, &Lte::Interfere, this, c);
        }
    }
    if (cells > 1)
    {
        m_lte->AddX2Interface(m_enb);
    }
}

void
Lte::Interfere(std::size_t cell)
{
    Simulator::Schedule(MilliSeconds(1), &Lte::Interfere, this, cell);
    if (m_others[cell].bursts->Next(1, 0))
    {
        auto signal = Create<SpectrumSignalParameters>();
        signal->psd = m_others[cell].power;
        signal->txPhy = Enb(cell)->GetPhy()->GetDlSpectrumPhy();
        signal->duration = MilliSeconds(1) - CONTROL_REGION - NanoSeconds(1);
        m_lte->GetDownlinkSpectrumChannel()->StartTx(signal);
    }
}

void
Lte::Observe(std::size_t cell, Ptr<Scheduler> scheduler)
{
    scheduler->Use([this, cell](uint16_t rnti) {
        const std::size_t uav = Number({cell, rnti});
        return uav < m_ues.size() ? m_ues[uav].terms : Terms{};
    });
    scheduler->Observe(
        [this, cell](const Grant& grant) {
            const std::size_t uav = Number({cell, grant.rnti});
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
        [this, cell](Direction direction, uint16_t rnti) {
            const std::size_t uav = Number({cell, rnti});
            if (log && uav < m_ues.size())
            {
                log->Note(Log::LOST, direction, uav);
            }
            if (counts && uav < m_ues.size())
            {
                ++(*counts)(direction, uav).lost;
            }
        },
        [this, cell](uint16_t rnti, int64_t ttis) {
            const std::size_t uav = Number({cell, rnti});
            if (log && uav < m_ues.size())
            {
                log->Note(Log::ASKED, UP, uav, static_cast<uint32_t>(ttis));
            }
        });
    using Happens = Callback<void, uint64_t, uint16_t, uint16_t>;
    Enb(cell)->GetRrc()->TraceConnectWithoutContext(
        "NotifyConnectionRelease",
        Happens([this, cell, scheduler](uint64_t, uint16_t, uint16_t rnti) {
            scheduler->Forget(rnti);
            m_byContext.erase({cell, rnti});
        }));
    Enb(cell)->GetRrc()->TraceConnectWithoutContext(
        "HandoverEndOk",
        Happens([this, cell](uint64_t, uint16_t, uint16_t rnti) { Joins(Number({cell, rnti})); }));
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
    const std::size_t needed = m_air.Uavs() * (m_air.Cells() > 1 ? 2 : 1);
    const auto period = std::lower_bound(SOUNDING_TTIS.begin(), SOUNDING_TTIS.end() - 1, needed);
    set("LteEnbRrc::SrsPeriodicity", UintegerValue(*period));
    // TS 36.331, 9.2.1; ns-3's 100 ms would delay what arrives after each lost block by a slot.
    set("LteRlcUm::ReorderingTimer", TimeValue(MilliSeconds(35)));
    set("LteUeRrc::T300", TimeValue(MilliSeconds(2000)));
    set("LteUePhy::EnableUplinkPowerControl", BooleanValue(false));
    set("LteUePhy::EnableRlfDetection", BooleanValue(false)); // A UAV comes back from an outage.
    set("LteUePhy::NoiseFigure", DoubleValue(settings.downlinkNoiseFigure));
    set("LteEnbPhy::NoiseFigure", DoubleValue(settings.uplinkNoiseFigure));
    set("LteAmc::AmcModel", StringValue("Vienna"));
    if (m_air.Cells() > 1)
    {
        // A UE whose random access fails in a handover never comes back in ns-3: it may try for long.
        set("LteEnbRrc::HandoverJoiningTimeoutDuration", TimeValue(HANDOVER_LIMIT));
        set("LteEnbRrc::HandoverLeavingTimeoutDuration", TimeValue(HANDOVER_LIMIT));
        set("LteEnbMac::PreambleTransMax", UintegerValue(HANDOVER_PREAMBLES));
        // The rest of 64 is for handovers, each of which has its own for HANDOVER_PREAMBLES * 8 ms.
        set("LteEnbMac::NumberOfRaPreambles", UintegerValue(24));
    }
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
        InstallUe(m_ues[k].node, m_ues[k].device, k, [this, k](Ptr<const Packet> packet) {
            Arrives(DOWN, k, packet);
        });
        auto received = [&](std::size_t cell) {
            return settings.downlinkPower[cell] + air.Gain(DOWN, k, cell);
        };
        std::size_t& strongest = m_ues[k].cell;
        for (std::size_t c = 1; c < air.Cells(); ++c)
        {
            strongest = received(c) > received(strongest) ? c : strongest;
        }
        m_lte->Attach(m_ues[k].device, m_enbDevices.Get(strongest));
        WatchHandovers(k);
    }
}

void
Lte::FindGateway()
{
    m_gateway =
        InstallGateway<EpcPgwApplication>(m_epc->GetPgwNode(), [this](Ptr<const Packet> packet) {
            const Mark mark = Mark::Of(packet);
            Arrives(UP, mark.serial ? mark.uav : m_ues.size(), packet);
        });
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
            for (std::size_t k = 0; k < m_ues.size(); ++k)
            {
                Watch(k);
            }
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
    const Ue& ue = m_ues[uav];
    // Until the new cell knows of the UE, the gateway drops what comes from there.
    return ue.queue[direction] && !(direction == UP && ue.isMoving);
}

void
Lte::Watch(std::size_t uav)
{
    Ue& watched = m_ues[uav];
    const uint16_t rnti = watched.device->GetRrc()->GetRnti();
    const std::string base = "/NodeList/" + std::to_string(m_enb.Get(watched.cell)->GetId());
    const std::string node = "/NodeList/" + std::to_string(watched.node->GetId());
    const std::string ue = "/DeviceList/*/LteUeRrc/";
    const std::string enb = "/DeviceList/*/LteEnbRrc/UeMap/" + std::to_string(rnti) + "/";
    m_byContext[{watched.cell, rnti}] = uav;
    for (const auto direction : {UP, DOWN})
    {
        const auto bearers = Config::LookupMatches((direction == UP ? node + ue : base + enb) +
                                                   "DataRadioBearerMap/*");
        auto bearer = DynamicCast<LteDataRadioBearerInfo>(bearers.Get(0));
        watched.queue[direction] = DynamicCast<LteRlcUm>(bearer->m_rlc);
        auto left = [this, direction, uav](uint16_t, uint8_t, uint32_t bytes) {
            if (log)
            {
                log->Note(Log::SENT, direction, uav, bytes);
            }
            Left(direction, uav);
        };
        using Sent = Callback<void, uint16_t, uint8_t, uint32_t>;
        bearer->m_rlc->TraceConnectWithoutContext("TxPDU", Sent(left));
        if (direction == DOWN)
        {
            auto enters = [this, uav](uint16_t, uint8_t, uint32_t bytes) {
                m_ues[uav].underWay -= bytes - PDCP_HEADER;
            };
            bearer->m_pdcp->TraceConnectWithoutContext("TxPDU", Sent(enters));
        }
    }
}

void
Lte::WatchHandovers(std::size_t uav)
{
    auto rrc = m_ues[uav].device->GetRrc();
    using Starts = Callback<void, uint64_t, uint16_t, uint16_t, uint16_t>;
    rrc->TraceConnectWithoutContext(
        "HandoverStart",
        Starts([this, uav](uint64_t, uint16_t, uint16_t, uint16_t cellId) {
            std::size_t to = 0;
            while (Enb(to)->GetCellId() != cellId)
            {
                ++to;
            }
            Leaves(uav, to);
        }));
    using Fails = Callback<void, uint64_t, uint16_t, uint16_t>;
    rrc->TraceConnectWithoutContext(
        "HandoverEndError",
        Fails([uav](uint64_t, uint16_t cellId, uint16_t) {
            throw std::runtime_error("UAV " + std::to_string(uav + 1) +
                                     ": the random access to cell " + std::to_string(cellId - 1) +
                                     " failed in a handover");
        }));
    using Measured = Callback<void, uint16_t, uint16_t, double, double, uint8_t>;
    m_ues[uav].device->GetPhy()->TraceConnectWithoutContext(
        "ReportCurrentCellRsrpSinr",
        Measured([this, uav](uint16_t, uint16_t, double, double sinr, uint8_t) {
            if (sinr > 0)
            {
                m_ues[uav].sinrSum += 10 * std::log10(sinr);
                ++m_ues[uav].sinrCount;
            }
        }));
}

void
Lte::Leaves(std::size_t uav, std::size_t to)
{
    Ue& ue = m_ues[uav];
    ue.last = m_handovers.size();
    m_handovers.push_back({uav, ue.cell, to, Now()});
    if (log)
    {
        log->Note(Log::HANDOVER, DOWN, uav, 0, ue.cell, to);
    }
    ue.isMoving = true;
    // Both ends lose their queues.
    if (ue.queue[UP])
    {
        ue.moving = Unsent(*ue.queue[UP]);
        auto manager = Enb(ue.cell)->GetRrc()->GetUeManager(ue.device->GetRrc()->GetRnti());
        for (const auto& packet : Unsent(*ue.queue[DOWN]))
        {
            ue.underWay += packet->GetSize();
            manager->SendData(DEFAULT_BEARER, packet); // which forwards it to the new cell
        }
    }
    ue.queue[UP] = ue.queue[DOWN] = nullptr;
    ue.cell = to;
    Simulator::ScheduleNow(&Lte::Watch, this, uav); // when its RRC has the new RNTI and bearers
}

void
Lte::Joins(std::size_t uav)
{
    Ue& ue = m_ues[uav];
    Handover& made = m_handovers[ue.last];
    made.end = Now();
    ue.isMoving = false;
    for (const auto& packet : std::exchange(ue.moving, {}))
    {
        ue.device->Send(packet, Address(), ProtocolOf(packet));
    }
    made.waiting[UP] = QueueBytes(*ue.queue[UP]);
    made.waiting[DOWN] = QueueBytes(*ue.queue[DOWN]);
    if (log)
    {
        log->Note(Log::HANDED_OVER, DOWN, uav, 0, made.from, made.to);
    }
    Left(UP, uav);
    Left(DOWN, uav);
}

void
Lte::Arrives(Direction direction, std::size_t uav, Ptr<const Packet> packet)
{
    if (uav < m_ues.size())
    {
        Ue& ue = m_ues[uav];
        if (ue.last >= 0)
        {
            Handover& last = m_handovers[ue.last];
            int64_t& interruption = last.interruption[direction];
            if (last.end >= 0 && interruption < 0 && ue.arrival[direction] >= 0)
            {
                interruption = Now() - ue.arrival[direction];
                if (log)
                {
                    log->Note(Log::INTERRUPTION,
                              direction,
                              uav,
                              std::min<int64_t>(interruption / INTERRUPTION_UNIT, UINT16_MAX));
                }
            }
        }
        ue.arrival[direction] = Now();
    }
    ComesOut(direction, uav, packet);
}

const std::vector<Handover>&
Lte::Handovers() const
{
    return m_handovers;
}

void
Lte::Report(std::vector<double>& buffer)
{
    for (const Ue& ue : m_ues)
    {
        buffer.push_back(static_cast<double>(ue.cell));
    }
    for (Ue& ue : m_ues)
    {
        buffer.push_back(ue.sinrCount ? ue.sinrSum / ue.sinrCount
                                      : std::numeric_limits<double>::quiet_NaN());
        ue.sinrSum = 0;
        ue.sinrCount = 0;
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
    const auto& queue = ue.queue[direction];
    return (queue ? QueueBytes(*queue) : 0) + (direction == DOWN ? ue.underWay : 0);
}

std::string
Lte::Why(Direction direction, std::size_t uav) const
{
    char text[80];
    const double gain = m_air.Gain(direction, uav, m_ues[uav].cell);
    std::snprintf(text, sizeof text, "its channel is too weak, %.1f dB at the end", gain);
    return text;
}

std::size_t
Lte::Number(const Context& context) const
{
    const auto found = m_byContext.find(context);
    return found == m_byContext.end() ? m_ues.size() : found->second;
}

Ptr<LteEnbNetDevice>
Lte::Enb(std::size_t cell) const
{
    return DynamicCast<LteEnbNetDevice>(m_enbDevices.Get(cell));
}

} // namespace radio
