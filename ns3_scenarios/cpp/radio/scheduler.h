// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_SCHEDULER_H
#define RADIO_SCHEDULER_H

#include "air.h"

#include "ns3/ff-mac-sched-sap.h"
#include "ns3/pf-ff-mac-scheduler.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace radio
{

/// A transport block that the scheduler has granted.
struct Grant
{
    Direction direction;
    uint16_t rnti;
    uint32_t bytes;
    uint32_t resourceBlocks;
    int mcs;
    bool isNew; // not a retransmission
};

/// ns-3's proportional fair scheduler without the faults of its uplink, and with a view of its
/// grants.
///
/// ns-3's uplink shares the resource blocks among all UEs that have data, with at least three each.
/// Three blocks at MCS 0 are 7 bytes, in which ns-3's UE sends nothing; the UE is then never
/// measured, and stays at MCS 0. So not more UEs take part in a TTI than can have MIN_BLOCKS each,
/// and UEs take turns.
///
/// ns-3 measures the uplink (CQI) by the sounding reference signal (SRS), which spreads the UE's
/// power over the whole band and so is too low by up to 10 log10(K) dB, or by the data (PUSCH); the
/// latter takes a grant that the UE did not use for a measurement of 0, and the smallest of the
/// values that each resource block had at some time. Here, a measurement is one of data that was
/// sent, and its mean over the grant counts for all resource blocks: gains are the same over the band.
class Scheduler : public ns3::PfFfMacScheduler
{
  public:
    /// Smallest number of resource blocks of an uplink grant: 11 bytes at MCS 0.
    static constexpr std::size_t MIN_BLOCKS = 4;

    static ns3::TypeId GetTypeId();

    Scheduler();
    ~Scheduler() override;

    void SetFfMacSchedSapUser(ns3::FfMacSchedSapUser* user) override;
    ns3::FfMacSchedSapProvider* GetFfMacSchedSapProvider() override;

    /// Bandwidth of both directions in resource blocks; before the first TTI.
    void SetResourceBlocks(std::size_t resourceBlocks);

    /// Call `granted` for each grant, and `lost` for each block that did not arrive.
    void Observe(std::function<void(const Grant&)> granted,
                 std::function<void(Direction, uint16_t rnti)> lost);

    /// Have no more to do with a UE that is about to leave the cell: ns-3's scheduler would grant
    /// blocks for late reports of it, and abort.
    void Forget(uint16_t rnti);

  private:
    class Provider;
    class User;

    /// Whether an element of a report is from a UE that has left.
    auto FromLeft() const
    {
        return [this](const auto& element) { return m_left.contains(element.m_rnti); };
    }

    void UplinkTrigger(const ns3::FfMacSchedSapProvider::SchedUlTriggerReqParameters& params);
    void UplinkMeasured(const ns3::FfMacSchedSapProvider::SchedUlCqiInfoReqParameters& params);
    void UplinkReports(const ns3::FfMacSchedSapProvider::SchedUlMacCtrlInfoReqParameters& params);
    void UplinkGranted(const ns3::FfMacSchedSapUser::SchedUlConfigIndParameters& params);
    void DownlinkGranted(const ns3::FfMacSchedSapUser::SchedDlConfigIndParameters& params);
    void TakeTurns(uint16_t sfnSf, std::size_t most);

    std::unique_ptr<Provider> m_provider;
    std::unique_ptr<User> m_user;
    ns3::FfMacSchedSapProvider* m_inner{nullptr};
    std::size_t m_resourceBlocks{100};
    std::size_t m_groupBlocks{4}; // resource blocks of a group, the unit of the downlink
    std::map<uint16_t, int64_t> m_backlog; // by RNTI: bytes that the UE still has to send
    bool m_isHiding{false};                // ns-3's scheduler does not know all of the backlog
    std::set<uint16_t> m_left;             // RNTIs of UEs that have left; none is given twice
    uint16_t m_lastTurn{0};
    uint16_t m_sfnSf{0}; // of the TTI that is scheduled
    std::map<uint16_t, std::vector<ns3::UlDciListElement_s>> m_uplinkGrants; // by TTI
    std::function<void(const Grant&)> m_granted;
    std::function<void(Direction, uint16_t)> m_lost;
};

} // namespace radio

#endif
