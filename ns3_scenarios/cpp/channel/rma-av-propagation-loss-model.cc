// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "rma-av-propagation-loss-model.h"

#include "ns3/abort.h"
#include "ns3/boolean.h"
#include "ns3/double.h"
#include "ns3/enum.h"
#include "ns3/pointer.h"

#include <algorithm>
#include <cmath>

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(RmaAvPropagationLossModel);

namespace
{
constexpr double LOWEST_HEIGHT = 1;        // m
constexpr double GROUND_HEIGHT = 10;       // m; up to it TR 38.901's RMa applies
constexpr double HIGHEST_HEIGHT = 300;     // m
constexpr double HIGHEST_NLOS_HEIGHT = 40; // m; links are in LOS above
constexpr double LOS_STATE_DECORRELATION = 60;
constexpr double LOS_SHADOW_DECORRELATION = 37;
constexpr double NLOS_SHADOW_DECORRELATION = 120;
// TR 38.901's RMa: average height of buildings and width of streets, m, and the speed of light that
// it uses for the break point, m/s.
constexpr double BUILDING_HEIGHT = 5;
constexpr double STREET_WIDTH = 20;
constexpr double LIGHT_SPEED = 3e8;
} // namespace

CorrelatedNormal::CorrelatedNormal(double decorrelation, int64_t stream)
    : m_decorrelation(decorrelation),
      m_noise(CreateObject<NormalRandomVariable>())
{
    m_noise->SetStream(stream);
}

double
CorrelatedNormal::At(const Vector& position)
{
    if (!m_started)
    {
        m_started = true;
        m_value = m_noise->GetValue();
        m_position = position;
    }
    else if (position != m_position)
    {
        const double distance = CalculateDistance(position, m_position);
        const double correlation = std::exp(-distance / m_decorrelation);
        // sqrt(1 - correlation^2), without cancellation for the short steps of a slot.
        const double fresh = std::sqrt(-std::expm1(-2 * distance / m_decorrelation));
        m_value = correlation * m_value + fresh * m_noise->GetValue();
        m_position = position;
    }
    return m_value;
}

TypeId
RmaAvPropagationLossModel::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::RmaAvPropagationLossModel")
            .SetParent<PropagationLossModel>()
            .SetGroupName("Propagation")
            .AddConstructor<RmaAvPropagationLossModel>()
            .AddAttribute("Frequency",
                          "Carrier frequency in Hz.",
                          DoubleValue(2e9),
                          MakeDoubleAccessor(&RmaAvPropagationLossModel::SetFrequency,
                                             &RmaAvPropagationLossModel::GetFrequency),
                          MakeDoubleChecker<double>(0.5e9, 100e9))
            .AddAttribute("LineOfSight",
                          "Which links are in line of sight.",
                          EnumValue<LineOfSight>(ALWAYS),
                          MakeEnumAccessor<LineOfSight>(&RmaAvPropagationLossModel::m_lineOfSight),
                          MakeEnumChecker<LineOfSight>(ALWAYS,
                                                       "always",
                                                       PROBABILITY,
                                                       "probability",
                                                       NEVER,
                                                       "never"))
            .AddAttribute("ShadowFading",
                          "Whether there is log-normal shadow fading.",
                          BooleanValue(false),
                          MakeBooleanAccessor(&RmaAvPropagationLossModel::m_shadowFading),
                          MakeBooleanChecker())
            .AddAttribute("BaseStation",
                          "The mobility model of the base station; the other end is the UAV.",
                          PointerValue(),
                          MakePointerAccessor(&RmaAvPropagationLossModel::m_baseStation),
                          MakePointerChecker<MobilityModel>());
    return tid;
}

int64_t
RmaAvPropagationLossModel::AddLink(Ptr<const MobilityModel> uav, int64_t stream)
{
    m_links.insert_or_assign(PeekPointer(uav),
                             Link{CorrelatedNormal(LOS_STATE_DECORRELATION, stream),
                                  CorrelatedNormal(LOS_SHADOW_DECORRELATION, stream + 1),
                                  CorrelatedNormal(NLOS_SHADOW_DECORRELATION, stream + 2)});
    return STREAMS_PER_LINK;
}

