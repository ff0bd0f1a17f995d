// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "scheduler.h"

#include "../lte/uplink.h"

#include "ns3/ff-mac-common.h"
#include "ns3/lte-common.h"
#include "ns3/lte-vendor-specific-parameters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace radio
{

namespace
{
/// Below this a UE has sent nothing in its grant, dB. MCS 0 needs about -2 dB.
constexpr double SILENT = -100;
/// Gap of M-QAM to Shannon's limit at a bit error rate of 5e-5.
const double GAP = -std::log(5 * 0.00005) / 1.5;
constexpr double SINR_STEP = 0.125; // in which SINRs are reported, rounded towards 0, dB
constexpr std::size_t LEAST_BYTES = 8; // ns-3's UE sends nothing in less
constexpr int64_t MEASURED_TTIS = 20;
constexpr int64_t ANSWER_TTIS = 8;    // a TTI later than the feedback on a downlink block
constexpr int64_t FEEDBACK_TTIS = 12; // after which it counts as lost for good
constexpr int HIGHEST_MCS = 28;
constexpr int MOST_RETRANSMISSIONS = 3;
constexpr double WINDOW = 99; // of the moving average, TTIs
constexpr double TTI = 0.001; // s
constexpr uint32_t RLC_HEADER = 2, RLC_HEADER_OF_SIGNALLING = 4; // bytes
constexpr uint8_t SIGNALLING = 2; // the last logical channel of RRC's messages; then come data
constexpr int URGENT = 1'000'000; // priority of RRC's messages
constexpr std::size_t PARTS = 1000; // of a TTI of the downlink, for other users

uint32_t
Header(uint8_t channel)
{
    return channel == 1 ? RLC_HEADER_OF_SIGNALLING : RLC_HEADER;
}

uint32_t
Waiting(const ns3::FfMacSchedSapProvider::SchedDlRlcBufferReqParameters& queue)
{
    return queue.m_rlcTransmissionQueueSize + queue.m_rlcRetransmissionQueueSize +
           queue.m_rlcStatusPduSize;
}

/// Bounds of an SINR that was reported, dB.
double
AtLeast(double sinr)
{
    return sinr > 0 ? sinr : sinr - SINR_STEP;
}

double
AtMost(double sinr)
{
    return sinr < 0 ? sinr : sinr + SINR_STEP;
}

/// An SINR in dB in a single resource block, for that in several.
double
Alone(double sinr, std::size_t blocks)
{
    return sinr + 10 * std::log10(static_cast<double>(blocks));
}

/// The mean of SINRs in dB, as the efficiency of a scheme goes: interference differs between blocks.
double
Mean(const std::vector<uint16_t>& sinr, std::size_t start, std::size_t blocks)
{
    double mean = 0;
    for (std::size_t block = start; block < start + blocks; ++block)
    {
        mean += ns3::LteFfConverter::fpS11dot3toDouble(sinr.at(block)) / blocks;
    }
    return mean;
}

/// The first place for adjacent blocks, or the largest smaller one.
Span
Place(const std::vector<bool>& taken, std::size_t blocks)
{
    Span best{0, 0};
    std::size_t start = 0;
    for (std::size_t i = 0; i < taken.size() && best.blocks < blocks; ++i)
    {
        start = taken[i] ? i + 1 : start;
        const std::size_t length = i + 1 - start;
        if (length > best.blocks)
        {
            best = {start, length};
        }
    }
    return best;
}

bool
IsFree(const std::vector<bool>& taken, Span place)
{
    const auto begin = taken.begin() + static_cast<std::ptrdiff_t>(place.start);
    return std::find(begin, begin + static_cast<std::ptrdiff_t>(place.blocks), true) ==
           begin + static_cast<std::ptrdiff_t>(place.blocks);
}

void
Take(std::vector<bool>& taken, Span place)
{
    std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(place.start), place.blocks, true);
}

ns3::UlDciListElement_s
UplinkGrant(uint16_t rnti, Span place, int mcs, std::size_t bytes)
{
    ns3::UlDciListElement_s dci;
    dci.m_rnti = rnti;
    dci.m_rbStart = place.start;
    dci.m_rbLen = place.blocks;
    dci.m_mcs = mcs;
    dci.m_tbSize = bytes;
    dci.m_ndi = 1;
    dci.m_tpc = 0; // no power control
    return dci;
}
} // namespace

ns3::TypeId
Scheduler::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("radio::Scheduler")
                                 .SetParent<ns3::FfMacScheduler>()
                                 .AddConstructor<Scheduler>();
    return tid;
}

