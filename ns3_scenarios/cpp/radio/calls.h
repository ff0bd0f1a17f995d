// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_CALLS_H
#define RADIO_CALLS_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace radio
{

/// The kernel's clock (CLOCK_MONOTONIC), ns.
int64_t KernelClock();

/// System calls on files that do not block. They are collected and then made, one after the other.
///
/// In a guest of virtual time, each entry into the kernel takes the host some 15 us of CPU time, and
/// much more than the call itself. There, all calls that were collected are one entry, by io_uring.
class Calls
{
  public:
    /// @param isOneEntry Whether all calls are one entry into the kernel, of Linux 6.5 or later.
    explicit Calls(bool isOneEntry);
    ~Calls();
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;

    /// Collect a call. The memory stays where it is until the calls have been made.
    void Read(int file, uint8_t* data, std::size_t size);
    void Write(int file, const uint8_t* data, std::size_t size);

    /// Sleep until a moment of the kernel's clock (ns), and make what was collected.
    /// @return The result of each call: a number of bytes, or a negative error number. It holds until
    ///   the next calls are made.
    const std::vector<int>& Make(int64_t until = 0);

    /// When the last sleep ended, ns. Where a batch is one entry, this is looked up at most once in
    /// a millisecond, since it takes another one; otherwise it is the moment that was asked for.
    int64_t WokenAt() const
    {
        return m_wokenAt;
    }

  private:
    class Ring;

    struct Call
    {
        bool isRead;
        int file;
        uint8_t* data;
        std::size_t size;
    };

    std::unique_ptr<Ring> m_ring; // null: each call is an entry
    std::vector<Call> m_calls;
    std::vector<int> m_results;
    int64_t m_wokenAt{0};
    int64_t m_lookedUpAt{0};
};

} // namespace radio

#endif
