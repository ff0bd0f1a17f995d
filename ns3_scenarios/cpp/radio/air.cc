// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "air.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace radio
{

namespace
{
/// Gain of an outage, dB: the smallest that a trace may have. No signal is left of anything.
constexpr double NOTHING = -400;
constexpr double LIGHT_SPEED = 299792458; // m/s
} // namespace

Air::Air(std::size_t uavs, std::size_t cells, double antennaGain)
    : m_antennaGain(antennaGain)
{
    for (std::size_t c = 0; c < cells; ++c)
    {
        m_baseStations.push_back(ns3::CreateObject<ns3::ConstantPositionMobilityModel>());
    }
    for (std::size_t k = 0; k < uavs; ++k)
    {
        m_uavs.push_back(ns3::CreateObject<ns3::ConstantPositionMobilityModel>());
        m_uavs[k]->SetPosition(ns3::Vector(1.0 + k, 0, 0));
    }
}

void
Air::Gains(int64_t start, int64_t end, std::vector<double> up, std::vector<double> down)
{
    m_start = start;
    m_end = end;
    m_gains[UP] = std::move(up);
    m_gains[DOWN] = std::move(down);
}

void
Air::Positions(const std::vector<double>& positions)
{
    for (std::size_t k = 0; k < m_uavs.size(); ++k)
    {
        const double* at = &positions[3 * k];
        m_uavs[k]->SetPosition(ns3::Vector(at[0], at[1], at[2]));
    }
}

double
Air::Gain(Direction direction, std::size_t uav, std::size_t cell) const
{
    const auto& gains = m_gains[direction];
    const auto steps = static_cast<int64_t>(gains.size() / (m_uavs.size() * m_baseStations.size()));
    const int64_t since = ns3::Simulator::Now().GetNanoSeconds() - m_start;
    const int64_t step =
        since > 0 ? std::min<int64_t>(since * steps / (m_end - m_start), steps - 1) : 0;
    const double gain = gains[(cell * m_uavs.size() + uav) * steps + step];
    return gain > 0 ? std::max(NOTHING, 10 * std::log10(gain)) + m_antennaGain : NOTHING;
}

ns3::Ptr<ns3::ConstantPositionMobilityModel>
Air::BaseStation(std::size_t cell) const
{
    return m_baseStations[cell];
}

ns3::Ptr<ns3::ConstantPositionMobilityModel>
Air::Uav(std::size_t uav) const
{
    return m_uavs[uav];
}

std::size_t
Air::Uavs() const
{
    return m_uavs.size();
}

std::size_t
Air::Cells() const
{
    return m_baseStations.size();
}

std::size_t
Air::Number(ns3::Ptr<const ns3::MobilityModel> mobility) const
{
    const auto found = std::find(m_uavs.begin(), m_uavs.end(), mobility);
    return found - m_uavs.begin();
}

std::size_t
Air::Cell(ns3::Ptr<const ns3::MobilityModel> mobility) const
{
    const auto found = std::find(m_baseStations.begin(), m_baseStations.end(), mobility);
    return found - m_baseStations.begin();
}

const Air* GivenLoss::s_air = nullptr;
double GivenLoss::s_frequency = 0;

ns3::TypeId
GivenLoss::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("radio::GivenLoss")
                                 .SetParent<ns3::PropagationLossModel>()
                                 .AddConstructor<GivenLoss>();
    return tid;
}

void
GivenLoss::Use(const Air* air)
{
    s_air = air;
}

void
GivenLoss::BetweenUavs(double frequency)
{
    s_frequency = frequency;
}

double
GivenLoss::DoCalcRxPower(double txPower,
                         ns3::Ptr<ns3::MobilityModel> a,
                         ns3::Ptr<ns3::MobilityModel> b) const
{
    const std::size_t from = s_air->Cell(a);
    const std::size_t to = s_air->Cell(b);
    const bool isDown = from < s_air->Cells();
    const bool isUp = to < s_air->Cells();
    if (isDown != isUp)
    {
        return txPower + (isDown ? s_air->Gain(DOWN, s_air->Number(b), from)
                                 : s_air->Gain(UP, s_air->Number(a), to));
    }
    if (isDown || s_frequency == 0)
    {
        return txPower + NOTHING;
    }
    const double distance = std::max(1.0, a->GetDistanceFrom(b));
    return txPower - 20 * std::log10(4 * M_PI * distance * s_frequency / LIGHT_SPEED);
}

int64_t
GivenLoss::DoAssignStreams(int64_t)
{
    return 0;
}

} // namespace radio
