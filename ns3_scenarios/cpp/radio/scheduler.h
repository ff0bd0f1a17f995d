// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_SCHEDULER_H
#define RADIO_SCHEDULER_H

#include "air.h"
#include "background.h"
#include "wakening.h"

#include "ns3/ff-mac-csched-sap.h"
#include "ns3/ff-mac-sched-sap.h"
#include "ns3/ff-mac-scheduler.h"
#include "ns3/lte-amc.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
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

/// Adjacent resource blocks.
struct Span
{
    std::size_t start;
    std::size_t blocks;
};

/// What the scheduler grants a UE.
struct Terms
{
    /// By direction: the resource blocks that are the UE's own, whether or not others send; none:
    /// it divides the band with the others.
    std::array<std::optional<Span>, 2> own;
    /// In the downlink, UEs of a higher priority are served first.
    int priority{0};
};

/// What else a cell has than its UEs, and its signalling.
struct CellTerms
{
    double load{0};        // share of the resource blocks that other users have, by direction
    std::size_t users{0};  // that have it in bursts; 0: always
    int64_t period{0};     // of scheduling requests, TTIs; 0: UEs need none
    std::size_t grants{0}; // most UEs with new grants in a TTI, by direction; 0: any number
};

/// The scheduler of a base station: who sends in which resource blocks of each TTI (FDD, one
/// layer).
///
/// Uplink. A UE with blocks of its own has them in each TTI in which it has something to send. The
/// other UEs divide the band by the rule of `lte/uplink.h`; what a UE leaves because it has little to
/// send is for the others. The scheme follows from the last measurement of the UE's own data
/// (PUSCH), not from its sounding signal (SRS), which spreads its power over the whole band. Gains
/// are the same over the band. A UE that was not heard in its last grants, or too weakly for
/// any scheme, is granted nothing until its sounding signal is strong enough again.
///
/// Downlink. A UE with blocks of its own has them, likewise. The other UEs share groups of resource
/// blocks (allocation type 0): those of the highest priority have all groups that they can fill,
/// then those of the next. UEs of equal priority are proportionally fair.
///
/// Blocks that were lost are sent again first, with the same size, up to three times (HARQ). What a
/// UE has to send is what it last reported, less what was granted since.
class Scheduler : public ns3::FfMacScheduler
{
  public:
    static ns3::TypeId GetTypeId();

    Scheduler();

    void SetFfMacCschedSapUser(ns3::FfMacCschedSapUser* user) override;
    void SetFfMacSchedSapUser(ns3::FfMacSchedSapUser* user) override;
    ns3::FfMacCschedSapProvider* GetFfMacCschedSapProvider() override;
    ns3::FfMacSchedSapProvider* GetFfMacSchedSapProvider() override;
    void SetLteFfrSapProvider(ns3::LteFfrSapProvider* provider) override;
    ns3::LteFfrSapUser* GetLteFfrSapUser() override;

    /// Ask for the terms of a UE in each TTI.
    void Use(std::function<Terms(uint16_t rnti)> terms);

    /// Set the terms of the cell. `stream`: the first of six random streams.
    void Use(const CellTerms& cell, int64_t stream);

    /// Call `granted` for each grant, `lost` for each block that did not arrive, and `asked` when a
    /// scheduling request has led to a report, with the number of TTIs for which data waited for it.
    void Observe(std::function<void(const Grant&)> granted,
                 std::function<void(Direction, uint16_t rnti)> lost,
                 std::function<void(uint16_t rnti, int64_t ttis)> asked);

    /// Have no more to do with a UE that is about to leave the cell: late reports of it would be
    /// answered by grants, on which ns-3 aborts.
    void Forget(uint16_t rnti);

  private:
    friend class ns3::MemberCschedSapProvider<Scheduler>;
    friend class ns3::MemberSchedSapProvider<Scheduler>;

    using Configuration = ns3::FfMacCschedSapProvider;
    using Requests = ns3::FfMacSchedSapProvider;
    using Downlink = ns3::FfMacSchedSapUser::SchedDlConfigIndParameters;
    using Uplink = ns3::FfMacSchedSapUser::SchedUlConfigIndParameters;

