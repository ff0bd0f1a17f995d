// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_COUNTS_H
#define RADIO_COUNTS_H

#include "air.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace radio
{

/// What one direction of one UAV's link did in a slot.
struct Count
{
    static constexpr std::size_t FIELDS = 6;
    static constexpr int MODES = 32;

    uint64_t bytes{0};          // of IP, delivered
    uint64_t blocks{0};         // transport blocks sent, with retransmissions
    uint64_t blockBits{0};      // their sizes
    uint64_t resourceBlocks{0}; // summed over blocks
    uint64_t lost{0};           // blocks that did not arrive
    std::array<uint64_t, MODES> mcs{}; // blocks by modulation and coding scheme

    /// The fields as they are written: those above in this order, MCS as the most frequent one (-1:
    /// none).
    std::array<double, FIELDS> Values() const;
};

/// The counts of a slot, of all UAVs and both directions.
class Counts
{
  public:
    explicit Counts(std::size_t uavs);

    Count& operator()(Direction direction, std::size_t uav);

    /// Append the slot's values to a buffer, [FIELDS, 2, K], and begin the next slot.
    void Take(std::vector<double>& buffer);

  private:
    std::vector<Count> m_counts[2];
};

} // namespace radio

#endif