double
RmaAvPropagationLossModel::GetLoss(Ptr<const MobilityModel> uav) const
{
    const Vector base = m_baseStation->GetPosition();
    const Vector position = uav->GetPosition();
    const double height = position.z;
    NS_ABORT_MSG_IF(height < LOWEST_HEIGHT || height > HIGHEST_HEIGHT,
                    "RMa-AV holds for UAVs from " << LOWEST_HEIGHT << " m up to "
                                                  << HIGHEST_HEIGHT << " m, not at " << height
                                                  << " m");
    const double x = position.x - base.x;
    const double y = position.y - base.y;
    const double z = position.z - base.z;
    const double distance2dSquared = x * x + y * y;
    const double distance3d = std::sqrt(distance2dSquared + z * z);

    bool inSight = m_lineOfSight != NEVER;
    if (m_lineOfSight == PROBABILITY && height <= HIGHEST_NLOS_HEIGHT)
    {
        const double uniform =
            0.5 * std::erfc(-LinkOf(uav).lineOfSight.At(position) / std::sqrt(2.0));
        inSight = uniform <= LosProbability(height, std::sqrt(distance2dSquared));
    }
    NS_ABORT_MSG_IF(!inSight && height > HIGHEST_NLOS_HEIGHT,
                    "RMa-AV knows NLOS up to " << HIGHEST_NLOS_HEIGHT << " m, not at " << height
                                               << " m");
    const bool onGround = height <= GROUND_HEIGHT;
    const double breakPoint = 2 * M_PI * base.z * height * m_frequency / LIGHT_SPEED;
    const bool beyond = std::sqrt(distance2dSquared) > breakPoint;
    double loss;
    if (onGround)
    {
        loss = GroundLosLoss(distance3d, beyond ? breakPoint : distance3d);
        loss = inSight ? loss : std::max(loss, GroundNlosLoss(height, base.z, distance3d));
    }
    else
    {
        loss = inSight ? LosLoss(height, distance3d) : NlosLoss(height, distance3d);
    }
    if (m_shadowFading)
    {
        // Table B-3; up to 10 m TR 38.901's table 7.4.1-1.
        const double los = onGround ? (beyond ? 6.0 : 4.0) : 4.2 * std::exp(-0.0046 * height);
        const double nlos = onGround ? 8.0 : 6.0;
        loss += inSight ? los * LinkOf(uav).losShadow.At(position)
                        : nlos * LinkOf(uav).nlosShadow.At(position);
    }
    return loss;
}

// TR 38.901, table 7.4.1-1: PL1 up to the break point, beyond it 40 dB per decade of distance.
double
RmaAvPropagationLossModel::GroundLosLoss(double distance3d, double bend) const
{
    const double power = std::pow(BUILDING_HEIGHT, 1.72);
    const double near = m_frequencyLoss + 20 * std::log10(bend) +
                        std::min(0.03 * power, 10.0) * std::log10(bend) -
                        std::min(0.044 * power, 14.77) +
                        0.002 * std::log10(BUILDING_HEIGHT) * bend;
    return near + 40 * std::log10(distance3d / bend);
}

// TR 38.901, table 7.4.1-1: PL'.
double
RmaAvPropagationLossModel::GroundNlosLoss(double height, double baseHeight, double distance3d) const
{
    const double ratio = BUILDING_HEIGHT / baseHeight;
    const double logBase = std::log10(baseHeight);
    const double logHeight = std::log10(11.75 * height);
    return 161.04 - 7.1 * std::log10(STREET_WIDTH) + 7.5 * std::log10(BUILDING_HEIGHT) -
           (24.37 - 3.7 * ratio * ratio) * logBase +
           (43.42 - 3.1 * logBase) * (std::log10(distance3d) - 3) +
           20 * std::log10(m_frequency / 1e9) - (3.2 * logHeight * logHeight - 4.97);
}

// Table B-2.
double
RmaAvPropagationLossModel::LosLoss(double height, double distance3d) const
{
    return std::max(23.9 - 1.8 * std::log10(height), 20.0) * std::log10(distance3d) +
           m_frequencyLoss;
}

double
RmaAvPropagationLossModel::NlosLoss(double height, double distance3d) const
{
    const double loss =
        -12 + (35 - 5.3 * std::log10(height)) * std::log10(distance3d) + m_frequencyLoss;
    return std::max(LosLoss(height, distance3d), loss);
}

// Table B-1, for 10 m < height <= 40 m; up to 10 m TR 38.901's table 7.4.2-1.
double
RmaAvPropagationLossModel::LosProbability(double height, double distance2d)
{
    if (height <= GROUND_HEIGHT)
    {
        return std::exp(-std::max(distance2d - 10, 0.0) / 1000);
    }
    const double p1 = std::max(15021 * std::log10(height) - 16053, 1000.0);
    const double d1 = std::max(1350.8 * std::log10(height) - 1602, 18.0);
    if (distance2d <= d1)
    {
        return 1;
    }
    return d1 / distance2d + std::exp(-distance2d / p1) * (1 - d1 / distance2d);
}

RmaAvPropagationLossModel::Link&
RmaAvPropagationLossModel::LinkOf(Ptr<const MobilityModel> uav) const
{
    const auto link = m_links.find(PeekPointer(uav));
    NS_ABORT_MSG_IF(link == m_links.end(), "AddLink() was not called for this UAV");
    return link->second;
}

double
RmaAvPropagationLossModel::DoCalcRxPower(double txPowerDbm,
                                         Ptr<MobilityModel> a,
                                         Ptr<MobilityModel> b) const
{
    NS_ABORT_MSG_IF((a == m_baseStation) == (b == m_baseStation),
                    "RMa-AV needs the base station at exactly one end of a link");
    return txPowerDbm - GetLoss(a == m_baseStation ? b : a);
}

int64_t
RmaAvPropagationLossModel::DoAssignStreams(int64_t)
{
    return 0; // Streams belong to links: AddLink().
}

void
RmaAvPropagationLossModel::SetFrequency(double frequency)
{
    m_frequency = frequency;
    m_frequencyLoss = 20 * std::log10(40 * M_PI * (frequency / 1e9) / 3);
}

double
RmaAvPropagationLossModel::GetFrequency() const
{
    return m_frequency;
}

} // namespace ns3