Scheduler::Scheduler()
    : m_configuration(this),
      m_requests(this),
      m_amc(ns3::CreateObject<ns3::LteAmc>())
{
}

void
Scheduler::SetFfMacCschedSapUser(ns3::FfMacCschedSapUser* user)
{
    m_configured = user;
}

void
Scheduler::SetFfMacSchedSapUser(ns3::FfMacSchedSapUser* user)
{
    m_mac = user;
}

ns3::FfMacCschedSapProvider*
Scheduler::GetFfMacCschedSapProvider()
{
    return &m_configuration;
}

ns3::FfMacSchedSapProvider*
Scheduler::GetFfMacSchedSapProvider()
{
    return &m_requests;
}

void
Scheduler::SetLteFfrSapProvider(ns3::LteFfrSapProvider*)
{
    // Every resource block may be used: there is no frequency reuse.
}

ns3::LteFfrSapUser*
Scheduler::GetLteFfrSapUser()
{
    return nullptr;
}

void
Scheduler::Use(std::function<Terms(uint16_t)> terms)
{
    m_terms = std::move(terms);
}

void
Scheduler::Use(const CellTerms& cell, int64_t stream)
{
    m_cell = cell;
    m_background.clear();
    for (const int64_t direction : {UP, DOWN})
    {
        m_background.emplace_back(cell.load, cell.users, stream + 3 * direction);
    }
}

void
Scheduler::Observe(std::function<void(const Grant&)> granted,
                   std::function<void(Direction, uint16_t)> lost,
                   std::function<void(uint16_t, int64_t)> asked)
{
    m_granted = std::move(granted);
    m_lost = std::move(lost);
    m_asked = std::move(asked);
}

std::size_t
Scheduler::TakeForOthers(Direction direction, std::vector<bool>& taken)
{
    if (m_cell.load == 0)
    {
        return 0;
    }
    const auto senders = std::count_if(m_ues.begin(), m_ues.end(), [&](const auto& each) {
        return direction == UP ? each.second.backlog > 0 : Need(each.second) > 0;
    });
    if (direction == DOWN)
    {
        m_owed += static_cast<double>(m_background[DOWN].Next(PARTS, senders)) / PARTS;
        if (m_owed >= 1)
        {
            m_owed -= 1;
            taken.assign(taken.size(), true);
        }
        return 0;
    }
    const std::size_t blocks = m_background[UP].Next(m_bandBlocks[UP], senders);
    std::size_t places = blocks;
    for (std::size_t i = taken.size(); i > 0 && places > 0; --i)
    {
        places -= !taken[i - 1];
        taken[i - 1] = true;
    }
    return blocks;
}

void
Scheduler::DoCschedCellConfigReq(const Configuration::CschedCellConfigReqParameters& params)
{
    m_bandBlocks = {params.m_ulBandwidth, params.m_dlBandwidth};
    // TS 36.213, table 7.1.6.1-1, with ns-3's edges.
    const std::size_t blocks = m_bandBlocks[DOWN];
    m_groupBlocks = blocks < 10 ? 1 : blocks < 26 ? 2 : blocks < 63 ? 3 : 4;
    m_groups = blocks / m_groupBlocks;
    ns3::FfMacCschedSapUser::CschedUeConfigCnfParameters answer;
    answer.m_result = ns3::SUCCESS;
    m_configured->CschedUeConfigCnf(answer);
}

void
Scheduler::DoCschedUeConfigReq(const Configuration::CschedUeConfigReqParameters& params)
{
    m_ues.try_emplace(params.m_rnti);
}

void
Scheduler::DoCschedLcConfigReq(const Configuration::CschedLcConfigReqParameters&)
{
}

void
Scheduler::DoCschedLcReleaseReq(const Configuration::CschedLcReleaseReqParameters& params)
{
    const auto ue = m_ues.find(params.m_rnti);
    for (const uint8_t channel : params.m_logicalChannelIdentity)
    {
        if (ue != m_ues.end())
        {
            ue->second.queues.erase(channel);
        }
    }
}

void
Scheduler::DoCschedUeReleaseReq(const Configuration::CschedUeReleaseReqParameters& params)
{
    m_ues.erase(params.m_rnti);
}

// What is reported.

void
Scheduler::DoSchedDlRlcBufferReq(const Requests::SchedDlRlcBufferReqParameters& params)
{
    if (const auto ue = m_ues.find(params.m_rnti); ue != m_ues.end())
    {
        ue->second.queues[params.m_logicalChannelIdentity] = params;
    }
}

void
Scheduler::DoSchedDlPagingBufferReq(const Requests::SchedDlPagingBufferReqParameters&)
{
}

