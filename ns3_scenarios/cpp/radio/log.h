// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_LOG_H
#define RADIO_LOG_H

#include "air.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace radio
{

/// What happened on the radio, event by event, in a file that another program reads.
class Log
{
  public:
    /// Kinds of events; see orchestrator/analysis/radio_log.py.
    enum Kind : uint8_t
    {
        GRANT = 0,
        RETRANSMISSION = 1,
        LOST = 2,
        BUSY = 3,
        IDLE = 4,
        HANDOVER = 5,
        HANDED_OVER = 6,
        INTERRUPTION = 7,
        SERVED = 8,
        SENT = 9,
        ASKED = 10,
    };

    /// @param path The file, which is written anew.
    explicit Log(const std::string& path);
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    /// The time of events, ns.
    std::function<int64_t()> clock;

    void Note(Kind kind,
              Direction direction,
              std::size_t uav,
              uint32_t bytes = 0,
              uint32_t blocks = 0,
              uint32_t mcs = 0);

    /// Write what has been noted.
    void Flush();

  private:
    struct Record
    {
        int64_t time;
        uint16_t bytes;
        uint8_t blocks; // the low 8 bits of their number
        uint8_t mcs;
        uint16_t uav;
        uint8_t kind;
        uint8_t direction; // bit 0; the other bits are the high ones of the number of blocks
    };

    static_assert(sizeof(Record) == 16);
    static constexpr std::size_t MOST = 1 << 20; // a write may take milliseconds

    int m_file;
    std::vector<Record> m_records;
};

} // namespace radio

#endif
