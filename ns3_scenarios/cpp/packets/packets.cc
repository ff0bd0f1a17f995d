// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

/*
 * K point-to-point links between a BS and UAVs, one TCP connection each, played packet by packet by
 * ns-3, behind a C interface for ctypes. Who sends what when is decided outside: messages are
 * handed in, and the simulation stops when one has arrived. One network per process.
 */
#include "impaired-channel.h"
#include "gated-queue.h"

#include "../tcp/tcp.h"

#include "ns3/abort.h"
#include "ns3/data-rate.h"
#include "ns3/enum.h"
#include "ns3/inet-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-interface-address.h"
#include "ns3/ipv4.h"
#include "ns3/node.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-size.h"
#include "ns3/simulator.h"
#include "ns3/tcp-socket-base.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/uinteger.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

using namespace ns3;

extern "C" struct PacketSettings
{
    uint64_t links;         // K
    uint32_t mtu;           // largest IP packet, bytes
    uint32_t frameHeader;   // header bytes that the rate counts per IP packet; at least PPP's 2
    uint32_t queueFrames;   // capacity of a queue in full frames
    uint32_t initialWindow; // segments
    int32_t congestion;     // 0 cubic, 1 reno, 2 bbr
    int32_t nagle;          // 0 or 1
    double packet;          // s of transmission per acknowledgement; at least two frames
};

extern "C" struct Delivery
{
    uint32_t link; // from 0
    uint32_t down; // 0 or 1
};

extern "C" struct EndCount
{
    uint64_t sentBytes;     // with the frame header
    uint64_t sentFrames;
    uint64_t droppedFrames;
    uint64_t lostFrames;    // on the radio channel
};

namespace
{

constexpr uint32_t PPP_HEADER = 2;
constexpr double SMALL_QUEUE = 1e-3;    // s of transmission, see End::Feed
constexpr double SETUP_RATE = 100e6;    // bit/s
constexpr double SETUP = 1.0;           // s, longer than the handshakes without delay
constexpr double SETUP_ROUND_TRIPS = 4;

/// One end of a link: the device, its queue, and the messages that it sends.
class End
{
  public:
    End(Ptr<Node> node,
        Ptr<ImpairedChannel> channel,
        std::size_t way,
        const PacketSettings& settings)
        : m_channel(channel),
          m_way(way),
          m_device(CreateObject<PointToPointNetDevice>()),
          m_queue(CreateObject<GatedQueue>(m_device)),
          m_gap(settings.frameHeader - PPP_HEADER),
          m_frameHeader(settings.frameHeader),
          m_frame(settings.mtu + PPP_HEADER),
          m_segment(settings.mtu - tcp::HEADERS),
          m_window(settings.initialWindow * m_segment)
    {
        m_queue->SetMaxSize(QueueSize(QueueSizeUnit::BYTES, settings.queueFrames * m_frame));
        m_device->SetAddress(Mac48Address::Allocate());
        m_device->SetMtu(static_cast<uint16_t>(settings.mtu));
        m_device->SetQueue(m_queue);
        m_device->Attach(channel);
        node->AddDevice(m_device);
        m_device->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&End::Sent, this));
        SetRate(SETUP_RATE);
    }

    /// The rate counts a longer header than PPP's: the inter-frame gap takes as long as the missing
    /// bytes.
    void SetRate(double bps)
    {
        if (bps > 0)
        {
            m_device->SetDataRate(DataRate(static_cast<uint64_t>(std::llround(bps))));
            m_device->SetInterframeGap(Seconds(8.0 * m_gap / bps));
            m_smallQueue = std::max(2.0 * m_frame, SMALL_QUEUE * bps / 8);
            m_rate = bps;
        }
        m_queue->SetOpen(bps > 0);
    }

    /// Acknowledge data of the other end like a kernel that handles several frames as one packet:
    /// at most half of the sender's window, which is Linux's limit for a packet. With more than two
    /// frames per packet, the remaining frames are also a packet, acknowledged without a timer.
    void AcknowledgeTo(const End& peer, double packet)
    {
        const double frames = packet * peer.m_rate / (8.0 * (peer.m_segment + tcp::HEADERS));
        const double most = peer.m_window / (2.0 * peer.m_segment);
        const auto every = std::max<uint32_t>(2, static_cast<uint32_t>(std::min(frames, most)));
        if (every != m_ackEvery)
        {
            m_socket->SetAttribute("DelAckCount", UintegerValue(every));
            const Time least = MilliSeconds(tcp::DELAYED_ACK_MS);
            m_socket->SetAttribute("DelAckTimeout",
                                   TimeValue(every > 2 ? Seconds(2 * packet) : least));
            m_ackEvery = every;
        }
    }

    /// Send a message of the given size in bytes.
    void Send(uint64_t bytes)
    {
        m_messages.Send(bytes);
        m_unfed += bytes;
        Feed();
    }

    /// Handle bytes received at the other end; returns the number of completed messages.
    uint32_t Received(uint64_t bytes)
    {
        return m_messages.Received(bytes);
    }

    EndCount Count() const
    {
        return {m_sentBytes,
                m_sentFrames,
                m_queue->GetTotalDroppedPackets(),
                m_channel->Lost(m_way)};
    }

    Ptr<PointToPointNetDevice> Device() const
    {
        return m_device;
    }

    void SetSocket(Ptr<Socket> socket)
    {
        m_socket = socket;
        socket->TraceConnectWithoutContext("HighestSequence", MakeCallback(&End::Progress, this));
    }

    bool HasSocket() const
    {
        return static_cast<bool>(m_socket);
    }

    /// The congestion window of this sender, in bytes.
    void SetWindow(uint32_t bytes)
    {
        m_window = bytes;
    }

  private:
    void Progress(SequenceNumber32 before, SequenceNumber32 highest)
    {
        m_sent += highest - before;
    }

    void Sent(Ptr<const Packet> frame)
    {
        m_sentBytes += frame->GetSize() - PPP_HEADER + m_frameHeader;
        ++m_sentFrames;
        if (m_unfed > 0)
        {
            Simulator::ScheduleNow(&End::Feed, this);
        }
    }

    /// Pass only as much data to TCP as keeps the device busy for a short time, like Linux (TCP
    /// small queues): a sender never overflows its local queue. ns-3's TCP ignores the queues below
    /// it; it would fill this one until frames are dropped, and treat that as congestion.
    void Feed()
    {
        while (m_unfed > 0 && m_queue->GetNBytes() + m_fed - m_sent < m_smallQueue)
        {
            const auto piece = static_cast<uint32_t>(std::min<uint64_t>(m_unfed, m_segment));
            const int taken = m_socket->Send(Create<Packet>(piece));
            NS_ABORT_MSG_IF(taken != static_cast<int>(piece), "TCP took no message");
            m_unfed -= piece;
            m_fed += piece;
        }
    }

    Ptr<ImpairedChannel> m_channel;
    std::size_t m_way; // direction of the channel
    Ptr<PointToPointNetDevice> m_device;
    Ptr<GatedQueue> m_queue;
    Ptr<Socket> m_socket;
    double m_gap;               // bytes
    uint32_t m_frameHeader;     // bytes
    uint32_t m_frame;           // bytes of a full frame in ns-3
    uint32_t m_segment;         // bytes of a message in a full frame
    uint32_t m_window;          // bytes
    double m_rate{0};           // the last rate without an outage, bit/s
    uint32_t m_ackEvery{0};     // segments
    double m_smallQueue{0};     // bytes
    uint64_t m_unfed{0};        // bytes not passed to TCP yet
    uint64_t m_fed{1};          // bytes passed to TCP; the handshake takes a sequence number
    uint64_t m_sent{0};         // bytes of these sent for the first time
    uint64_t m_sentBytes{0};
    uint64_t m_sentFrames{0};
    tcp::Messages m_messages;
};