void
Scheduler::DoSchedDlMacBufferReq(const Requests::SchedDlMacBufferReqParameters&)
{
}

void
Scheduler::DoSchedDlRachInfoReq(const Requests::SchedDlRachInfoReqParameters& params)
{
    m_asking = params.m_rachList;
}

void
Scheduler::DoSchedDlCqiInfoReq(const Requests::SchedDlCqiInfoReqParameters& params)
{
    for (const auto& report : params.m_cqiList)
    {
        const auto ue = m_ues.find(report.m_rnti);
        if (report.m_cqiType != ns3::CqiListElement_s::A30 || ue == m_ues.end())
        {
            continue;
        }
        ue->second.cqi.clear();
        for (const auto& group : report.m_sbMeasResult.m_higherLayerSelected)
        {
            ue->second.cqi.push_back(group.m_sbCqi.at(0));
        }
        ue->second.reported = m_tti;
    }
}

void
Scheduler::DoSchedUlNoiseInterferenceReq(const Requests::SchedUlNoiseInterferenceReqParameters&)
{
}

void
Scheduler::DoSchedUlSrInfoReq(const Requests::SchedUlSrInfoReqParameters&)
{
}

void
Scheduler::DoSchedUlMacCtrlInfoReq(const Requests::SchedUlMacCtrlInfoReqParameters& params)
{
    for (const auto& report : params.m_macCeList)
    {
        const auto ue = m_ues.find(report.m_rnti);
        if (report.m_macCeType != ns3::MacCeListElement_s::BSR || ue == m_ues.end())
        {
            continue;
        }
        // A UE without data is silent in grants, too.
        const bool hadNone = ue->second.reportedNone;
        ue->second.backlog = 0;
        for (const uint8_t level : report.m_macCeValue.m_bufferStatus)
        {
            ue->second.backlog += ns3::BufferSizeLevelBsr::BsrId2BufferSize(level);
        }
        ue->second.reportedNone = ue->second.backlog == 0;
        if (hadNone || ue->second.reportedNone)
        {
            ue->second.unheard = 0;
        }
        ue->second.backlog =
            ue->second.wakening.Report(ue->second.backlog, m_tti, m_cell.period, report.m_rnti);
    }
}

void
Scheduler::Forget(uint16_t rnti)
{
    m_ues.erase(rnti);
}

void
Scheduler::DoSchedUlCqiInfoReq(const Requests::SchedUlCqiInfoReqParameters& params)
{
    const auto& report = params.m_ulCqi;
    if (report.m_type == ns3::UlCqi_s::SRS)
    {
        for (const auto& each : params.m_vendorSpecificList)
        {
            if (each.m_type != SRS_CQI_RNTI_VSP)
            {
                continue;
            }
            const auto about = ns3::DynamicCast<ns3::SrsCqiRntiVsp>(each.m_value);
            const auto ue = m_ues.find(about->GetRnti());
            const std::size_t blocks = m_bandBlocks[UP];
            const double sinr = AtLeast(Mean(report.m_sinr, 0, blocks));
            if (ue != m_ues.end() &&
                lte::used(lte::LEAST_BLOCKS, Reached(Alone(sinr, blocks))) > 0)
            {
                ue->second.unheard = 0;
            }
        }
        return;
    }
    const auto sent = std::find_if(m_uplink.begin(), m_uplink.end(), [&](const Tti& tti) {
        return tti.sfnSf == params.m_sfnSf;
    });
    if (report.m_type != ns3::UlCqi_s::PUSCH || sent == m_uplink.end())
    {
        return;
    }
    for (auto& [dci, retransmissions, isMeasured] : sent->blocks)
    {
        isMeasured = true;
        if (const auto ue = m_ues.find(dci.m_rnti); ue != m_ues.end())
        {
            Measure(ue->second, Mean(report.m_sinr, dci.m_rbStart, dci.m_rbLen), dci.m_rbLen);
        }
    }
}

void
Scheduler::Measure(Ue& ue, double sinr, std::size_t blocks) const
{
    if (sinr < SILENT)
    {
        ++ue.unheard;
        return;
    }
    const double least = Alone(AtLeast(sinr), blocks);
    const double most = Alone(AtMost(sinr), blocks);
    const bool agrees = IsMeasured(ue) && least <= ue.mostAlone && most >= ue.leastAlone;
    ue.leastAlone = agrees ? std::max(ue.leastAlone, least) : least;
    ue.mostAlone = agrees ? std::min(ue.mostAlone, most) : most;
    ue.sinr = sinr;
    ue.measuredBlocks = blocks;
    ue.measured = m_tti;
    ue.unheard = lte::used(blocks, Reached(ue.mostAlone)) > 0 ? 0 : ue.unheard + 1;
}

