// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_NR_H
#define RADIO_NR_H

#include "nr-scheduler.h"

#include "../radio/stack.h"

#include "ns3/cc-bwp-helper.h"
#include "ns3/nr-epc-pgw-application.h"
#include "ns3/nr-helper.h"
#include "ns3/nr-phy-mac-common.h"
#include "ns3/nr-point-to-point-epc-helper.h"
#include "ns3/nr-rlc-um.h"
#include "ns3/nr-ue-net-device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace radio
{

struct NrSettings
{
    /// By direction: bandwidth of the carrier, Hz, and its number of resource blocks.
    std::array<double, 2> bandwidth;
    std::array<std::size_t, 2> bandBlocks;
    std::size_t resourceBlocks; // that are assigned, in each direction; 0: all
    unsigned numerology;        // 0: 15 kHz, 1: 30 kHz, 2: 60 kHz
    std::string pattern;        // directions of the slots of TDD, such as "DDSU"; empty: FDD
    bool is256Qam;
    double leastSnr;                 // dB, of transport blocks that are sent
    double uplinkNoiseFigure;        // dB over -174 dBm/Hz, at the base station
    double downlinkNoiseFigure;      // and at the UAVs
    double downlinkPower;            // dBm
    std::vector<double> uplinkPower; // dBm, K
    /// By direction: the resource blocks that each UAV has for itself, K; empty: they are shared.
    std::array<std::vector<double>, 2> ownBlocks;
};

/// 5G-LENA: one gNB with an EPC, K UEs, one layer, default bearers (RLC UM), HARQ.
class Nr : public Stack
{
  public:
    Nr(const Air& air, const NrSettings& settings);

    std::vector<std::size_t> Attach(double limit) override;
    bool IsOpen(Direction direction, std::size_t uav) const override;
    int64_t Held(Direction direction, std::size_t uav) const override;
    std::string Why(Direction direction, std::size_t uav) const override;
    /// Append the cell of each UAV, which is 0, [K], and the mean SINR of its downlink since the last
    /// report, dB, [K].
    void Report(std::vector<double>& buffer) override;

  protected:
    void Carry(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet) override;

  private:
    /// A mean of values in dB.
    struct Mean
    {
        double sum{0};
        uint64_t count{0};

        void Add(double value)
        {
            sum += value;
            ++count;
        }

        double Value() const; // NaN: of none
    };

    struct Ue
    {
        ns3::Ptr<ns3::Node> node;
        ns3::Ptr<ns3::NrUeNetDevice> device;
        ns3::Ptr<ns3::NrRlcUm> queue[2]; // RLC's sending ends
        int64_t underWay{0};             // bytes between gateway and the base station's queue
        Mean sinr[2];                    // of all blocks, by direction
        Mean reported;                   // of the downlink since the last report
        int64_t last[2]{-1, -1};         // when the last block came, ns
    };

    void Configure(const NrSettings& settings) const;
    void InstallCell(const NrSettings& settings);
    void UseParts(const NrSettings& settings, const ns3::NetDeviceContainer& devices);
    void InstallInternet();
    void FindGateway();
    ns3::Ptr<NrScheduler> SchedulerOf(Direction direction) const;
    void Watch(std::size_t uav);
    std::size_t Number(uint16_t rnti) const;
    void Received(Direction direction, const ns3::RxPacketTraceParams& block);

    const Air& m_air;
    const bool m_isFdd;
    const std::array<std::size_t, 2> m_bandBlocks;
    std::vector<ns3::BandwidthPartInfoPtr> m_parts; // of the band: one, or with FDD down and up
    ns3::Ptr<ns3::NrPointToPointEpcHelper> m_epc;
    ns3::Ptr<ns3::NrHelper> m_nr;
    ns3::NetDeviceContainer m_gnb;
    ns3::Ptr<ns3::NrEpcPgwApplication> m_gateway;
    std::vector<Ue> m_ues;
    std::map<uint16_t, std::size_t> m_byRnti;
};

} // namespace radio

#endif
