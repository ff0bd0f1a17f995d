// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_LTE_H
#define RADIO_LTE_H

#include "scheduler.h"
#include "stack.h"

#include "ns3/epc-pgw-application.h"
#include "ns3/lte-enb-net-device.h"
#include "ns3/lte-helper.h"
#include "ns3/lte-rlc-um.h"
#include "ns3/lte-ue-net-device.h"
#include "ns3/node-container.h"
#include "ns3/point-to-point-epc-helper.h"
#include "ns3/spectrum-value.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace radio
{

struct LteSettings
{
    std::size_t resourceBlocks;
    double uplinkNoiseFigure;   // dB over -174 dBm/Hz, at the base station
    double downlinkNoiseFigure; // and at the UAVs
    std::vector<double> downlinkPower; // dBm, C
    std::vector<double> uplinkPower;   // dBm, K
    bool isA3;                         // whether UEs change to stronger cells
    double hysteresis;                 // dB, of event A3
    double timeToTrigger;              // s
    /// By direction: the resource blocks that each UAV has for itself, K; empty: they are shared.
    std::array<std::vector<double>, 2> ownBlocks;
    /// Whether the DSCP of the last packet that was sent to a UAV is the priority of its downlink.
    bool isByDscp;
    CellTerms cell; // of every cell
    /// Share of the downlink in which each cell sends to users that are not simulated, C.
    std::vector<double> loads;
};

/// A UE's change of its cell, from the command on. Times in ns; negative: it has not happened.
struct Handover
{
    std::size_t uav;
    std::size_t from;
    std::size_t to;
    int64_t start;
    int64_t end{-1};                  // when the new cell knows of it
    int64_t interruption[2]{-1, -1};  // between the last packet before the end and the first after
    uint32_t waiting[2]{0, 0};        // bytes at the sending ends of the new cell at the end
};

/// ns-3's LTE: C eNBs with an EPC, K UEs, FDD, one layer, default bearers (RLC UM), HARQ.
///
/// All eNBs use the same carriers. UEs attach to the cell that is the strongest at first. Data that
/// waits for transmission when a UE changes its cell is sent in the new cell (TS 36.323, 5.2.1).
class Lte : public Stack
{
  public:
    Lte(const Air& air, const LteSettings& settings);

    /// All handovers so far, by their start.
    const std::vector<Handover>& Handovers() const;

    std::vector<std::size_t> Attach(double limit) override;
    bool IsOpen(Direction direction, std::size_t uav) const override;
    int64_t Held(Direction direction, std::size_t uav) const override;
    std::string Why(Direction direction, std::size_t uav) const override;
    /// Append each UAV's cell at present, [K], and the mean SINR of its downlink since the last
    /// report, dB, [K].
    void Report(std::vector<double>& buffer) override;

  protected:
    void Carry(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet) override;

  private:
    struct Ue
    {
        ns3::Ptr<ns3::Node> node;
        ns3::Ptr<ns3::LteUeNetDevice> device;
        ns3::Ptr<ns3::LteRlcUm> queue[2]; // RLC's sending ends
        Terms terms;                      // of the scheduler
        int64_t underWay{0};              // bytes between gateway and the base station's queue
        std::size_t cell{0};              // that serves it, or that it is changing to
        double sinrSum{0};                // dB, of the downlink, since the last report
        uint64_t sinrCount{0};
        bool isMoving{false};                      // between two cells
        std::vector<ns3::Ptr<ns3::Packet>> moving; // what then waits in the uplink
        std::ptrdiff_t last{-1};                   // index of its last handover, or of the present one
        int64_t arrival[2]{-1, -1};                // of the last packet, ns, by direction
    };

    /// A UE as eNBs see it: its cell and its RNTI.
    using Context = std::pair<std::size_t, uint16_t>;

    void Configure(const LteSettings& settings) const;
    void InstallEnbs(const LteSettings& settings);
    void SetTerms(const LteSettings& settings);
    void InstallUes(const Air& air, const LteSettings& settings);
    void Observe(std::size_t cell, ns3::Ptr<Scheduler> scheduler);
    void FindGateway();
    bool HasBearer(std::size_t uav) const;
    void Watch(std::size_t uav);
    void WatchHandovers(std::size_t uav);
    /// A UE is about to change its cell: take what waits at both sending ends.
    void Leaves(std::size_t uav, std::size_t to);
    /// The new cell knows of the UE: send that.
    void Joins(std::size_t uav);
    void Left(Direction direction, std::size_t uav);
    /// Send to others in a cell's downlink for the rest of a TTI, or not, and again a TTI later.
    void Interfere(std::size_t cell);
    void Arrives(Direction direction, std::size_t uav, ns3::Ptr<const ns3::Packet> packet);
    /// Number of a UAV by its context; K for any other one.
    std::size_t Number(const Context& context) const;
    ns3::Ptr<ns3::LteEnbNetDevice> Enb(std::size_t cell) const;

    const Air& m_air;
    const bool m_isByDscp;
    ns3::Ptr<ns3::PointToPointEpcHelper> m_epc;
    ns3::Ptr<ns3::LteHelper> m_lte;
    ns3::NodeContainer m_enb;
    ns3::NetDeviceContainer m_enbDevices;
    ns3::Ptr<ns3::EpcPgwApplication> m_gateway;
    std::vector<Ue> m_ues;
    std::map<Context, std::size_t> m_byContext;
    std::vector<Handover> m_handovers;

    /// What a cell sends to others.
    struct Others
    {
        double load{0};
        std::unique_ptr<Background> bursts;
        ns3::Ptr<ns3::SpectrumValue> power; // density
    };

    std::vector<Others> m_others; // by cell
};

} // namespace radio

#endif
