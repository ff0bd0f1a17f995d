// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "ring-gauss-markov-mobility-model.h"

#include "ns3/abort.h"
#include "ns3/double.h"
#include "ns3/simulator.h"
#include "ns3/vector.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(RingGaussMarkovMobilityModel);

TypeId
RingGaussMarkovMobilityModel::GetTypeId()
{
    using Self = RingGaussMarkovMobilityModel;
    static TypeId tid =
        TypeId("ns3::RingGaussMarkovMobilityModel")
            .SetParent<MobilityModel>()
            .SetGroupName("Mobility")
            .AddConstructor<Self>()
            .AddAttribute("Center",
                          "Centre of the ring in m; its z does not count.",
                          VectorValue(Vector()),
                          MakeVectorAccessor(&Self::m_center),
                          MakeVectorChecker())
            .AddAttribute("InnerRadius",
                          "Inner radius of the ring in m.",
                          DoubleValue(100),
                          MakeDoubleAccessor(&Self::m_innerRadius),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("OuterRadius",
                          "Outer radius of the ring in m.",
                          DoubleValue(550),
                          MakeDoubleAccessor(&Self::m_outerRadius),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("Height",
                          "Height in m.",
                          DoubleValue(20),
                          MakeDoubleAccessor(&Self::m_height),
                          MakeDoubleChecker<double>())
            .AddAttribute("MinSpeed",
                          "Lowest speed in m/s.",
                          DoubleValue(0.1),
                          MakeDoubleAccessor(&Self::m_minSpeed),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("MaxSpeed",
                          "Highest speed in m/s.",
                          DoubleValue(4),
                          MakeDoubleAccessor(&Self::m_maxSpeed),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("MeanSpeed",
                          "Mean speed of the Gauss–Markov process in m/s.",
                          DoubleValue(2),
                          MakeDoubleAccessor(&Self::m_meanSpeed),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("SpeedDeviation",
                          "Standard deviation of the speed in m/s.",
                          DoubleValue(1),
                          MakeDoubleAccessor(&Self::m_speedDeviation),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("HeadingDeviation",
                          "Standard deviation of the heading from its mean in rad.",
                          DoubleValue(0.5),
                          MakeDoubleAccessor(&Self::m_headingDeviation),
                          MakeDoubleChecker<double>(0))
            .AddAttribute("Memory",
                          "Memory level: 1 keeps speed and heading, 0 forgets them.",
                          DoubleValue(0.85),
                          MakeDoubleAccessor(&Self::m_memory),
                          MakeDoubleChecker<double>(0, 1))
            .AddAttribute("UpdateInterval",
                          "Time between Gauss–Markov steps.",
                          TimeValue(Seconds(1)),
                          MakeTimeAccessor(&Self::m_updateInterval),
                          MakeTimeChecker(NanoSeconds(1)));
    return tid;
}

RingGaussMarkovMobilityModel::RingGaussMarkovMobilityModel()
    : m_place(CreateObject<UniformRandomVariable>()),
      m_noise(CreateObject<NormalRandomVariable>())
{
}

void
RingGaussMarkovMobilityModel::DoInitialize()
{
    NS_ABORT_MSG_UNLESS(m_innerRadius < m_outerRadius,
                        "The ring's inner radius, " << m_innerRadius
                                                    << " m, must be below the outer one, "
                                                    << m_outerRadius << " m");
    NS_ABORT_MSG_UNLESS(m_minSpeed <= m_maxSpeed,
                        "The lowest speed, " << m_minSpeed << " m/s, must not exceed the highest, "
                                             << m_maxSpeed << " m/s");
    Start();
    MobilityModel::DoInitialize();
}

void
RingGaussMarkovMobilityModel::DoDispose()
{
    m_event.Cancel();
    MobilityModel::DoDispose();
}

void
RingGaussMarkovMobilityModel::Start()
{
    // Uniform over the area means uniform in the squared radius.
    const double inner = m_innerRadius * m_innerRadius;
    const double outer = m_outerRadius * m_outerRadius;
    const double radius = std::clamp(std::sqrt(m_place->GetValue(inner, outer)),
                                     m_innerRadius,
                                     m_outerRadius);
    const double angle = m_place->GetValue(0, 2 * M_PI);
    m_meanHeading = m_place->GetValue(-M_PI, M_PI);
    m_helper.SetPosition(Vector(m_center.x + radius * std::cos(angle),
                                m_center.y + radius * std::sin(angle),
                                m_height));
    m_speed = std::clamp(m_meanSpeed + m_speedDeviation * m_noise->GetValue(),
                         m_minSpeed,
                         m_maxSpeed);
    m_deviation = m_headingDeviation * m_noise->GetValue();
    m_nextUpdate = Simulator::Now() + m_updateInterval;
    m_helper.Unpause();
    Fly(Time());
}

void
RingGaussMarkovMobilityModel::Update()
{
    const double fresh = std::sqrt(1 - m_memory * m_memory);
    m_speed = std::clamp(m_memory * m_speed + (1 - m_memory) * m_meanSpeed +
                             fresh * m_speedDeviation * m_noise->GetValue(),
                         m_minSpeed,
                         m_maxSpeed);
    m_deviation = m_memory * m_deviation + fresh * m_headingDeviation * m_noise->GetValue();
    m_nextUpdate += m_updateInterval;
    Fly(Time());
}

void
RingGaussMarkovMobilityModel::Mirror()
{
    m_helper.Update();
    const Vector at = FromCenter();
    // A heading t is mirrored at a wall whose normal has the angle n: 2 n + pi - t.
    const double normal = std::atan2(at.y, at.x);
    m_meanHeading = std::remainder(2 * normal + M_PI - m_meanHeading, 2 * M_PI);
    m_deviation = -m_deviation;
    // After a reflection slightly inside the circle at a grazing angle, the same circle can be
    // reached again within the same nanosecond; time must advance.
    Fly(NanoSeconds(1));
}

/**
 * Fly straight until the edge or the next update, whichever comes first.
 * @param atLeast no mirror before this much time has passed
 */
void
RingGaussMarkovMobilityModel::Fly(Time atLeast)
{
    m_helper.Update();
    const double heading = m_meanHeading + m_deviation;
    m_helper.SetVelocity(Vector(m_speed * std::cos(heading), m_speed * std::sin(heading), 0));
    const Time left = m_nextUpdate - Simulator::Now();
    const double edge = TimeToEdge();
    if (edge < left.GetSeconds())
    {
        const Time until = NanoSeconds(static_cast<int64_t>(edge * 1e9)); // rounded down
        m_event = Simulator::Schedule(std::max(until, atLeast),
                                      &RingGaussMarkovMobilityModel::Mirror,
                                      this);
    }
    else
    {
        m_event = Simulator::Schedule(left, &RingGaussMarkovMobilityModel::Update, this);
    }
    NotifyCourseChange();
}

/// Seconds until the current line meets a circle of the ring; infinite if it stands still.
double
RingGaussMarkovMobilityModel::TimeToEdge() const
{
    const Vector at = FromCenter();
    const Vector velocity = m_helper.GetVelocity();
    const double distance = std::hypot(at.x, at.y);
    // |at + t velocity| = radius is a t^2 + 2 b t + c = 0.
    const double a = velocity.x * velocity.x + velocity.y * velocity.y;
    const double b = at.x * velocity.x + at.y * velocity.y;
    if (a == 0)
    {
        return std::numeric_limits<double>::infinity();
    }
    if (b < 0 && m_innerRadius > 0)
    {
        const double c = (distance - m_innerRadius) * (distance + m_innerRadius);
        const double discriminant = b * b - a * c;
        if (discriminant >= 0)
        {
            return std::max(c / (std::sqrt(discriminant) - b), 0.0);
        }
    }
    const double c = (distance - m_outerRadius) * (distance + m_outerRadius);
    const double root = std::sqrt(std::max(b * b - a * c, 0.0));
    // Each form avoids subtracting nearly equal numbers.
    return std::max(b > 0 ? -c / (b + root) : (root - b) / a, 0.0);
}

Vector
RingGaussMarkovMobilityModel::FromCenter() const
{
    return m_helper.GetCurrentPosition() - m_center;
}

Vector
RingGaussMarkovMobilityModel::DoGetPosition() const
{
    m_helper.Update();
    return m_helper.GetCurrentPosition();
}

void
RingGaussMarkovMobilityModel::DoSetPosition(const Vector& position)
{
    m_helper.SetPosition(position);
    m_event.Cancel();
    if (IsInitialized())
    {
        Fly(Time());
    }
}

Vector
RingGaussMarkovMobilityModel::DoGetVelocity() const
{
    return m_helper.GetVelocity();
}

int64_t
RingGaussMarkovMobilityModel::DoAssignStreams(int64_t stream)
{
    m_place->SetStream(stream);
    m_noise->SetStream(stream + 1);
    return STREAMS;
}

} // namespace ns3
