// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "scheduler.h"

#include "ns3/ff-mac-common.h"
#include "ns3/lte-common.h"
#include "ns3/lte-vendor-specific-parameters.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace radio
{

using ns3::FfMacSchedSapProvider;
using ns3::FfMacSchedSapUser;

namespace
{
/// Below this a UE has sent nothing in its grant, dB. MCS 0 needs about -2 dB.
constexpr double SILENT = -100;
} // namespace

/// What the eNB's MAC calls: our steps before ns-3's.
class Scheduler::Provider : public FfMacSchedSapProvider
{
  public:
    explicit Provider(Scheduler& scheduler)
        : m_scheduler(scheduler)
    {
    }

    void SchedDlRlcBufferReq(const SchedDlRlcBufferReqParameters& params) override
    {
        m_scheduler.m_inner->SchedDlRlcBufferReq(params);
    }

    void SchedDlPagingBufferReq(const SchedDlPagingBufferReqParameters& params) override
    {
        m_scheduler.m_inner->SchedDlPagingBufferReq(params);
    }

    void SchedDlMacBufferReq(const SchedDlMacBufferReqParameters& params) override
    {
        m_scheduler.m_inner->SchedDlMacBufferReq(params);
    }

    void SchedDlTriggerReq(const SchedDlTriggerReqParameters& given) override
    {
        auto params = given;
        std::erase_if(params.m_dlInfoList, m_scheduler.FromLeft());
        for (const auto& info : params.m_dlInfoList)
        {
            for (const auto status : info.m_harqStatus)
            {
                if (status == ns3::DlInfoListElement_s::NACK && m_scheduler.m_lost)
                {
                    m_scheduler.m_lost(DOWN, info.m_rnti);
                }
            }
        }
        m_scheduler.m_inner->SchedDlTriggerReq(params);
    }

    void SchedDlRachInfoReq(const SchedDlRachInfoReqParameters& params) override
    {
        m_scheduler.m_inner->SchedDlRachInfoReq(params);
    }

    void SchedDlCqiInfoReq(const SchedDlCqiInfoReqParameters& params) override
    {
        m_scheduler.m_inner->SchedDlCqiInfoReq(params);
    }

    void SchedUlTriggerReq(const SchedUlTriggerReqParameters& params) override
    {
        m_scheduler.UplinkTrigger(params);
    }

    void SchedUlNoiseInterferenceReq(const SchedUlNoiseInterferenceReqParameters& params) override
    {
        m_scheduler.m_inner->SchedUlNoiseInterferenceReq(params);
    }

    void SchedUlSrInfoReq(const SchedUlSrInfoReqParameters& params) override
    {
        m_scheduler.m_inner->SchedUlSrInfoReq(params);
    }

    void SchedUlMacCtrlInfoReq(const SchedUlMacCtrlInfoReqParameters& params) override
    {
        m_scheduler.UplinkReports(params);
    }

    void SchedUlCqiInfoReq(const SchedUlCqiInfoReqParameters& params) override
    {
        m_scheduler.UplinkMeasured(params);
    }

  private:
    Scheduler& m_scheduler;
};

/// What ns-3's scheduler calls: the eNB's MAC, after our notes.
class Scheduler::User : public FfMacSchedSapUser
{
  public:
    User(Scheduler& scheduler, FfMacSchedSapUser* user)
        : m_scheduler(scheduler),
          m_user(user)
    {
    }

    void SchedDlConfigInd(const SchedDlConfigIndParameters& params) override
    {
        m_scheduler.DownlinkGranted(params);
        m_user->SchedDlConfigInd(params);
    }

    void SchedUlConfigInd(const SchedUlConfigIndParameters& params) override
    {
        m_scheduler.UplinkGranted(params);
        m_user->SchedUlConfigInd(params);
    }

  private:
    Scheduler& m_scheduler;
    FfMacSchedSapUser* m_user;
};

ns3::TypeId
Scheduler::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("radio::Scheduler")
                                 .SetParent<ns3::PfFfMacScheduler>()
                                 .AddConstructor<Scheduler>();
    return tid;
}

