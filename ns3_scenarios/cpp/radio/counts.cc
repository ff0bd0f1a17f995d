// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "counts.h"

#include <algorithm>

namespace radio
{

std::array<double, Count::FIELDS>
Count::Values() const
{
    const auto most = std::max_element(mcs.begin(), mcs.end());
    const auto mode = *most ? static_cast<double>(most - mcs.begin()) : -1.0;
    return {static_cast<double>(bytes),
            static_cast<double>(blocks),
            static_cast<double>(blockBits),
            static_cast<double>(resourceBlocks),
            static_cast<double>(lost),
            mode};
}

Counts::Counts(std::size_t uavs)
    : m_counts{std::vector<Count>(uavs), std::vector<Count>(uavs)}
{
}

Count&
Counts::operator()(Direction direction, std::size_t uav)
{
    return m_counts[direction][uav];
}

void
Counts::Take(std::vector<double>& buffer)
{
    for (std::size_t field = 0; field < Count::FIELDS; ++field)
    {
        for (auto& counts : m_counts)
        {
            for (const Count& count : counts)
            {
                buffer.push_back(count.Values()[field]);
            }
        }
    }
    for (auto& counts : m_counts)
    {
        std::fill(counts.begin(), counts.end(), Count{});
    }
}

} // namespace radio
