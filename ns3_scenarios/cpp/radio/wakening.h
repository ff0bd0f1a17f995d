// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_WAKENING_H
#define RADIO_WAKENING_H

#include <cstdint>

namespace radio
{

/// What the base station knows of a UE's uplink queue where UEs must ask for their first grant.
///
/// ns-3's buffer status reports reach the base station without a grant. A real UE without one sends
/// a scheduling request in its own subframe of each period, and its report in the grant for it.
class Wakening
{
  public:
    /// Take note of a report.
    /// @param backlog Bytes.
    /// @param tti Now.
    /// @param period Of scheduling requests, TTIs; 0: reports need no grant.
    /// @param offset Of the UE's own subframes.
    /// @return The bytes of which the base station knows now.
    int64_t Report(int64_t backlog, int64_t tti, int64_t period, int64_t offset)
    {
        const bool isAlong = tti - m_granted <= ALONG; // with data that it is sending
        if (backlog == 0 || period == 0 || (m_due < 0 && isAlong))
        {
            m_due = -1;
            return backlog;
        }
        if (m_due < 0)
        {
            const int64_t came = tti - REPORTED;
            m_held = ((offset - came) % period + period) % period + GRANTED;
            m_due = tti + m_held;
        }
        m_backlog = backlog;
        return 0;
    }

    /// Whether the report is due that was held back.
    bool IsDue(int64_t tti) const
    {
        return m_due >= 0 && m_due <= tti;
    }

    /// The bytes of that report, which is no longer held back.
    int64_t Take()
    {
        m_due = -1;
        return m_backlog;
    }

    /// For how many TTIs it was.
    int64_t Held() const
    {
        return m_held;
    }

    void Grant(int64_t tti)
    {
        m_granted = tti;
    }

  private:
    static constexpr int64_t REPORTED = 5; // from a packet to the report of it in ns-3
    static constexpr int64_t GRANTED = 4;  // from the request to the grant for the report
    static constexpr int64_t ALONG = 11;   // from a grant until no report of now comes with its data

    int64_t m_backlog{0};
    int64_t m_due{-1}; // TTI; negative: nothing is held back
    int64_t m_held{0};
    int64_t m_granted{INT64_MIN / 2};
};

} // namespace radio

#endif