class Network
{
  public:
    /// Impairments: uplink and downlink of each link.
    Network(const PacketSettings& settings, const Impairment* impairments)
        : m_packet(settings.packet)
    {
        tcp::Configure(
            {settings.mtu, settings.initialWindow, settings.congestion, settings.nagle != 0});
        InternetStackHelper internet;
        internet.SetIpv6StackInstall(false);
        auto baseStation = CreateObject<Node>();
        internet.Install(baseStation);
        Listen(baseStation);
        double longest = 0;
        for (uint64_t k = 0; k < settings.links; ++k)
        {
            auto uav = CreateObject<Node>();
            internet.Install(uav);
            auto channel = CreateObject<ImpairedChannel>();
            channel->Impair(impairments[2 * k], impairments[2 * k + 1]);
            m_channels.push_back(channel);
            for (const auto& way : {impairments[2 * k], impairments[2 * k + 1]})
            {
                longest = std::max(longest, way.delay + 6 * way.jitter);
            }
            m_ends.push_back({std::make_unique<End>(uav, channel, 0, settings),
                              std::make_unique<End>(baseStation, channel, 1, settings)});
            const auto& [up, down] = m_ends.back();
            AddAddress(uav, up->Device(), Address(k, 2));
            AddAddress(baseStation, down->Device(), Address(k, 1));
            auto socket = Socket::CreateSocket(uav, TcpSocketFactory::GetTypeId());
            Take(k, true, socket);
            socket->Connect(InetSocketAddress(Address(k, 1), tcp::PORT));
        }
        m_epoch = Seconds(SETUP + SETUP_ROUND_TRIPS * 2 * longest);
        Advance(0);
        for (const auto& [up, down] : m_ends)
        {
            NS_ABORT_MSG_IF(!down->HasSocket(), "a connection was not made in time");
        }
        for (const auto& channel : m_channels)
        {
            channel->LoseFrames();
        }
    }

    void SetRates(const double* uplink, const double* downlink)
    {
        for (uint64_t k = 0; k < m_ends.size(); ++k)
        {
            const auto& [up, down] = m_ends[k];
            up->SetRate(uplink[k]);
            down->SetRate(downlink[k]);
            up->AcknowledgeTo(*down, m_packet);
            down->AcknowledgeTo(*up, m_packet);
        }
    }

