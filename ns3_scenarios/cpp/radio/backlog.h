// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_BACKLOG_H
#define RADIO_BACKLOG_H

#include "stack.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace radio
{

/// Senders that always have something to send, at both ends of each link: datagrams of UDP.
class Backlog
{
  public:
    /// @param stack The radio access.
    /// @param uavs Number of UAVs, K.
    /// @param datagram Size of a packet of IP, bytes.
    /// @param window Bytes that wait at each sending end.
    /// @param dscp Differentiated services codepoint of the packets to each UAV, K.
    /// @param way "up" or "down" where nothing is sent in the other direction.
    Backlog(Stack& stack,
            std::size_t uavs,
            uint32_t datagram,
            int64_t window,
            std::vector<double> dscp,
            const std::string& way);

    /// Start to send.
    void Start();

    /// Whether anything is sent in a direction.
    bool Sends(Direction direction) const
    {
        return m_sends[direction];
    }

  private:
    /// Send until the window is full again.
    void Fill(Direction direction, std::size_t uav);
    /// Send a packet, unless the window is full.
    bool Add(Direction direction, std::size_t uav);

    Stack& m_stack;
    std::size_t m_uavs;
    uint32_t m_datagram;
    int64_t m_window;
    std::vector<double> m_dscp;
    bool m_sends[2];
};

} // namespace radio

#endif
