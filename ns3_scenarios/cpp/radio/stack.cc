// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "stack.h"

#include "ns3/nstime.h"
#include "ns3/simulator.h"

namespace radio
{

namespace
{
constexpr int64_t LTE_FRAME = 10'000'000; // ns
} // namespace

void
RunUntil(int64_t end)
{
    ns3::Simulator::Stop(ns3::NanoSeconds(end) - ns3::Simulator::Now());
    ns3::Simulator::Run();
}

int64_t
StartOfSlots(double settle)
{
    const int64_t settled =
        ns3::Simulator::Now().GetNanoSeconds() + static_cast<int64_t>(settle * 1e9);
    return settled / LTE_FRAME * LTE_FRAME + LTE_FRAME;
}

} // namespace radio
