// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "background.h"

#include "ns3/double.h"

#include <algorithm>
#include <cmath>

namespace radio
{

using namespace ns3;

namespace
{
constexpr double BURST = 20; // mean time of the whole cell, TTIs
}

Background::Background(double load, std::size_t users, int64_t stream)
    : m_load(load),
      m_gap(CreateObject<ExponentialRandomVariable>()),
      m_size(CreateObject<ExponentialRandomVariable>()),
      m_user(CreateObject<UniformRandomVariable>()),
      m_bursts(load > 0 ? users : 0)
{
    m_gap->SetAttribute("Mean", DoubleValue(load > 0 ? BURST / load : 1));
    m_size->SetAttribute("Mean", DoubleValue(BURST));
    m_gap->SetStream(stream);
    m_size->SetStream(stream + 1);
    m_user->SetStream(stream + 2);
    m_next = m_gap->GetValue();
}

std::size_t
Background::Next(std::size_t blocks, std::size_t senders)
{
    const auto all = static_cast<double>(blocks);
    if (m_bursts.empty())
    {
        // As orchestrator/engine/lte.py has it: whole blocks are left.
        return blocks - static_cast<std::size_t>(std::floor(all * (1 - m_load) + 1e-9));
    }
    for (m_next -= 1; m_next <= 0; m_next += m_gap->GetValue())
    {
        m_bursts[m_user->GetInteger(0, m_bursts.size() - 1)] += m_size->GetValue();
    }
    const auto active =
        std::count_if(m_bursts.begin(), m_bursts.end(), [](double left) { return left > 0; });
    if (active == 0)
    {
        return 0;
    }
    m_owed += all * static_cast<double>(active) / static_cast<double>(active + senders);
    const double taken = std::min(std::floor(m_owed), all);
    m_owed -= taken;
    for (double& left : m_bursts)
    {
        left = std::max(0.0, left - (left > 0 ? taken / all / static_cast<double>(active) : 0));
    }
    return static_cast<std::size_t>(taken);
}

} // namespace radio