    /// A block in a downlink HARQ process.
    struct Process
    {
        int64_t granted{INT64_MIN / 2}; // the TTI; long ago where the process is free
        uint32_t blocks{0};
        ns3::BuildDataListElement_s data;
    };

    struct Ue
    {
        int64_t backlog{0}; // of the uplink, bytes
        double sinr{0};     // of the uplink's data, dB, in so many resource blocks, at that TTI
        std::size_t measuredBlocks{1};
        int64_t measured{INT64_MIN / 2};
        double leastAlone{0}; // bounds of the SINR in a single block, dB, by all measurements
        double mostAlone{0};  // that agree with the last one
        int unheard{0};       // last grants in which it was not heard
        bool reportedNone{true}; // whether it had nothing to send when it last reported
        Wakening wakening;
        std::map<uint8_t, Requests::SchedDlRlcBufferReqParameters> queues; // by logical channel
        std::vector<uint8_t> cqi; // of the downlink, by group of resource blocks, at that TTI
        int64_t reported{INT64_MIN / 2};
        double throughput{1}; // of the downlink, a moving average, byte/s
        std::array<Process, ns3::HARQ_PROC_NUM> processes;
        std::size_t lastProcess{0};
    };

    /// An uplink block.
    struct Sent
    {
        ns3::UlDciListElement_s dci;
        int retransmissions;
        bool isMeasured{false}; // whether there was any signal in its TTI
    };

    /// What was granted in the uplink in a TTI.
    struct Tti
    {
        uint16_t sfnSf{0}; // in which it is sent
        std::vector<Sent> blocks;
    };

    void DoCschedCellConfigReq(const Configuration::CschedCellConfigReqParameters& params);
    void DoCschedUeConfigReq(const Configuration::CschedUeConfigReqParameters& params);
    void DoCschedLcConfigReq(const Configuration::CschedLcConfigReqParameters& params);
    void DoCschedLcReleaseReq(const Configuration::CschedLcReleaseReqParameters& params);
    void DoCschedUeReleaseReq(const Configuration::CschedUeReleaseReqParameters& params);
    void DoSchedDlRlcBufferReq(const Requests::SchedDlRlcBufferReqParameters& params);
    void DoSchedDlPagingBufferReq(const Requests::SchedDlPagingBufferReqParameters& params);
    void DoSchedDlMacBufferReq(const Requests::SchedDlMacBufferReqParameters& params);
    void DoSchedDlTriggerReq(const Requests::SchedDlTriggerReqParameters& params);
    void DoSchedDlRachInfoReq(const Requests::SchedDlRachInfoReqParameters& params);
    void DoSchedDlCqiInfoReq(const Requests::SchedDlCqiInfoReqParameters& params);
    void DoSchedUlTriggerReq(const Requests::SchedUlTriggerReqParameters& params);
    void DoSchedUlNoiseInterferenceReq(
        const Requests::SchedUlNoiseInterferenceReqParameters& params);
    void DoSchedUlSrInfoReq(const Requests::SchedUlSrInfoReqParameters& params);
    void DoSchedUlMacCtrlInfoReq(const Requests::SchedUlMacCtrlInfoReqParameters& params);
    void DoSchedUlCqiInfoReq(const Requests::SchedUlCqiInfoReqParameters& params);

    /// Answer the UEs that ask for access, each with a grant for its first message.
    void AnswerAccess(Downlink& downlink);

    /// Add what is missing: no feedback comes from a UE that has not heard its grant.
    void ExpectFeedback(std::vector<ns3::DlInfoListElement_s>& feedback) const;

