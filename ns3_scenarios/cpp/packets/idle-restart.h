// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef IDLE_RESTART_H
#define IDLE_RESTART_H

#include "ns3/simulator.h"
#include "ns3/tcp-cubic.h"
#include "ns3/tcp-linux-reno.h"
#include "ns3/tcp-socket-state.h"

#include <algorithm>
#include <string>

/**
 * A congestion control of ns-3's that, as Linux's do, starts slowly again after a pause: the window
 * halves for each retransmission timeout of silence, down to the initial one (RFC 2861; Linux's
 * tcp_cwnd_restart). ns-3 itself keeps the window for ever.
 */
template <class Ops>
class IdleRestart : public Ops
{
  public:
    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid = ns3::TypeId("IdleRestart<" + Ops::GetTypeId().GetName() + ">")
                                     .template SetParent<Ops>()
                                     .template AddConstructor<IdleRestart<Ops>>();
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

    ns3::Ptr<ns3::TcpCongestionOps> Fork() override
    {
        return ns3::CopyObject<IdleRestart<Ops>>(this);
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
