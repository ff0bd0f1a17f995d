// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_HOSTS_H
#define RADIO_HOSTS_H

#include "json.h"
#include "stack.h"

#include "../tcp/impairment.h"
#include "../tcp/tcp.h"

#include "ns3/node.h"
#include "ns3/socket.h"
#include "ns3/virtual-net-device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace radio
{

/// A host with ns-3's TCP at one end of a UAV's link. Its packets wait in a queue of its own while
/// the radio access holds enough of them, as those of a kernel's network device do.
class Host
{
  public:
    /// @param stack The radio access.
    /// @param direction The direction in which this host sends.
    /// @param uav The UAV of its link.
    /// @param address The address of this host.
    /// @param settings See PlayMessages.
    Host(Stack& stack,
         Direction direction,
         std::size_t uav,
         ns3::Ipv4Address address,
         const Json& settings);

    /// Take a connected socket; `read` is called when data have arrived.
    void Connected(ns3::Ptr<ns3::Socket> socket, std::function<void(uint64_t bytes)> read);
    bool IsConnected() const;

    /// Hand a message of this size to TCP.
    void Send(uint64_t bytes);

    /// Hand waiting packets to the radio access.
    void Fill();

    /// A packet for this host has come out of the radio access, before delay and loss of `from`.
    void Receive(Host& from, ns3::Ptr<const ns3::Packet> packet);

    ns3::Ptr<ns3::Node> Node() const;

    tcp::Messages messages; // that this host sends
    ImpairedWay impaired;   // delay and loss of what this host sends
    bool loses{false};      // whether packets are lost

    /// Bytes and packets handed over to the radio access, packets that the queue had no room for,
    /// and packets that have not arrived, as a list in JSON.
    std::string Counts() const;

  private:
    bool Enqueue(ns3::Ptr<ns3::Packet> packet);

    Stack& m_stack;
    const Direction m_direction;
    const std::size_t m_uav;
    const int64_t m_window;         // bytes that the radio access holds
    const std::size_t m_mostQueued; // packets
    const uint32_t m_segment;       // bytes
    ns3::Ptr<ns3::Node> m_node;
    ns3::Ptr<ns3::VirtualNetDevice> m_device;
    ns3::Ptr<ns3::Socket> m_socket;
    std::deque<ns3::Ptr<ns3::Packet>> m_queue;
    ns3::Time m_last{0}; // when the last packet that this host sent arrives
    uint64_t m_bytes{0};
    uint64_t m_packets{0};
    uint64_t m_dropped{0};
    uint64_t m_arrived{0};
};

/// Play messages of TCP over the radio access, as the parent asks for them; see
/// ns3_scenarios/radio_packets.py. First, connections are made, and slot 0 starts.
///
/// @param stack The radio access, with all UAVs attached.
/// @param settings What the parent has sent.
/// @param readSlot Reads the channel of a slot, given its start and its end, ns.
/// @return The exit status of the program.
int PlayMessages(Stack& stack,
                 const Json& settings,
                 const std::function<void(int64_t from, int64_t to)>& readSlot);

} // namespace radio

#endif