int64_t
Scheduler::Memory() const
{
    const auto turn = m_ues.size() * lte::LEAST_BLOCKS / m_bandBlocks[UP] + 1;
    return std::max<int64_t>(MEASURED_TTIS, 4 * turn);
}

Terms
Scheduler::TermsOf(uint16_t rnti) const
{
    return m_terms ? m_terms(rnti) : Terms{};
}

Scheduler::Tti&
Scheduler::Now()
{
    return m_uplink[m_tti % m_uplink.size()];
}

const Scheduler::Tti&
Scheduler::Answered() const
{
    return m_uplink[(m_tti - HARQ_PERIOD) % m_uplink.size()];
}

// Downlink.

void
Scheduler::DoSchedDlTriggerReq(const Requests::SchedDlTriggerReqParameters& params)
{
    ++m_tti;
    Now().blocks.clear();
    Downlink downlink;
    downlink.m_nrOfPdcchOfdmSymbols = 1;
    AnswerAccess(downlink);
    for (const auto& info : params.m_dlInfoList)
    {
        const bool isLost = info.m_harqStatus.at(0) == ns3::DlInfoListElement_s::NACK;
        if (isLost && m_lost)
        {
            m_lost(DOWN, info.m_rnti);
        }
    }
    auto feedback = std::exchange(m_postponed, {});
    feedback.insert(feedback.end(), params.m_dlInfoList.begin(), params.m_dlInfoList.end());
    ExpectFeedback(feedback);
    std::vector<bool> taken(m_groups, false);
    std::set<uint16_t> served;
    Hear(feedback, taken, served, downlink);
    TakeForOthers(DOWN, taken);
    if (std::find(taken.begin(), taken.end(), false) != taken.end())
    {
        ShareGroups(taken, served, downlink);
        GrantOwn(taken, served, downlink);
        for (auto& [rnti, ue] : m_ues)
        {
            ue.throughput *= 1 - 1 / WINDOW;
        }
        for (const auto& data : downlink.m_buildDataList)
        {
            if (data.m_dci.m_ndi[0])
            {
                m_ues[data.m_rnti].throughput += data.m_dci.m_tbsSize[0] / TTI / WINDOW;
            }
        }
    }
    if (!downlink.m_buildDataList.empty() || !downlink.m_buildRarList.empty())
    {
        m_mac->SchedDlConfigInd(downlink);
    }
}

void
Scheduler::ExpectFeedback(std::vector<ns3::DlInfoListElement_s>& feedback) const
{
    for (const auto& [rnti, ue] : m_ues)
    {
        for (std::size_t i = 0; i < ue.processes.size(); ++i)
        {
            if (ue.processes[i].granted + ANSWER_TTIS != m_tti || Cqi(ue, 0) == 0)
            {
                continue;
            }
            if (m_lost)
            {
                m_lost(DOWN, rnti);
            }
            ns3::DlInfoListElement_s none;
            none.m_rnti = rnti;
            none.m_harqProcessId = i;
            none.m_harqStatus = {ns3::DlInfoListElement_s::NACK};
            feedback.push_back(none);
        }
    }
}

void
Scheduler::AnswerAccess(Downlink& downlink)
{
    std::size_t start = 0;
    for (const auto& asks : std::exchange(m_asking, {}))
    {
        std::size_t blocks = 2;
        while (start + blocks < m_bandBlocks[UP] &&
               8 * UplinkBytes(0, blocks) < asks.m_estimatedSize)
        {
            ++blocks;
        }
        if (8 * UplinkBytes(0, blocks) < asks.m_estimatedSize ||
            start + blocks > m_bandBlocks[UP])
        {
            break; // It asks again.
        }
        const auto dci = UplinkGrant(asks.m_rnti, {start, blocks}, 0, UplinkBytes(0, blocks));
        ns3::BuildRarListElement_s answer;
        answer.m_rnti = dci.m_rnti;
        answer.m_grant.m_rnti = dci.m_rnti;
        answer.m_grant.m_rbStart = dci.m_rbStart;
        answer.m_grant.m_rbLen = dci.m_rbLen;
        answer.m_grant.m_tbSize = dci.m_tbSize;
        answer.m_grant.m_mcs = dci.m_mcs;
        answer.m_grant.m_hopping = false;
        answer.m_grant.m_tpc = 0;
        answer.m_grant.m_cqiRequest = false;
        answer.m_grant.m_ulDelay = false;
        downlink.m_buildRarList.push_back(answer);
        Now().blocks.push_back({dci, 0});
        start += blocks;
    }
}

