// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_AIR_H
#define RADIO_AIR_H

#include "ns3/constant-position-mobility-model.h"
#include "ns3/mobility-model.h"
#include "ns3/propagation-loss-model.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace radio
{

/// Direction of a packet, and index of everything that there is for each direction.
enum Direction : std::size_t
{
    UP = 0,
    DOWN = 1,
};

/// What the channel does to signals, as it was given: the gains of all links over time.
///
/// There is a link between each UAV and each base station, the cells. Gains are linear and include everything. They are given slot by slot, with one or several values
/// per slot; before the first slot, that slot's first values hold.
class Air
{
  public:
    /// @param uavs Number of UAVs, K.
    /// @param cells Number of base stations, C.
    /// @param antennaGain What antennas add to every link of a base station, dB.
    Air(std::size_t uavs, std::size_t cells, double antennaGain);

    /// Set the gains from `start` to `end` (ns): [C, K, steps] per direction, which are kept.
    void Gains(int64_t start, int64_t end, std::vector<double> up, std::vector<double> down);

    /// Set the positions of all UAVs, [K, 3], m.
    void Positions(const std::vector<double>& positions);

    /// Gain of a UAV's link to a cell at the present time, dB, with the antennas' gain.
    double Gain(Direction direction, std::size_t uav, std::size_t cell = 0) const;

    ns3::Ptr<ns3::ConstantPositionMobilityModel> BaseStation(std::size_t cell = 0) const;
    ns3::Ptr<ns3::ConstantPositionMobilityModel> Uav(std::size_t uav) const;
    std::size_t Uavs() const;
    std::size_t Cells() const;

    /// Number of a UAV by its mobility model; K for base stations.
    std::size_t Number(ns3::Ptr<const ns3::MobilityModel> mobility) const;

    /// Number of a cell by the mobility model of its base station; C for UAVs.
    std::size_t Cell(ns3::Ptr<const ns3::MobilityModel> mobility) const;

  private:
    double m_antennaGain;
    int64_t m_start{0};
    int64_t m_end{1};
    std::vector<double> m_gains[2];
    std::vector<ns3::Ptr<ns3::ConstantPositionMobilityModel>> m_baseStations;
    std::vector<ns3::Ptr<ns3::ConstantPositionMobilityModel>> m_uavs;
};

/// A loss model that looks up the gain of the link; between UAVs there is free space, or nothing, and
/// between base stations nothing.
class GivenLoss : public ns3::PropagationLossModel
{
  public:
    static ns3::TypeId GetTypeId();

    /// The air that all models of this type look at.
    static void Use(const Air* air);

    /// Let UAVs hear each other through free space at this frequency, Hz; at first they do not.
    static void BetweenUavs(double frequency);

  private:
    double DoCalcRxPower(double txPower,
                         ns3::Ptr<ns3::MobilityModel> a,
                         ns3::Ptr<ns3::MobilityModel> b) const override;
    int64_t DoAssignStreams(int64_t stream) override;

    static const Air* s_air;
    static double s_frequency;
};

} // namespace radio

#endif