    // Downlink. `taken`: groups of resource blocks; `served`: UEs that have a block.
    void Hear(const std::vector<ns3::DlInfoListElement_s>& feedback,
              std::vector<bool>& taken,
              std::set<uint16_t>& served,
              Downlink& downlink);
    bool SendAgain(Process& process, std::vector<bool>& taken, Downlink& downlink);
    void ShareGroups(std::vector<bool>& taken,
                     const std::set<uint16_t>& served,
                     Downlink& downlink);
    void GrantOwn(const std::vector<bool>& taken,
                  const std::set<uint16_t>& served,
                  Downlink& downlink);
    void SendNew(uint16_t rnti,
                 uint32_t groups,
                 std::size_t blocks,
                 uint8_t cqi,
                 Downlink& downlink);
    /// A free HARQ process; none: all wait for feedback.
    std::optional<std::size_t> FreeProcess(const Ue& ue) const;
    /// Whether something waits in the downlink, and there is a process for it.
    bool Waits(const Ue& ue) const;
    /// Size of a transport block in which each logical channel has room for all that waits; 0:
    /// nothing waits.
    static uint64_t Need(const Ue& ue);
    uint8_t Cqi(const Ue& ue, std::size_t group) const;
    /// Number of resource blocks of these groups. ns-3's PHY leaves out the blocks after the last
    /// whole group; here that group has them, too: they count in its transport block.
    std::size_t BlocksOf(uint32_t groups) const;
    std::size_t DownlinkBytes(uint8_t cqi, std::size_t blocks) const;

    // Uplink. `taken`: resource blocks.
    void SendAgain(uint16_t rnti,
                   std::vector<bool>& taken,
                   std::set<uint16_t>& served,
                   Uplink& uplink);
    /// Grant a block in that place, or in the part of it that the UE's power reaches.
    void SendNew(uint16_t rnti, Span place, std::vector<bool>& taken, Uplink& uplink);
    void Send(const Sent& block, Uplink& uplink);
    /// Take note of the SINR of a UE's signal in so many resource blocks, dB.
    void Measure(Ue& ue, double sinr, std::size_t blocks) const;
    bool IsMeasured(const Ue& ue) const;
    /// The number of resource blocks in which a UE reaches the lowest scheme, by its SINR in a
    /// single one, dB.
    double Reached(double alone) const;
    /// Those of so many resource blocks in which the UE's power suffices for the lowest scheme.
    std::size_t Used(const Ue& ue, std::size_t blocks) const;
    /// The scheme of a UE in so many resource blocks.
    int UplinkMcs(const Ue& ue, std::size_t blocks) const;
    std::size_t UplinkBytes(int mcs, std::size_t blocks) const;

    /// Number of TTIs after which a measurement is forgotten.
    int64_t Memory() const;
    Terms TermsOf(uint16_t rnti) const;
    /// Take what other users have: the highest resource blocks of the uplink, or all groups of the
    /// downlink, for a part of the TTIs.
    /// @return How many blocks of the uplink.
    std::size_t TakeForOthers(Direction direction, std::vector<bool>& taken);
    /// The grants of this TTI, and those that the feedback of this TTI is about.
    Tti& Now();
    const Tti& Answered() const;

    ns3::MemberCschedSapProvider<Scheduler> m_configuration;
    ns3::MemberSchedSapProvider<Scheduler> m_requests;
    ns3::FfMacCschedSapUser* m_configured{nullptr};
    ns3::FfMacSchedSapUser* m_mac{nullptr};
    ns3::Ptr<ns3::LteAmc> m_amc;
    std::array<std::size_t, 2> m_bandBlocks{0, 0}; // resource blocks by direction
    std::size_t m_groupBlocks{1};                  // and those of a group of the downlink
    std::size_t m_groups{0};
    int64_t m_tti{0};
    std::map<uint16_t, Ue> m_ues; // by RNTI
    std::vector<ns3::RachListElement_s> m_asking;
    std::vector<ns3::DlInfoListElement_s> m_postponed; // retransmissions without room
    std::array<Tti, ns3::HARQ_PROC_NUM> m_uplink;      // the last TTIs
    uint16_t m_lastTurn{0};
    std::function<Terms(uint16_t)> m_terms;
    std::function<void(const Grant&)> m_granted;
    std::function<void(Direction, uint16_t)> m_lost;
    std::function<void(uint16_t, int64_t)> m_asked;
    CellTerms m_cell;
    std::vector<Background> m_background; // by direction
    double m_owed{0};                     // TTIs of others in the downlink, by rounding
};

} // namespace radio

#endif