Scheduler::Scheduler()
    : m_provider(std::make_unique<Provider>(*this)),
      m_inner(PfFfMacScheduler::GetFfMacSchedSapProvider())
{
}

Scheduler::~Scheduler() = default;

void
Scheduler::SetFfMacSchedSapUser(FfMacSchedSapUser* user)
{
    m_user = std::make_unique<User>(*this, user);
    PfFfMacScheduler::SetFfMacSchedSapUser(m_user.get());
}

FfMacSchedSapProvider*
Scheduler::GetFfMacSchedSapProvider()
{
    return m_provider.get();
}

void
Scheduler::SetResourceBlocks(std::size_t resourceBlocks)
{
    m_resourceBlocks = resourceBlocks;
    // TS 36.213, table 7.1.6.1-1.
    m_groupBlocks = resourceBlocks <= 10 ? 1 : resourceBlocks <= 26 ? 2 : resourceBlocks <= 63 ? 3 : 4;
}

void
Scheduler::Observe(std::function<void(const Grant&)> granted,
                   std::function<void(Direction, uint16_t)> lost)
{
    m_granted = std::move(granted);
    m_lost = std::move(lost);
}

void
Scheduler::Forget(uint16_t rnti)
{
    m_backlog.erase(rnti);
    m_left.insert(rnti);
}

void
Scheduler::UplinkTrigger(const FfMacSchedSapProvider::SchedUlTriggerReqParameters& given)
{
    auto params = given;
    std::erase_if(params.m_ulInfoList, FromLeft());
    std::size_t retransmitting = 0;
    for (const auto& info : params.m_ulInfoList)
    {
        if (info.m_receptionStatus == ns3::UlInfoListElement_s::NotOk)
        {
            ++retransmitting;
            if (m_lost)
            {
                m_lost(UP, info.m_rnti);
            }
        }
    }
    const std::size_t most = m_resourceBlocks / MIN_BLOCKS;
    TakeTurns(params.m_sfnSf, most > retransmitting ? most - retransmitting : 1);
    m_sfnSf = params.m_sfnSf;
    m_uplinkGrants.erase(m_sfnSf); // from 10.24 s ago, when nothing was received
    m_inner->SchedUlTriggerReq(params);
}

void
Scheduler::TakeTurns(uint16_t sfnSf, std::size_t most)
{
    std::vector<uint16_t> waiting;
    for (const auto& [rnti, bytes] : m_backlog)
    {
        if (bytes > 0)
        {
            waiting.push_back(rnti);
        }
    }
    const bool hides = waiting.size() > most;
    if (!hides && !m_isHiding)
    {
        return;
    }
    m_isHiding = hides;
    std::vector<uint16_t> chosen = waiting;
    if (hides)
    {
        const auto next = std::upper_bound(waiting.begin(), waiting.end(), m_lastTurn);
        std::rotate(chosen.begin(), chosen.begin() + (next - waiting.begin()), chosen.end());
        chosen.resize(most);
        m_lastTurn = chosen.back();
    }
    FfMacSchedSapProvider::SchedUlMacCtrlInfoReqParameters reports;
    reports.m_sfnSf = sfnSf;
    for (const uint16_t rnti : waiting)
    {
        const bool isChosen = std::find(chosen.begin(), chosen.end(), rnti) != chosen.end();
        const auto bytes = static_cast<uint32_t>(isChosen ? m_backlog[rnti] : 0);
        ns3::MacCeListElement_s report;
        report.m_rnti = rnti;
        report.m_macCeType = ns3::MacCeListElement_s::BSR;
        report.m_macCeValue.m_bufferStatus.assign(4, 0);
        report.m_macCeValue.m_bufferStatus[0] = ns3::BufferSizeLevelBsr::BufferSize2BsrId(bytes);
        reports.m_macCeList.push_back(report);
    }
    m_inner->SchedUlMacCtrlInfoReq(reports);
}

