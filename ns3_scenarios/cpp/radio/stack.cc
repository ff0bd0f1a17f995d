// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "stack.h"

namespace radio
{

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
