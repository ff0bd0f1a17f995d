// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "hosts.h"

#include "exchange.h"

#include "ns3/inet-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-interface-address.h"
#include "ns3/ipv4.h"
#include "ns3/mac48-address.h"
#include "ns3/nstime.h"
#include "ns3/simulator.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace radio
{

using namespace ns3;

namespace
{
constexpr int CONNECT_STEP_MS = 10;
/// How often Linux sends a segment again before it gives up (tcp_retries2); ns-3's TCP: 6 times.
constexpr uint32_t DATA_RETRIES = 15;
} // namespace

Host::Host(Stack& stack,
           Direction direction,
           std::size_t uav,
           Ipv4Address address,
           const Json& settings)
    : m_stack(stack),
      m_direction(direction),
      m_uav(uav),
      m_window(static_cast<int64_t>(settings["window_bytes"].Number())),
      m_mostQueued(static_cast<std::size_t>(settings["queue_frames"].Number())),
      m_segment(static_cast<uint32_t>(settings["mtu"].Number()) - tcp::HEADERS),
      m_node(CreateObject<ns3::Node>()),
      m_device(CreateObject<VirtualNetDevice>())
{
    InternetStackHelper internet;
    internet.SetIpv6StackInstall(false);
    internet.Install(m_node);
    m_device->SetAddress(Mac48Address::Allocate());
    m_device->SetMtu(static_cast<uint16_t>(settings["mtu"].Number()));
    m_device->SetSendCallback(
        [this](Ptr<Packet> packet, const Address&, const Address&, uint16_t) {
            return Enqueue(packet);
        });
    m_node->AddDevice(m_device);
    auto ipv4 = m_node->GetObject<Ipv4>();
    const auto interface = ipv4->AddInterface(m_device);
    ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, Ipv4Mask("255.0.0.0")));
    ipv4->SetUp(interface);
}

void
Host::Connected(Ptr<Socket> socket, std::function<void(uint64_t bytes)> read)
{
    m_socket = socket;
    tcp::AcknowledgedByData::Keep(socket);
    socket->SetRecvCallback(Callback<void, Ptr<Socket>>([read](Ptr<Socket> from) {
        while (auto data = from->Recv())
        {
            read(data->GetSize());
        }
    }));
    auto failed = [uav = m_uav](Ptr<Socket>) {
        throw std::runtime_error("TCP gave up the connection of UAV " + std::to_string(uav + 1));
    };
    socket->SetCloseCallbacks(Callback<void, Ptr<Socket>>(failed),
                              Callback<void, Ptr<Socket>>(failed));
}

bool
Host::IsConnected() const
{
    return static_cast<bool>(m_socket);
}

void
Host::Send(uint64_t bytes)
{
    messages.Send(bytes);
    while (bytes > 0)
    {
        const auto piece = static_cast<uint32_t>(std::min<uint64_t>(bytes, m_segment));
        if (m_socket->Send(Create<Packet>(piece)) != static_cast<int>(piece))
        {
            throw std::runtime_error("TCP took no message of UAV " + std::to_string(m_uav + 1));
        }
        bytes -= piece;
    }
}

bool
Host::Enqueue(Ptr<Packet> packet)
{
    const bool fits = m_queue.size() < m_mostQueued;
    if (fits)
    {
        m_queue.push_back(packet);
        Fill();
    }
    m_dropped += !fits;
    return fits;
}

void
Host::Fill()
{
    while (!m_queue.empty() && m_stack.IsOpen(m_direction, m_uav) &&
           m_stack.Held(m_direction, m_uav) < m_window)
    {
        auto packet = m_queue.front();
        m_queue.pop_front();
        m_bytes += packet->GetSize();
        ++m_packets;
        m_stack.Send(m_direction, m_uav, packet);
    }
}

void
Host::Receive(Host& from, Ptr<const Packet> packet)
{
    if (from.loses && from.impaired.Loses())
    {
        return;
    }
    ++from.m_arrived;
    const Time due = Simulator::Now() + Seconds(from.impaired.Delay());
    from.m_last = from.impaired.Reorders() ? due : std::max(from.m_last, due);
    Simulator::ScheduleWithContext(
        m_node->GetId(),
        from.m_last - Simulator::Now(),
        [device = m_device, copy = packet->Copy()] {
            device->Receive(copy,
                            IPV4,
                            device->GetAddress(),
                            device->GetAddress(),
                            NetDevice::PACKET_HOST);
        });
}

