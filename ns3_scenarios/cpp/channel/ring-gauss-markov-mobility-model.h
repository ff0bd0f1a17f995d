// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RING_GAUSS_MARKOV_MOBILITY_MODEL_H
#define RING_GAUSS_MARKOV_MOBILITY_MODEL_H

#include "ns3/constant-velocity-helper.h"
#include "ns3/event-id.h"
#include "ns3/mobility-model.h"
#include "ns3/nstime.h"
#include "ns3/random-variable-stream.h"

namespace ns3
{

/**
 * Gauss–Markov motion at constant height, confined to a ring. (ns-3's own random models support
 * rectangles only.)
 *
 * The start is uniform over the ring's area, the mean heading uniform over the circle. At each
 * update the speed and the heading's deviation from the mean heading take a Gauss–Markov step
 * (Liang and Haas): next = memory * now + (1 - memory) * mean + sqrt(1 - memory^2) * deviation * N.
 * The speed is then clipped to its bounds. Between updates the UAV flies straight, and where its
 * line meets a circle of the ring it is mirrored there: velocity, mean heading and deviation alike.
 * Since all three are, the mirrored motion is the free one folded, and uniform over the area stays
 * uniform.
 *
 * Time in ns-3 comes in whole nanoseconds, so a mirror happens in the last nanosecond before the
 * line meets the circle, inside the ring.
 */
class RingGaussMarkovMobilityModel : public MobilityModel
{
  public:
    static TypeId GetTypeId();
    RingGaussMarkovMobilityModel();

    /// Random streams that a UAV uses: the start, and the Gauss–Markov steps.
    static constexpr int64_t STREAMS = 2;

  private:
    void DoInitialize() override;
    void DoDispose() override;
    Vector DoGetPosition() const override;
    void DoSetPosition(const Vector& position) override;
    Vector DoGetVelocity() const override;
    int64_t DoAssignStreams(int64_t stream) override;

    void Start();
    void Update();
    void Mirror();
    void Fly(Time atLeast);
    double TimeToEdge() const;
    Vector FromCenter() const;

    Vector m_center;           //!< centre of the ring in m (its z does not count)
    double m_innerRadius;      //!< m
    double m_outerRadius;      //!< m
    double m_height;           //!< m
    double m_minSpeed;         //!< m/s
    double m_maxSpeed;         //!< m/s
    double m_meanSpeed;        //!< m/s
    double m_speedDeviation;   //!< m/s
    double m_headingDeviation; //!< rad
    double m_memory;           //!< Gauss–Markov memory level
    Time m_updateInterval;     //!< time between Gauss–Markov steps

    Ptr<UniformRandomVariable> m_place; //!< the start
    Ptr<NormalRandomVariable> m_noise;  //!< speed and heading, in turn
    ConstantVelocityHelper m_helper;    //!< position and velocity of the current leg
    double m_speed{0};                  //!< m/s
    double m_meanHeading{0};            //!< rad
    double m_deviation{0};              //!< of the heading from its mean, rad
    Time m_nextUpdate;                  //!< of the next Gauss–Markov step
    EventId m_event;                    //!< the next mirror or update
};

} // namespace ns3

#endif // RING_GAUSS_MARKOV_MOBILITY_MODEL_H
