// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef LINUX_WINDOW_H
#define LINUX_WINDOW_H

#include "ns3/boolean.h"
#include "ns3/simulator.h"
#include "ns3/tcp-cubic.h"
#include "ns3/tcp-linux-reno.h"
#include "ns3/tcp-socket-state.h"

#include <algorithm>
#include <cstdint>
#include <string>

/**
 * A congestion control of ns-3 whose window is changed to match Linux in these respects:
 *
 * - slow start after idle: the window is halved for each idle retransmission timeout, down to the
 *   initial window (RFC 2861; tcp_cwnd_restart). ns-3 never reduces it;
 * - slow start grows by each acknowledged segment (RFC 3465; tcp_slow_start). ns-3's cubic grows by
 *   one for each acknowledgement, regardless of the number of segments;
 * - the window grows whenever it limited the sender (tcp_is_cwnd_limited). ns-3 requires more data
 *   in the socket than a sender provides that limits its local queue.
 */
template <class Ops>
class LinuxWindow : public Ops
{
  public:
    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid = ns3::TypeId("LinuxWindow<" + Ops::GetTypeId().GetName() + ">")
                                     .template SetParent<Ops>()
                                     .template AddConstructor<LinuxWindow<Ops>>();
        return tid;
    }

    void CwndEvent(ns3::Ptr<ns3::TcpSocketState> tcb,
                   const ns3::TcpSocketState::TcpCAEvent_t event) override
    {
        if (event == ns3::TcpSocketState::CA_EVENT_TX_START)
        {
            Restart(tcb);
        }
        Ops::CwndEvent(tcb, event);
    }

    void PktsAcked(ns3::Ptr<ns3::TcpSocketState> tcb,
                   uint32_t segments,
                   const ns3::Time& rtt) override
    {
        m_last = ns3::Simulator::Now();
        Ops::PktsAcked(tcb, segments, rtt);
    }

    void IncreaseWindow(ns3::Ptr<ns3::TcpSocketState> tcb, uint32_t segments) override
    {
        const uint32_t segment = tcb->m_segmentSize;
        const uint32_t before = tcb->m_bytesInFlight + segments * segment;
        const bool starts = tcb->m_cWnd < tcb->m_ssThresh;
        tcb->m_isCwndLimited = tcb->m_cWnd < (starts ? 2 * before : before + segment);
        for (; segments > 1 && tcb->m_cWnd < tcb->m_ssThresh; --segments)
        {
            Ops::IncreaseWindow(tcb, 1);
        }
        Ops::IncreaseWindow(tcb, segments);
    }

    ns3::Ptr<ns3::TcpCongestionOps> Fork() override
    {
        auto copy = ns3::CopyObject<LinuxWindow<Ops>>(this);
        // ns-3's cubic does not copy this from a listener, and its window would hardly grow.
        copy->SetAttributeFailSafe("TcpFriendliness", ns3::BooleanValue(true));
        return copy;
    }

  private:
    void Restart(ns3::Ptr<ns3::TcpSocketState> tcb)
    {
        const ns3::Time rto = ns3::MilliSeconds(200) + tcb->m_srtt;
        const uint32_t initial = tcb->m_initialCWnd * tcb->m_segmentSize;
        uint32_t window = tcb->m_cWnd;
        const uint32_t before = window;
        ns3::Time idle = ns3::Simulator::Now() - m_last;
        for (; idle > rto && window > initial; idle -= rto)
        {
            window = std::max(window / 2, initial);
        }
        if (window < before)
        {
            tcb->m_ssThresh = std::max(tcb->m_ssThresh.Get(), before - before / 4);
            tcb->m_cWnd = window;
            tcb->m_cWndInfl = window;
        }
    }

    ns3::Time m_last; // of the last acknowledgement
};

#endif