void
Scheduler::Hear(const std::vector<ns3::DlInfoListElement_s>& feedback,
                std::vector<bool>& taken,
                std::set<uint16_t>& served,
                Downlink& downlink)
{
    for (const auto& info : feedback)
    {
        const auto ue = m_ues.find(info.m_rnti);
        if (ue == m_ues.end())
        {
            continue; // It has left the cell.
        }
        Process& process = ue->second.processes.at(info.m_harqProcessId);
        const auto& versions = process.data.m_dci.m_rv;
        if (versions.empty())
        {
            continue; // It is about another UE that had this RNTI.
        }
        if (info.m_harqStatus.at(0) != ns3::DlInfoListElement_s::NACK ||
            versions[0] == MOST_RETRANSMISSIONS)
        {
            process.granted = INT64_MIN / 2;
        }
        else if (served.contains(info.m_rnti) || !SendAgain(process, taken, downlink))
        {
            process.granted = m_tti; // It stays in use.
            m_postponed.push_back(info);
        }
        else
        {
            served.insert(info.m_rnti);
        }
    }
}

bool
Scheduler::SendAgain(Process& process, std::vector<bool>& taken, Downlink& downlink)
{
    auto& dci = process.data.m_dci;
    std::vector<std::size_t> places;
    const auto had = static_cast<std::size_t>(std::popcount(dci.m_rbBitmap));
    const auto last = static_cast<std::size_t>(std::bit_width(dci.m_rbBitmap)) - 1;
    const bool isOwn = TermsOf(dci.m_rnti).own[DOWN].has_value();
    bool isFree = true;
    for (std::size_t i = 0; i < m_groups; ++i)
    {
        isFree &= !(dci.m_rbBitmap >> i & 1) || !taken[i];
    }
    for (std::size_t i = 1; i <= m_groups && !isFree && !isOwn && places.size() < had; ++i)
    {
        if (const std::size_t group = (last + i) % m_groups; !taken[group])
        {
            places.push_back(group);
        }
    }
    if (!isFree && places.size() < had)
    {
        return false;
    }
    if (!isFree)
    {
        dci.m_rbBitmap = 0;
        for (const std::size_t group : places)
        {
            dci.m_rbBitmap |= uint32_t{1} << group;
        }
    }
    for (std::size_t i = 0; i < m_groups && !isOwn; ++i)
    {
        taken[i] = taken[i] || (dci.m_rbBitmap >> i & 1);
    }
    dci.m_ndi.at(0) = 0;
    ++dci.m_rv.at(0);
    process.granted = m_tti;
    downlink.m_buildDataList.push_back(process.data);
    if (m_granted)
    {
        m_granted({DOWN, dci.m_rnti, dci.m_tbsSize[0], process.blocks, dci.m_mcs[0], false});
    }
    return true;
}

void
Scheduler::ShareGroups(std::vector<bool>& taken,
                       const std::set<uint16_t>& served,
                       Downlink& downlink)
{
    struct Candidate
    {
        uint16_t rnti;
        const Ue* ue;
        int priority;
        uint64_t need;
        uint32_t groups{0};
        uint8_t cqi{15};
        uint64_t bytes{0};
    };

    std::vector<Candidate> candidates;
    for (const auto& [rnti, ue] : m_ues)
    {
        const Terms terms = TermsOf(rnti);
        if (terms.own[DOWN] || served.contains(rnti) || !Waits(ue))
        {
            continue;
        }
        const bool isUrgent =
            std::any_of(ue.queues.begin(), ue.queues.end(), [](const auto& each) {
                return each.first <= SIGNALLING && Waiting(each.second) > 0;
            });
        candidates.push_back({rnti, &ue, isUrgent ? URGENT : terms.priority, Need(ue)});
    }
    std::size_t room = m_cell.grants ? m_cell.grants : candidates.size();
    room -= std::min(room, downlink.m_buildDataList.size());
    for (std::size_t group = 0; group < m_groups; ++group)
    {
        Candidate* best = nullptr;
        double bestMetric = 0;
        for (auto& each : candidates)
        {
            const uint8_t cqi = Cqi(*each.ue, group);
            if (taken[group] || cqi == 0 || each.bytes >= each.need || (!each.groups && !room))
            {
                continue;
            }
            const double rate = DownlinkBytes(cqi, BlocksOf(uint32_t{1} << group)) / TTI;
            const double metric = rate / each.ue->throughput;
            if (!best || each.priority > best->priority ||
                (each.priority == best->priority && metric > bestMetric))
            {
                best = &each;
                bestMetric = metric;
            }
        }
        if (best)
        {
            taken[group] = true;
            room -= !best->groups;
            best->groups |= uint32_t{1} << group;
            best->cqi = std::min(best->cqi, Cqi(*best->ue, group));
            best->bytes = DownlinkBytes(best->cqi, BlocksOf(best->groups));
        }
    }
    for (const auto& each : candidates)
    {
        if (each.groups)
        {
            SendNew(each.rnti, each.groups, BlocksOf(each.groups), each.cqi, downlink);
        }
    }
}