Ptr<ns3::Node>
Host::Node() const
{
    return m_node;
}

std::string
Host::Counts() const
{
    std::string list;
    for (const uint64_t count : {m_bytes, m_packets, m_dropped, m_packets - m_arrived})
    {
        list += (list.empty() ? "" : ", ") + std::to_string(count);
    }
    return '[' + list + ']';
}

namespace
{

/// The hosts of all links, and the messages that arrive at them.
class Hosts
{
  public:
    Hosts(Stack& stack, const Json& settings);

    /// Wait until all connections are made, at most `limit` (s).
    /// @return The numbers of UAVs whose connections were not made in time.
    std::vector<std::size_t> Connect(double limit);

    Host& At(std::size_t uav, Direction direction)
    {
        return *m_hosts.at(uav)[direction];
    }

    /// Set delay, jitter and loss of each link's uplink and downlink, [K, 2, 3].
    void Impair(const std::vector<double>& impairments);

    /// Simulate until the given time (ns), or until messages arrive.
    /// @return All messages that arrived at this time: their links and directions, as JSON.
    std::string Advance(int64_t until);

    std::string Counts() const;

  private:
    void Take(std::size_t uav, Direction direction, Ptr<Socket> socket);

    const std::size_t m_uavs;
    std::vector<std::array<std::unique_ptr<Host>, 2>> m_hosts; // by the direction they send in
    std::vector<Ptr<Socket>> m_listeners;
    std::string m_delivered;
};

Impairment
ImpairmentOf(const std::vector<double>& values)
{
    return {values.at(0),
            values.at(1),
            values.at(2),
            values.at(3),
            values.at(4),
            values.at(5),
            static_cast<uint64_t>(values.at(6)),
            static_cast<int32_t>(values.at(7))};
}

Hosts::Hosts(Stack& stack, const Json& settings)
    : m_uavs(static_cast<std::size_t>(settings["uavs"].Number()))
{
    tcp::Configure({static_cast<uint32_t>(settings["mtu"].Number()),
                    static_cast<uint32_t>(settings["initial_window"].Number()),
                    static_cast<int32_t>(settings["congestion_control"].Number()),
                    settings["nagle"].Bool()});
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(DATA_RETRIES));
    const auto& impairments = settings["impairments"].Items();
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        // The radio access knows a UAV by its address, and needs none of the base station.
        const std::array<Ipv4Address, 2> address{AddressOf(k), AddressOf(m_uavs + k)};
        auto& both = m_hosts.emplace_back();
        for (const auto way : {UP, DOWN})
        {
            both[way] = std::make_unique<Host>(stack, way, k, address[way], settings);
            both[way]->impaired =
                ImpairedWay(ImpairmentOf(impairments.at(2 * k + way).Numbers()));
        }
        auto listener = Socket::CreateSocket(both[DOWN]->Node(), TcpSocketFactory::GetTypeId());
        listener->Bind(InetSocketAddress(address[DOWN], tcp::PORT));
        listener->Listen();
        listener->SetAcceptCallback(
            MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
            Callback<void, Ptr<Socket>, const Address&>(
                [this, k](Ptr<Socket> socket, const Address&) { Take(k, DOWN, socket); }));
        m_listeners.push_back(listener);
    }
    stack.drained = [this](Direction direction, std::size_t uav) { At(uav, direction).Fill(); };
    stack.arrived = [this](Direction direction, std::size_t uav, Ptr<const Packet> packet) {
        At(uav, direction == UP ? DOWN : UP).Receive(At(uav, direction), packet);
    };
    for (std::size_t k = 0; k < m_uavs; ++k)
    {
        auto socket = Socket::CreateSocket(At(k, UP).Node(), TcpSocketFactory::GetTypeId());
        socket->SetConnectCallback(
            Callback<void, Ptr<Socket>>([this, k](Ptr<Socket> made) { Take(k, UP, made); }),
            MakeNullCallback<void, Ptr<Socket>>());
        socket->Connect(InetSocketAddress(AddressOf(m_uavs + k), tcp::PORT));
    }
}

