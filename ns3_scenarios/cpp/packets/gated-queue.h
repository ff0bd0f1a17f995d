// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef GATED_QUEUE_H
#define GATED_QUEUE_H

#include "ns3/drop-tail-queue.h"
#include "ns3/mac48-address.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/ppp-header.h"

/**
 * The queue of a point-to-point device whose link may have an outage: while it is closed, frames
 * stay. ns-3 does not support a data rate of 0, and at a tiny rate a frame would block for seconds.
 */
class GatedQueue : public ns3::DropTailQueue<ns3::Packet>
{
  public:
    explicit GatedQueue(ns3::Ptr<ns3::PointToPointNetDevice> device)
        : m_device(ns3::PeekPointer(device))
    {
    }

    void SetOpen(bool open)
    {
        const bool opens = open && !m_open;
        m_open = open;
        if (!opens || !m_idle || IsEmpty())
        {
            return;
        }
        // An idle device only restarts when it gets a packet: pass its own first frame.
        m_first = DropTailQueue::Dequeue();
        auto packet = m_first->Copy();
        ns3::PppHeader header;
        packet->RemoveHeader(header);
        m_device->Send(packet, m_device->GetBroadcast(), IPV4);
    }

    /// Whether the device may dequeue a frame at once.
    bool Enqueue(ns3::Ptr<ns3::Packet> frame) override
    {
        if (m_first)
        {
            return true;
        }
        return DropTailQueue::Enqueue(frame) && m_open;
    }

    ns3::Ptr<ns3::Packet> Dequeue() override
    {
        ns3::Ptr<ns3::Packet> frame;
        if (m_first)
        {
            frame = m_first;
            m_first = nullptr;
        }
        else if (m_open)
        {
            frame = DropTailQueue::Dequeue();
        }
        m_idle = !frame;
        return frame;
    }

  private:
    static constexpr uint16_t IPV4 = 0x0800;

    ns3::PointToPointNetDevice* m_device; // owns this queue
    ns3::Ptr<ns3::Packet> m_first;        // while an idle device is restarted
    bool m_open{true};
    bool m_idle{true};                    // the device waits for Send
};

#endif