void
Scheduler::GrantOwn(const std::vector<bool>& taken,
                    const std::set<uint16_t>& served,
                    Downlink& downlink)
{
    for (const auto& [rnti, ue] : m_ues)
    {
        const auto own = TermsOf(rnti).own[DOWN];
        if (!own || served.contains(rnti) || !Waits(ue))
        {
            continue;
        }
        // Allocation type 2 has adjacent blocks in any number, which ns-3 does not have: two UEs
        // whose blocks meet within a group both name it, each with the size of its own blocks.
        uint32_t groups = 0;
        std::size_t blocks = 0;
        uint8_t cqi = 15;
        for (std::size_t i = own->start; i < own->start + own->blocks; ++i)
        {
            const std::size_t group = std::min(i / m_groupBlocks, m_groups - 1);
            if (!taken[group] && Cqi(ue, group) > 0)
            {
                groups |= uint32_t{1} << group;
                cqi = std::min(cqi, Cqi(ue, group));
                ++blocks;
            }
        }
        if (blocks > 0)
        {
            SendNew(rnti, groups, blocks, cqi, downlink);
        }
    }
}

void
Scheduler::SendNew(uint16_t rnti,
                   uint32_t groups,
                   std::size_t blocks,
                   uint8_t cqi,
                   Downlink& downlink)
{
    Ue& ue = m_ues[rnti];
    ue.lastProcess = FreeProcess(ue).value();
    ns3::BuildDataListElement_s data;
    data.m_rnti = rnti;
    data.m_dci.m_rnti = rnti;
    data.m_dci.m_harqProcess = ue.lastProcess;
    data.m_dci.m_resAlloc = 0;
    data.m_dci.m_rbBitmap = groups;
    data.m_dci.m_mcs = {static_cast<uint8_t>(m_amc->GetMcsFromCqi(cqi))};
    data.m_dci.m_tbsSize = {static_cast<uint16_t>(DownlinkBytes(cqi, blocks))};
    data.m_dci.m_ndi = {1};
    data.m_dci.m_rv = {0};
    data.m_dci.m_tpc = 1; // no change
    const auto channels = std::count_if(ue.queues.begin(), ue.queues.end(), [](const auto& each) {
        return Waiting(each.second) > 0;
    });
    for (auto& [channel, queue] : ue.queues)
    {
        if (Waiting(queue) == 0)
        {
            continue;
        }
        const auto bytes = static_cast<uint16_t>(data.m_dci.m_tbsSize[0] / channels);
        ns3::RlcPduListElement_s part;
        part.m_logicalChannelIdentity = channel;
        part.m_size = bytes;
        data.m_rlcPduList.push_back({part});
        // RLC sends its status first, then what it repeats, then what is new.
        if (queue.m_rlcStatusPduSize > 0 && bytes >= queue.m_rlcStatusPduSize)
        {
            queue.m_rlcStatusPduSize = 0;
        }
        else if (queue.m_rlcRetransmissionQueueSize > 0 &&
                 bytes >= queue.m_rlcRetransmissionQueueSize)
        {
            queue.m_rlcRetransmissionQueueSize = 0;
        }
        else
        {
            const uint32_t carried = bytes - std::min<uint32_t>(bytes, Header(channel));
            queue.m_rlcTransmissionQueueSize -=
                std::min<uint32_t>(queue.m_rlcTransmissionQueueSize, carried);
        }
    }
    ue.processes[ue.lastProcess] = {m_tti, static_cast<uint32_t>(blocks), data};
    downlink.m_buildDataList.push_back(data);
    if (m_granted)
    {
        const auto& dci = data.m_dci;
        const auto count = static_cast<uint32_t>(blocks);
        m_granted({DOWN, rnti, dci.m_tbsSize[0], count, dci.m_mcs[0], true});
    }
}

std::optional<std::size_t>
Scheduler::FreeProcess(const Ue& ue) const
{
    for (std::size_t i = 1; i <= ue.processes.size(); ++i)
    {
        const std::size_t process = (ue.lastProcess + i) % ue.processes.size();
        if (m_tti >= ue.processes[process].granted + FEEDBACK_TTIS)
        {
            return process;
        }
    }
    return std::nullopt;
}