std::vector<std::size_t>
Hosts::Connect(double limit)
{
    std::vector<std::size_t> missing;
    for (int at = 0; at < 1e3 * limit; at += CONNECT_STEP_MS)
    {
        Simulator::Stop(MilliSeconds(CONNECT_STEP_MS));
        Simulator::Run();
        missing.clear();
        for (std::size_t k = 0; k < m_uavs; ++k)
        {
            if (!At(k, UP).IsConnected() || !At(k, DOWN).IsConnected())
            {
                missing.push_back(k);
            }
        }
        if (missing.empty())
        {
            break;
        }
    }
    for (auto& both : m_hosts)
    {
        both[UP]->loses = both[DOWN]->loses = true;
    }
    return missing;
}

void
Hosts::Take(std::size_t uav, Direction direction, Ptr<Socket> socket)
{
    const Direction sent = direction == UP ? DOWN : UP; // what this end receives
    At(uav, direction).Connected(socket, [this, uav, sent](uint64_t bytes) {
        for (auto n = At(uav, sent).messages.Received(bytes); n > 0; --n)
        {
            if (m_delivered.empty())
            {
                Simulator::ScheduleNow([] { Simulator::Stop(); });
            }
            m_delivered += (m_delivered.empty() ? "[" : ", [") + std::to_string(uav) +
                           (sent == DOWN ? ", 1]" : ", 0]");
        }
    });
}

void
Hosts::Impair(const std::vector<double>& impairments)
{
    for (std::size_t i = 0; i + 2 < impairments.size(); i += 3)
    {
        At(i / 6, i / 3 % 2 ? DOWN : UP)
            .impaired.Change(impairments[i], impairments[i + 1], impairments[i + 2]);
    }
}

std::string
Hosts::Advance(int64_t until)
{
    m_delivered.clear();
    const EventId end = Simulator::Schedule(NanoSeconds(until) - Simulator::Now(),
                                            [] { Simulator::Stop(); });
    Simulator::Run();
    Simulator::Cancel(end);
    return '[' + m_delivered + ']';
}

std::string
Hosts::Counts() const
{
    std::string ends;
    for (const auto& both : m_hosts)
    {
        ends += (ends.empty() ? "[" : ", [") + both[UP]->Counts() + ", " + both[DOWN]->Counts() +
                ']';
    }
    return "{\"events\": " + std::to_string(Simulator::GetEventCount()) + ", \"ends\": [" + ends +
           "]}";
}

} // namespace

int
PlayMessages(Stack& stack,
             const Json& settings,
             const std::function<void(int64_t from, int64_t to)>& readSlot)
{
    std::string line;
    ReadLine(line); // The parent has read that all UAVs are attached.
    Hosts hosts(stack, settings);
    WriteMissing(hosts.Connect(settings["attach_s"].Number()));
    const int64_t zero = StartOfSlots(settings["settle_s"].Number());
    RunUntil(zero);
    const int64_t slot = std::llround(1e9 * settings["slot_s"].Number());
    while (ReadLine(line))
    {
        const Json order = Json::Parse(line);
        if (order["until"].IsNull())
        {
            WriteLine(hosts.Counts());
            continue;
        }
        if (!order["slot"].IsNull())
        {
            const int64_t from = zero + slot * std::llround(order["slot"].Number());
            readSlot(from, from + slot);
        }
        if (!order["impairments"].IsNull())
        {
            hosts.Impair(order["impairments"].Numbers());
        }
        for (const Json& message : order["send"].Items())
        {
            const auto& values = message.Items(); // link, whether down, bytes
            hosts
                .At(static_cast<std::size_t>(values.at(0).Number()),
                    values.at(1).Bool() ? DOWN : UP)
                .Send(static_cast<uint64_t>(values.at(2).Number()));
        }
        const auto delivered = hosts.Advance(zero + std::llround(order["until"].Number()));
        const auto now = Simulator::Now().GetNanoSeconds() - zero;
        WriteLine("{\"now\": " + std::to_string(now) + ", \"delivered\": " + delivered + '}');
    }
    return 0;
}

} // namespace radio
