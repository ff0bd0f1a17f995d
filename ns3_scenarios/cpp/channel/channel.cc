// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

/*
 * The channel of a scenario, slot by slot: a BS, K UAVs, and ns-3's simulator, behind a C
 * interface for ctypes. One channel at a time, since ns-3 has one simulator per process.
 * ns-3 aborts its process on errors (NS_ABORT), so it runs in a separate process.
 */
#include "ring-gauss-markov-mobility-model.h"
#include "rma-av-propagation-loss-model.h"

#include "ns3/abort.h"
#include "ns3/boolean.h"
#include "ns3/constant-position-mobility-model.h"
#include "ns3/double.h"
#include "ns3/enum.h"
#include "ns3/object-factory.h"
#include "ns3/pointer.h"
#include "ns3/propagation-loss-model.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/vector.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

using namespace ns3;

extern "C" struct Settings
{
    double bsPosition[3];      // m
    double headingDeviation;   // rad
    double memory;             // Gauss–Markov
    double updateInterval;     // s
    double frequency;          // Hz
    double slot;               // s
    uint64_t run;              // ns-3's run number: the seed of the scenario
    uint64_t uavs;             // K
    const double* innerRadius; // K, m
    const double* outerRadius; // K, m
    const double* height;      // K, m
    const double* minSpeed;    // K, m/s
    const double* maxSpeed;    // K, m/s
    const double* meanSpeed;   // K, m/s
    const double* speedDeviation; // K, m/s
    int32_t lineOfSight;       // RmaAvPropagationLossModel::LineOfSight
    int32_t shadowFading;      // 0 or 1
    int32_t placed;            // 1: positions are given slot by slot
    int32_t pathLoss;          // 0: RMa-AV, 1: free space, 2: two rays
};

namespace
{

/// Random streams reserved per UAV, so that a UAV's random numbers do not depend on their number.
constexpr int64_t STREAMS_PER_UAV = 8;
static_assert(RingGaussMarkovMobilityModel::STREAMS + RmaAvPropagationLossModel::STREAMS_PER_LINK <=
              STREAMS_PER_UAV);

Ptr<RmaAvPropagationLossModel>
MakeLoss(double frequency, int32_t lineOfSight, bool shadowFading, Ptr<MobilityModel> baseStation)
{
    using Model = RmaAvPropagationLossModel;
    return CreateObjectWithAttributes<Model>(
        "Frequency",
        DoubleValue(frequency),
        "LineOfSight",
        EnumValue(static_cast<Model::LineOfSight>(lineOfSight)),
        "ShadowFading",
        BooleanValue(shadowFading),
        "BaseStation",
        PointerValue(baseStation));
}

/// ns-3's own model if there is one, without obstacles and fading; null for RMa-AV.
Ptr<PropagationLossModel>
MakePlainLoss(double frequency, int32_t pathLoss)
{
    switch (pathLoss)
    {
    case 1:
        return CreateObjectWithAttributes<FriisPropagationLossModel>("Frequency",
                                                                     DoubleValue(frequency));
    case 2:
        return CreateObjectWithAttributes<TwoRayGroundPropagationLossModel>(
            "Frequency",
            DoubleValue(frequency));
    default:
        return nullptr;
    }
}

Ptr<MobilityModel>
MakeFixed(const double* position)
{
    auto model = CreateObject<ConstantPositionMobilityModel>();
    model->SetPosition(Vector(position[0], position[1], position[2]));
    return model;
}

/// ns-3's time: whole nanoseconds, rounded.
Time
RoundedTime(double seconds)
{
    return NanoSeconds(std::llround(seconds * 1e9));
}

/// Start of a slot: multiplied, not accumulated, so that rounding errors do not grow.
Time
SlotStart(uint64_t index, double slot)
{
    return RoundedTime(static_cast<double>(index) * slot);
}

class Channel
{
  public:
    explicit Channel(const Settings& settings)
        : m_slot(settings.slot),
          m_placed(settings.placed != 0),
          m_baseStation(MakeFixed(settings.bsPosition)),
          m_loss(MakePlainLoss(settings.frequency, settings.pathLoss))
    {
        Ptr<RmaAvPropagationLossModel> rural;
        if (!m_loss)
        {
            rural = MakeLoss(settings.frequency,
                             settings.lineOfSight,
                             settings.shadowFading != 0,
                             m_baseStation);
            m_loss = rural;
        }
        ObjectFactory factory("ns3::RingGaussMarkovMobilityModel",
                              "Center",
                              VectorValue(m_baseStation->GetPosition()),
                              "HeadingDeviation",
                              DoubleValue(settings.headingDeviation),
                              "Memory",
                              DoubleValue(settings.memory),
                              "UpdateInterval",
                              TimeValue(RoundedTime(settings.updateInterval)));
        for (uint64_t k = 0; k < settings.uavs; ++k)
        {
            factory.Set("InnerRadius", DoubleValue(settings.innerRadius[k]));
            factory.Set("OuterRadius", DoubleValue(settings.outerRadius[k]));
            factory.Set("Height", DoubleValue(settings.height[k]));
            factory.Set("MinSpeed", DoubleValue(settings.minSpeed[k]));
            factory.Set("MaxSpeed", DoubleValue(settings.maxSpeed[k]));
            factory.Set("MeanSpeed", DoubleValue(settings.meanSpeed[k]));
            factory.Set("SpeedDeviation", DoubleValue(settings.speedDeviation[k]));
            const double start[3] = {0, 0, settings.height[k]};
            auto uav = m_placed ? MakeFixed(start) : factory.Create<MobilityModel>();
            const auto stream = static_cast<int64_t>(k) * STREAMS_PER_UAV;
            const int64_t used = uav->AssignStreams(stream);
            if (rural)
            {
                rural->AddLink(uav, stream + used);
            }
            uav->Initialize();
            m_uavs.push_back(uav);
        }
        Simulator::Schedule(SlotStart(0, m_slot), &Channel::Sample, this);
    }