bool
Scheduler::Waits(const Ue& ue) const
{
    return Need(ue) > 0 && FreeProcess(ue).has_value();
}

uint64_t
Scheduler::Need(const Ue& ue)
{
    uint64_t channels = 0;
    uint64_t most = 0;
    for (const auto& [channel, queue] : ue.queues)
    {
        if (const uint64_t waiting = Waiting(queue); waiting > 0)
        {
            ++channels;
            most = std::max(most, waiting + Header(channel));
        }
    }
    return channels * most;
}

uint8_t
Scheduler::Cqi(const Ue& ue, std::size_t group) const
{
    const bool isKnown = m_tti - ue.reported <= Memory() && group < ue.cqi.size();
    return isKnown ? ue.cqi[group] : 1;
}

std::size_t
Scheduler::BlocksOf(uint32_t groups) const
{
    const bool hasLast = groups >> (m_groups - 1) & 1;
    const std::size_t more = m_bandBlocks[DOWN] - m_groups * m_groupBlocks;
    return std::popcount(groups) * m_groupBlocks + (hasLast ? more : 0);
}

std::size_t
Scheduler::DownlinkBytes(uint8_t cqi, std::size_t blocks) const
{
    return m_amc->GetDlTbSizeFromMcs(m_amc->GetMcsFromCqi(cqi), static_cast<int>(blocks)) / 8;
}

// Uplink.

void
Scheduler::DoSchedUlTriggerReq(const Requests::SchedUlTriggerReqParameters& params)
{
    Now().sfnSf = params.m_sfnSf;
    Uplink uplink;
    std::vector<bool> taken(m_bandBlocks[UP], false);
    std::set<uint16_t> served;
    for (const auto& [dci, retransmissions, isMeasured] : Answered().blocks)
    {
        if (const auto ue = m_ues.find(dci.m_rnti); ue != m_ues.end() && !isMeasured)
        {
            ++ue->second.unheard;
        }
    }
    for (const auto& [dci, retransmissions, isMeasured] : Now().blocks)
    {
        Take(taken, {dci.m_rbStart, dci.m_rbLen});
        served.insert(dci.m_rnti);
    }
    for (const auto& info : params.m_ulInfoList)
    {
        if (info.m_receptionStatus == ns3::UlInfoListElement_s::NotOk)
        {
            if (m_lost)
            {
                m_lost(UP, info.m_rnti);
            }
            const auto ue = m_ues.find(info.m_rnti);
            if (ue != m_ues.end() && ue->second.unheard < lte::SILENT_GRANTS)
            {
                SendAgain(info.m_rnti, taken, served, uplink);
            }
        }
    }
    const std::size_t again = uplink.m_dciList.size();
    for (auto& [rnti, ue] : m_ues)
    {
        if (ue.wakening.IsDue(m_tti))
        {
            ue.backlog = ue.wakening.Take();
            m_asked(rnti, ue.wakening.Held());
        }
    }
    const std::size_t all = m_bandBlocks[UP] - TakeForOthers(UP, taken);
    std::vector<uint16_t> sharing;
    for (const auto& [rnti, ue] : m_ues)
    {
        if (ue.backlog <= 0 || served.contains(rnti) || ue.unheard >= lte::SILENT_GRANTS)
        {
            continue;
        }
        const auto own = TermsOf(rnti).own[UP];
        if (!own)
        {
            sharing.push_back(rnti);
        }
        else if (IsFree(taken, *own))
        {
            SendNew(rnti, *own, taken, uplink);
        }
    }
    const std::size_t most = m_cell.grants ? m_cell.grants + again : 0;
    const std::size_t inTti = lte::at_once(all, sharing.size() + again, most);
    const std::size_t fresh = inTti > again ? inTti - again : 1;
    if (sharing.size() > fresh)
    {
        const auto next = std::upper_bound(sharing.begin(), sharing.end(), m_lastTurn);
        std::rotate(sharing.begin(), next, sharing.end());
        sharing.resize(fresh);
        m_lastTurn = sharing.back();
    }
    // Those who have least to send first: what they leave is for the others.
    constexpr std::size_t LEAST = lte::LEAST_BLOCKS;
    std::map<uint16_t, std::size_t> need;
    for (const uint16_t rnti : sharing)
    {
        const Ue& ue = m_ues[rnti];
        const auto waiting = static_cast<std::size_t>(ue.backlog) + RLC_HEADER;
        const bool isMuch = UplinkBytes(HIGHEST_MCS, all) < waiting;
        std::size_t& blocks = need[rnti] = isMuch ? all : LEAST;
        while (blocks < all && UplinkBytes(UplinkMcs(ue, blocks), Used(ue, blocks)) < waiting)
        {
            ++blocks;
        }
    }
    std::stable_sort(sharing.begin(), sharing.end(), [&need](uint16_t a, uint16_t b) {
        return need[a] < need[b];
    });
    std::size_t left = all / inTti * sharing.size();
    std::size_t others = sharing.size();
    for (const uint16_t rnti : sharing)
    {
        const std::size_t part = std::max(std::min(left / others--, need[rnti]), LEAST);
        left -= std::min(left, part);
        const Span place = Place(taken, part);
        if (place.blocks >= LEAST)
        {
            SendNew(rnti, place, taken, uplink);
        }
    }
    if (!uplink.m_dciList.empty())
    {
        m_mac->SchedUlConfigInd(uplink);
    }
}