void
Scheduler::UplinkReports(const FfMacSchedSapProvider::SchedUlMacCtrlInfoReqParameters& given)
{
    auto params = given;
    std::erase_if(params.m_macCeList, FromLeft());
    for (const auto& report : params.m_macCeList)
    {
        if (report.m_macCeType == ns3::MacCeListElement_s::BSR)
        {
            int64_t bytes = 0;
            for (const uint8_t level : report.m_macCeValue.m_bufferStatus)
            {
                bytes += ns3::BufferSizeLevelBsr::BsrId2BufferSize(level);
            }
            m_backlog[report.m_rnti] = bytes;
        }
    }
    m_inner->SchedUlMacCtrlInfoReq(params);
}

void
Scheduler::UplinkMeasured(const FfMacSchedSapProvider::SchedUlCqiInfoReqParameters& params)
{
    const auto grants = m_uplinkGrants.find(params.m_sfnSf);
    if (params.m_ulCqi.m_type != ns3::UlCqi_s::PUSCH || grants == m_uplinkGrants.end())
    {
        return;
    }
    for (const auto& grant : grants->second)
    {
        // In dB, as the efficiency of a scheme goes: interference differs between blocks.
        const auto first = params.m_ulCqi.m_sinr.begin() + grant.m_rbStart;
        const double sum = std::accumulate(
            first, first + grant.m_rbLen, 0.0, [](double total, uint16_t sinr) {
                return total + ns3::LteFfConverter::fpS11dot3toDouble(sinr);
            });
        const uint16_t measured =
            ns3::LteFfConverter::double2fpS11dot3(sum / grant.m_rbLen);
        if (ns3::LteFfConverter::fpS11dot3toDouble(measured) < SILENT)
        {
            continue;
        }
        // ns-3's scheduler takes values for all resource blocks of one UE if they are called SRS.
        auto report = params;
        report.m_ulCqi.m_type = ns3::UlCqi_s::SRS;
        report.m_ulCqi.m_sinr.assign(m_resourceBlocks, measured);
        ns3::VendorSpecificListElement_s whose;
        whose.m_type = SRS_CQI_RNTI_VSP;
        whose.m_length = sizeof(ns3::SrsCqiRntiVsp);
        whose.m_value = ns3::Create<ns3::SrsCqiRntiVsp>(grant.m_rnti);
        report.m_vendorSpecificList.assign(1, whose);
        m_inner->SchedUlCqiInfoReq(report);
    }
    m_uplinkGrants.erase(grants);
}

void
Scheduler::UplinkGranted(const FfMacSchedSapUser::SchedUlConfigIndParameters& params)
{
    m_uplinkGrants[m_sfnSf] = params.m_dciList;
    for (const auto& dci : params.m_dciList)
    {
        if (dci.m_ndi)
        {
            auto& bytes = m_backlog[dci.m_rnti];
            bytes = std::max<int64_t>(0, bytes - std::max(0, dci.m_tbSize - 2)); // RLC's header
        }
        if (m_granted)
        {
            m_granted({UP, dci.m_rnti, dci.m_tbSize, dci.m_rbLen, dci.m_mcs, dci.m_ndi != 0});
        }
    }
}

void
Scheduler::DownlinkGranted(const FfMacSchedSapUser::SchedDlConfigIndParameters& params)
{
    for (const auto& data : params.m_buildDataList)
    {
        const auto& dci = data.m_dci;
        const auto blocks = static_cast<uint32_t>(std::popcount(dci.m_rbBitmap) * m_groupBlocks);
        for (std::size_t layer = 0; m_granted && layer < dci.m_tbsSize.size(); ++layer)
        {
            m_granted({DOWN,
                       dci.m_rnti,
                       dci.m_tbsSize[layer],
                       blocks,
                       dci.m_mcs[layer],
                       dci.m_ndi[layer] != 0});
        }
    }
}

} // namespace radio
