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

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace radio
{

struct LteSettings
{
    std::size_t resourceBlocks;
    double uplinkNoiseFigure;   // dB over -174 dBm/Hz, at the base station
    double downlinkNoiseFigure; // and at the UAVs
    double downlinkPower;       // dBm
    std::vector<double> uplinkPower; // dBm, K
    /// By direction: the resource blocks that each UAV has for itself, K; empty: they are shared.
    std::array<std::vector<double>, 2> ownBlocks;
    /// Whether the DSCP of the last packet that was sent to a UAV is the priority of its downlink.
    bool isByDscp;
};

/// ns-3's LTE: one eNB with an EPC, K UEs, FDD, one layer, default bearers (RLC UM), HARQ.
class Lte : public Stack
{
  public:
    Lte(const Air& air, const LteSettings& settings);

    std::vector<std::size_t> Attach(double limit) override;
    bool IsOpen(Direction direction, std::size_t uav) const override;
    int64_t Held(Direction direction, std::size_t uav) const override;
    std::string Why(Direction direction, std::size_t uav) const override;

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
    };

    void Configure(const LteSettings& settings) const;
    void SetTerms(const LteSettings& settings);
    void InstallUes(const Air& air, const LteSettings& settings);
    void FindGateway();
    bool HasBearer(std::size_t uav) const;
    void Watch();
    void Left(Direction direction, std::size_t uav);
    /// Number of a UAV by its RNTI; K for any other RNTI.
    std::size_t Number(uint16_t rnti) const;

    const Air& m_air;
    const bool m_isByDscp;
    ns3::Ptr<ns3::PointToPointEpcHelper> m_epc;
    ns3::Ptr<ns3::LteHelper> m_lte;
    ns3::NodeContainer m_enb;
    ns3::NetDeviceContainer m_enbDevices;
    ns3::Ptr<ns3::EpcPgwApplication> m_gateway;
    std::vector<Ue> m_ues;
    std::map<uint16_t, std::size_t> m_byRnti;
};

} // namespace radio

#endif