void
Scheduler::SendAgain(uint16_t rnti,
                     std::vector<bool>& taken,
                     std::set<uint16_t>& served,
                     Uplink& uplink)
{
    for (auto [dci, retransmissions, isMeasured] : Answered().blocks)
    {
        const Span place{dci.m_rbStart, dci.m_rbLen};
        if (dci.m_rnti == rnti && retransmissions < MOST_RETRANSMISSIONS &&
            IsFree(taken, place) && served.insert(rnti).second)
        {
            Take(taken, place);
            dci.m_ndi = 0;
            Send({dci, retransmissions + 1}, uplink);
        }
    }
}

void
Scheduler::SendNew(uint16_t rnti, Span place, std::vector<bool>& taken, Uplink& uplink)
{
    Ue& ue = m_ues[rnti];
    place.blocks = Used(ue, place.blocks);
    int mcs = UplinkMcs(ue, place.blocks);
    while (mcs < HIGHEST_MCS && UplinkBytes(mcs, place.blocks) < LEAST_BYTES)
    {
        ++mcs;
    }
    const auto bytes = static_cast<int64_t>(UplinkBytes(mcs, place.blocks));
    ue.backlog = std::max<int64_t>(0, ue.backlog - std::max<int64_t>(0, bytes - RLC_HEADER));
    ue.wakening.Grant(m_tti);
    Take(taken, place);
    Send({UplinkGrant(rnti, place, mcs, bytes), 0}, uplink);
}

void
Scheduler::Send(const Sent& block, Uplink& uplink)
{
    const auto& dci = block.dci;
    Now().blocks.push_back(block);
    uplink.m_dciList.push_back(dci);
    if (m_granted)
    {
        m_granted({UP, dci.m_rnti, dci.m_tbSize, dci.m_rbLen, dci.m_mcs, dci.m_ndi != 0});
    }
}

double
Scheduler::Reached(double alone) const
{
    const double efficiency = m_amc->GetSpectralEfficiencyFromCqi(1);
    const double least = 10 * std::log10(GAP * (std::pow(2, efficiency) - 1));
    // What is reported must be at least that: a multiple of the step, below 0.
    const double above = (std::ceil(least / SINR_STEP) - 1) * SINR_STEP;
    return std::pow(10, (alone - above) / 10) * (1 - 1e-9);
}

bool
Scheduler::IsMeasured(const Ue& ue) const
{
    return m_tti - ue.measured <= Memory();
}

std::size_t
Scheduler::Used(const Ue& ue, std::size_t blocks) const
{
    if (!IsMeasured(ue))
    {
        return blocks;
    }
    const auto has = static_cast<int64_t>(blocks);
    const int64_t used = lte::used(has, Reached(ue.mostAlone));
    return used ? used : std::min(has, lte::LEAST_BLOCKS); // until it is out of range
}

int
Scheduler::UplinkMcs(const Ue& ue, std::size_t blocks) const
{
    if (!IsMeasured(ue))
    {
        return 0;
    }
    // Its power is spread over the resource blocks that it has.
    const double sinr = Alone(ue.sinr, ue.measuredBlocks) - Alone(0, blocks);
    const double efficiency = std::log2(1 + std::pow(10, sinr / 10) / GAP);
    const int cqi = m_amc->GetCqiFromSpectralEfficiency(efficiency);
    return cqi ? m_amc->GetMcsFromCqi(cqi) : 0;
}

std::size_t
Scheduler::UplinkBytes(int mcs, std::size_t blocks) const
{
    return m_amc->GetUlTbSizeFromMcs(mcs, static_cast<int>(blocks)) / 8;
}

} // namespace radio