    void Advance(uint64_t slots, double* gain, double* position)
    {
        m_gain = gain;
        m_position = position;
        m_first = m_index;
        m_slots = slots;
        Simulator::Run();
    }

  private:
    /// Sample every UAV's position (or set it if it is given) and gain at the start of a slot.
    void Sample()
    {
        const uint64_t s = m_index - m_first;
        for (uint64_t k = 0; k < m_uavs.size(); ++k)
        {
            double* const position = m_position + (k * m_slots + s) * 3;
            if (m_placed)
            {
                m_uavs[k]->SetPosition(Vector(position[0], position[1], position[2]));
            }
            else
            {
                const Vector at = m_uavs[k]->GetPosition();
                position[0] = at.x;
                position[1] = at.y;
                position[2] = at.z;
            }
            const double gainDb = m_loss->CalcRxPower(0, m_uavs[k], m_baseStation);
            m_gain[k * m_slots + s] = std::pow(10, gainDb / 10);
        }
        ++m_index;
        Simulator::Schedule(SlotStart(m_index, m_slot) - Simulator::Now(), &Channel::Sample, this);
        if (s + 1 == m_slots)
        {
            Simulator::Stop(); // Run() returns; the next call continues from here.
        }
    }

    double m_slot;                             // s
    bool m_placed;                             // positions are given
    Ptr<MobilityModel> m_baseStation;
    Ptr<PropagationLossModel> m_loss;
    std::vector<Ptr<MobilityModel>> m_uavs;
    uint64_t m_index{0};                       // of the next slot
    uint64_t m_first{0};                       // slot of the current chunk
    uint64_t m_slots{0};                       // in the current chunk
    double* m_gain{nullptr};                   // of the current chunk, [K][slots]
    double* m_position{nullptr};               // of the current chunk, [K][slots][3]
};

std::unique_ptr<Channel> g_channel;

} // namespace

extern "C"
{

/// Place the UAVs at t = 0; a channel that was opened before ends.
void
channel_open(const Settings* settings)
{
    g_channel.reset();
    Simulator::Destroy(); // Its clock starts at 0 again, without the events of the last channel.
    RngSeedManager::SetSeed(1);
    // As ns-3 recommends: independent replications differ in the run number, not in the seed.
    RngSeedManager::SetRun(settings->run);
    g_channel = std::make_unique<Channel>(*settings);
}

/// Compute the next slots: linear gain [K][slots], position [K][slots][3] in m; given positions are
/// read.
void
channel_advance(uint64_t slots, double* gain, double* position)
{
    g_channel->Advance(slots, gain, position);
}

/// Loss in dB [count] between a BS and UAVs at [count][3] m, without shadow fading.
void
path_loss_db(double frequency,
             int32_t lineOfSight,
             const double* bsPosition,
             const double* uavPosition,
             uint64_t count,
             double* loss)
{
    const auto baseStation = MakeFixed(bsPosition);
    const auto model = MakeLoss(frequency, lineOfSight, false, baseStation);
    for (uint64_t i = 0; i < count; ++i)
    {
        loss[i] = -model->CalcRxPower(0, MakeFixed(uavPosition + 3 * i), baseStation);
    }
}
}
