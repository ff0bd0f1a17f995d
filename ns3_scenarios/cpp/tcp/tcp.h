// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef TCP_H
#define TCP_H

#include "linux-window.h"

#include "ns3/boolean.h"
#include "ns3/callback.h"
#include "ns3/config.h"
#include "ns3/nstime.h"
#include "ns3/packet.h"
#include "ns3/tcp-bbr.h"
#include "ns3/tcp-cubic.h"
#include "ns3/tcp-header.h"
#include "ns3/tcp-linux-reno.h"
#include "ns3/tcp-socket-base.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>

/// ns-3's TCP with the values of Linux, and messages in its streams.
namespace tcp
{

inline constexpr uint16_t PORT = 5201;
inline constexpr uint32_t HEADERS = 52; // bytes of IPv4, TCP, and the timestamp option
inline constexpr uint32_t BUFFER = 1 << 30; // larger than any window
inline constexpr int64_t DELAYED_ACK_MS = 40;
inline constexpr int64_t LEAST_TIMEOUT_MS = 200;

struct Settings
{
    uint32_t mtu;           // largest IP packet, bytes
    uint32_t initialWindow; // segments
    int32_t congestion;     // 0 cubic, 1 reno, 2 bbr
    bool nagle;
};

/// Settings of all sockets that are created later.
inline void
Configure(const Settings& settings)
{
    const std::array<ns3::TypeId, 3> controls{LinuxWindow<ns3::TcpCubic>::GetTypeId(),
                                              LinuxWindow<ns3::TcpLinuxReno>::GetTypeId(),
                                              ns3::TcpBbr::GetTypeId()};
    auto set = [](const std::string& name, const ns3::AttributeValue& value) {
        ns3::Config::SetDefault("ns3::" + name, value);
    };
    set("TcpSocket::SegmentSize", ns3::UintegerValue(settings.mtu - HEADERS));
    set("TcpSocket::SndBufSize", ns3::UintegerValue(BUFFER));
    set("TcpSocket::RcvBufSize", ns3::UintegerValue(BUFFER));
    set("TcpSocket::InitialCwnd", ns3::UintegerValue(settings.initialWindow));
    // Values of Linux; ns-3's defaults are 200 ms and 1 s.
    set("TcpSocket::DelAckTimeout", ns3::TimeValue(ns3::MilliSeconds(DELAYED_ACK_MS)));
    set("TcpSocketBase::MinRto", ns3::TimeValue(ns3::MilliSeconds(LEAST_TIMEOUT_MS)));
    set("TcpSocket::TcpNoDelay", ns3::BooleanValue(!settings.nagle));
    set("TcpL4Protocol::SocketType",
        ns3::TypeIdValue(controls.at(static_cast<std::size_t>(settings.congestion))));
}

/// Maintains Last.ACK.sent (RFC 7323). ns-3's TCP ignores piggybacked acknowledgements and would
/// echo the timestamp of the previous message: the measured round-trip time would include the pause
/// before, and the retransmission timeout three times that.
class AcknowledgedByData : public ns3::TcpSocketBase
{
  public:
    static void Keep(ns3::Ptr<ns3::Socket> socket)
    {
        using ns3::Ptr;
        const auto base = ns3::DynamicCast<ns3::TcpSocketBase>(socket);
        auto* last = &(ns3::PeekPointer(base)->*&AcknowledgedByData::m_highTxAck);
        base->TraceConnectWithoutContext("Tx",
                                         ns3::Callback<void,
                                                       Ptr<const ns3::Packet>,
                                                       const ns3::TcpHeader&,
                                                       Ptr<const ns3::TcpSocketBase>>(
                                             [last](Ptr<const ns3::Packet>,
                                                    const ns3::TcpHeader& header,
                                                    Ptr<const ns3::TcpSocketBase>) {
                                                 if (header.GetFlags() & ns3::TcpHeader::ACK)
                                                 {
                                                     *last =
                                                         std::max(*last, header.GetAckNumber());
                                                 }
                                             }));
    }
};

/// The messages of a stream of bytes, which arrive in the order of sending.
class Messages
{
  public:
    /// A message of this size, in bytes, is sent.
    void Send(uint64_t bytes)
    {
        m_due.push_back((m_due.empty() ? m_received : m_due.back()) + bytes);
    }

    /// So many bytes of the stream have arrived; returns the number of completed messages.
    uint32_t Received(uint64_t bytes)
    {
        m_received += bytes;
        uint32_t complete = 0;
        for (; !m_due.empty() && m_due.front() <= m_received; ++complete)
        {
            m_due.pop_front();
        }
        return complete;
    }

  private:
    uint64_t m_received{0};
    std::deque<uint64_t> m_due; // ends of messages in the stream
};

} // namespace tcp

#endif