    /// Set delay, jitter and loss of each link's uplink and downlink.
    void Impair(const double* impairments)
    {
        for (auto& channel : m_channels)
        {
            for (std::size_t way = 0; way < 2; ++way, impairments += 3)
            {
                channel->Change(way, impairments[0], impairments[1], impairments[2]);
            }
        }
    }

    End& At(uint64_t link, bool down)
    {
        return *m_ends.at(link)[down ? 1 : 0];
    }

    /// Simulate until the given time, or until messages arrive: then all that arrive at this time.
    const std::vector<Delivery>& Advance(int64_t until)
    {
        m_delivered.clear();
        const Time rest = m_epoch + NanoSeconds(until) - Simulator::Now();
        const EventId end = Simulator::Schedule(rest, [] { Simulator::Stop(); });
        Simulator::Run();
        Simulator::Cancel(end);
        return m_delivered;
    }

    int64_t Now() const
    {
        return (Simulator::Now() - m_epoch).GetNanoSeconds();
    }

  private:
    static Ipv4Address Address(uint64_t link, uint32_t host)
    {
        return Ipv4Address(0x0a000000 + (static_cast<uint32_t>(link) << 8) + host);
    }

    static void AddAddress(Ptr<Node> node, Ptr<NetDevice> device, Ipv4Address address)
    {
        auto ipv4 = node->GetObject<Ipv4>();
        const uint32_t interface = ipv4->AddInterface(device);
        ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, Ipv4Mask("/24")));
        ipv4->SetUp(interface);
    }

    void Listen(Ptr<Node> baseStation)
    {
        m_listener = Socket::CreateSocket(baseStation, TcpSocketFactory::GetTypeId());
        m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), tcp::PORT));
        m_listener->Listen();
        m_listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const ns3::Address&>(),
                                      MakeCallback(&Network::Accepted, this));
    }

    void Accepted(Ptr<Socket> socket, const ns3::Address& from)
    {
        const auto uav = InetSocketAddress::ConvertFrom(from).GetIpv4().Get();
        Take((uav - 0x0a000000) >> 8, false, socket);
    }

    /// A connected socket of the UAV (uplink) or of the BS (downlink).
    void Take(uint64_t link, bool uav, Ptr<Socket> socket)
    {
        At(link, !uav).SetSocket(socket);
        tcp::AcknowledgedByData::Keep(socket);
        socket->TraceConnectWithoutContext(
            "CongestionWindow",
            Callback<void, uint32_t, uint32_t>([this, link, uav](uint32_t, uint32_t bytes) {
                End& end = At(link, !uav);
                End& peer = At(link, uav);
                end.SetWindow(bytes);
                if (peer.HasSocket())
                {
                    peer.AcknowledgeTo(end, m_packet);
                }
            }));
        socket->SetRecvCallback(Callback<void, Ptr<Socket>>(
            [this, link, uav](Ptr<Socket> from) { Read(link, uav, from); }));
    }

    void Read(uint64_t link, bool down, Ptr<Socket> socket)
    {
        while (auto data = socket->Recv())
        {
            for (auto n = At(link, down).Received(data->GetSize()); n > 0; --n)
            {
                if (m_delivered.empty())
                {
                    Simulator::ScheduleNow([] { Simulator::Stop(); });
                }
                m_delivered.push_back({static_cast<uint32_t>(link), down});
            }
        }
    }

    double m_packet; // s
    Ptr<Socket> m_listener;
    std::vector<Ptr<ImpairedChannel>> m_channels;
    std::vector<std::array<std::unique_ptr<End>, 2>> m_ends; // uplink, downlink
    std::vector<Delivery> m_delivered;
    Time m_epoch; // emulated time 0
};

std::unique_ptr<Network> g_network;

} // namespace

extern "C"
{

/// Connect all links, which ends at time 0. Impairments: two entries per link, up and down.
void
packets_open(const PacketSettings* settings, const Impairment* impairments)
{
    NS_ABORT_MSG_IF(g_network, "a process has one network");
    g_network = std::make_unique<Network>(*settings, impairments);
}

/// Set the rates in bit/s, one per link; 0 is an outage.
void
packets_rates(const double* uplink, const double* downlink)
{
    g_network->SetRates(uplink, downlink);
}

/// Set delay in s, jitter in s and loss probability of each link's uplink and downlink.
void
packets_impair(const double* impairments)
{
    g_network->Impair(impairments);
}

/// Hand a message to TCP at the current time.
void
packets_send(uint64_t link, int32_t down, uint64_t bytes)
{
    g_network->At(link, down != 0).Send(bytes);
}

/// Simulate until the given time in ns, or until messages arrive; returns their number.
uint64_t
packets_advance(int64_t until, int64_t* now, const Delivery** delivered)
{
    const auto& arrived = g_network->Advance(until);
    *now = g_network->Now();
    *delivered = arrived.data();
    return arrived.size();
}

/// Counters of an end of a link since the start.
EndCount
packets_count(uint64_t link, int32_t down)
{
    return g_network->At(link, down != 0).Count();
}

/// Number of events that ns-3 has executed.
uint64_t
packets_events()
{
    return Simulator::GetEventCount();
}
}
