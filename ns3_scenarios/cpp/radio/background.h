// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_BACKGROUND_H
#define RADIO_BACKGROUND_H

#include "ns3/ptr.h"
#include "ns3/random-variable-stream.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace radio
{

/// Users of a cell that are not simulated: the resource blocks of a direction that they have.
///
/// Without a number of users, they have a share of the resource blocks in each TTI. Otherwise they
/// have it on average: bursts arrive as a Poisson process, each for one of the users, and take
/// exponentially distributed times of the whole cell. Users with a burst divide the resource blocks
/// equally with the UEs that send.
class Background
{
  public:
    /// @param load The share, below 1.
    /// @param users Number of users with bursts; 0: none.
    /// @param stream Number of the first of three random streams.
    Background(double load, std::size_t users, int64_t stream);

    /// The blocks that the others have in the next TTI.
    /// @param blocks Of the direction.
    /// @param senders Number of UEs that send.
    std::size_t Next(std::size_t blocks, std::size_t senders);

  private:
    const double m_load;
    ns3::Ptr<ns3::ExponentialRandomVariable> m_gap;
    ns3::Ptr<ns3::ExponentialRandomVariable> m_size;
    ns3::Ptr<ns3::UniformRandomVariable> m_user;
    std::vector<double> m_bursts; // what each user waits for, TTIs of the whole cell
    double m_next{0};             // TTIs until the next burst
    double m_owed{0};             // blocks, by rounding
};

} // namespace radio

#endif
