// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef IMPAIRMENT_H
#define IMPAIRMENT_H

#include <algorithm>
#include <cstdint>
#include <random>

extern "C" struct Impairment
{
    double delay;     // s
    double jitter;    // standard deviation of the delay, s; normal, clipped at 0
    double goodToBad; // Gilbert-Elliott with one step per frame: p
    double badToGood; // r
    double lossGood;  // 1 - k
    double lossBad;   // 1 - h
    uint64_t seed;
    int32_t reorders; // 1: frames may overtake earlier ones; 0: they stay in order
};

/// Delay and loss of the frames of one direction of a link. Times in s.
class ImpairedWay
{
  public:
    ImpairedWay() = default;

    explicit ImpairedWay(const Impairment& impairment)
        : m_impairment(impairment),
          m_random(impairment.seed)
    {
    }

    /// Change delay, jitter, and the loss probability in the good state.
    void Change(double delay, double jitter, double loss)
    {
        m_impairment.delay = delay;
        m_impairment.jitter = jitter;
        m_impairment.lossGood = loss;
    }

    /// Whether the next frame is lost.
    bool Loses()
    {
        const bool now = m_bad;
        if (m_impairment.goodToBad > 0 &&
            Chance(m_bad ? m_impairment.badToGood : m_impairment.goodToBad))
        {
            m_bad = !m_bad;
        }
        return Chance(now ? m_impairment.lossBad : m_impairment.lossGood);
    }

    /// Delay of the next frame that is not lost.
    double Delay()
    {
        if (m_impairment.jitter == 0)
        {
            return m_impairment.delay;
        }
        std::normal_distribution<> delay(m_impairment.delay, m_impairment.jitter);
        return std::max(0.0, delay(m_random));
    }

    /// Whether frames may overtake earlier ones.
    bool Reorders() const
    {
        return m_impairment.reorders != 0;
    }

  private:
    bool Chance(double probability)
    {
        return probability > 0 && std::uniform_real_distribution<>()(m_random) < probability;
    }

    Impairment m_impairment{};
    std::mt19937_64 m_random;
    bool m_bad{false};
};

#endif
