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

ns3::TypeId
Mark::GetTypeId()
{
    static ns3::TypeId id =
        ns3::TypeId("radio::Mark").SetParent<ns3::Tag>().AddConstructor<Mark>();
    return id;
}

ns3::TypeId
Mark::GetInstanceTypeId() const
{
    return GetTypeId();
}

uint32_t
Mark::GetSerializedSize() const
{
    return sizeof serial + sizeof uav + ETHERNET;
}

void
Mark::Serialize(ns3::TagBuffer buffer) const
{
    buffer.WriteU64(serial);
    buffer.WriteU16(uav);
    buffer.Write(header.data(), ETHERNET);
}

void
Mark::Deserialize(ns3::TagBuffer buffer)
{
    serial = buffer.ReadU64();
    uav = buffer.ReadU16();
    buffer.Read(header.data(), ETHERNET);
}

void
Mark::Print(std::ostream& stream) const
{
    stream << uav << ':' << serial;
}

Mark
Mark::Of(ns3::Ptr<const ns3::Packet> packet)
{
    Mark mark;
    // A tag of bytes: unlike a tag of the packet, it survives that RLC cuts and joins packets.
    auto tags = packet->GetByteTagIterator();
    while (tags.HasNext())
    {
        const auto tag = tags.Next();
        if (tag.GetTypeId() == GetTypeId())
        {
            tag.GetTag(mark);
            break;
        }
    }
    return mark;
}

void
Stack::Send(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet)
{
    if (Mark::Of(packet).serial == 0)
    {
        Mark mark;
        mark.serial = 1;
        mark.uav = static_cast<uint16_t>(uav);
        packet->AddByteTag(mark);
    }
    Carry(direction, uav, packet);
}

uint16_t
ProtocolOf(ns3::Ptr<const ns3::Packet> packet)
{
    uint8_t first = 0;
    packet->CopyData(&first, 1);
    switch (first >> 4)
    {
    case 4:
        return IPV4;
    case 6:
        return IPV6;
    default:
        return 0;
    }
}

} // namespace radio
