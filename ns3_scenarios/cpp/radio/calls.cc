// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "calls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace radio
{

namespace
{
/// More calls than these take a second entry into the kernel.
constexpr unsigned MOST = 1024;
constexpr int64_t LOOK_UP_EVERY = 1'000'000; // ns

std::runtime_error
Failed(const std::string& what)
{
    return std::runtime_error(what + ": " + std::strerror(errno));
}

void
SleepUntil(int64_t at)
{
    const timespec until{at / 1'000'000'000, at % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR)
    {
    }
}
} // namespace

int64_t
KernelClock()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

/// Two queues in memory that the kernel reads and writes: of calls to make, and of their results.
class Calls::Ring
{
  public:
    Ring()
    {
        m_file = static_cast<int>(syscall(SYS_io_uring_setup, MOST + 1, &m_about));
        if (m_file < 0)
        {
            throw Failed("io_uring");
        }
        m_queues = Map(IORING_OFF_SQ_RING,
                       std::max(m_about.cq_off.cqes + m_about.cq_entries * sizeof(io_uring_cqe),
                                m_about.sq_off.array + m_about.sq_entries * sizeof(unsigned)));
        for (unsigned i = 0; i < m_about.sq_entries; ++i)
        {
            At(m_about.sq_off.array)[i] = i;
        }
        m_calls = reinterpret_cast<io_uring_sqe*>(
            Map(IORING_OFF_SQES, m_about.sq_entries * sizeof(io_uring_sqe)));
    }

    ~Ring()
    {
        close(m_file);
    }

    /// Sleep until a moment unless it is 0, and make calls, at most `MOST`.
    void Make(int64_t until, const Call* calls, std::size_t count, int* results)
    {
        __kernel_timespec moment{until / 1'000'000'000, until % 1'000'000'000};
        unsigned tail = *At(m_about.sq_off.tail);
        const unsigned first = tail;
        auto next = [this, &tail]() -> io_uring_sqe& {
            io_uring_sqe& sqe = m_calls[tail++ & *At(m_about.sq_off.ring_mask)];
            sqe = {};
            // Each call waits for the one before it, whatever that results in.
            sqe.flags = IOSQE_IO_HARDLINK;
            return sqe;
        };
        if (until)
        {
            io_uring_sqe& sqe = next();
            sqe.opcode = IORING_OP_TIMEOUT;
            sqe.fd = -1;
            sqe.addr = reinterpret_cast<uintptr_t>(&moment);
            sqe.len = 1;
            sqe.timeout_flags = IORING_TIMEOUT_ABS;
            sqe.user_data = count;
        }
        for (std::size_t i = 0; i < count; ++i)
        {
            io_uring_sqe& sqe = next();
            sqe.opcode = calls[i].isRead ? IORING_OP_READ : IORING_OP_WRITE;
            sqe.fd = calls[i].file;
            sqe.addr = reinterpret_cast<uintptr_t>(calls[i].data);
            sqe.len = static_cast<unsigned>(calls[i].size);
            sqe.off = UINT64_MAX; // It has no position.
            sqe.rw_flags = RWF_NOWAIT;
            sqe.user_data = i;
        }
        if (tail == first)
        {
            return;
        }
        m_calls[(tail - 1) & *At(m_about.sq_off.ring_mask)].flags = 0;
        __atomic_store_n(At(m_about.sq_off.tail), tail, __ATOMIC_RELEASE);
        Enter(tail - first, count, results);
    }

  private:
    uint8_t* Map(int64_t offset, std::size_t size) const
    {
        void* at =
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, m_file, offset);
        if (at == MAP_FAILED)
        {
            throw Failed("io_uring");
        }
        return static_cast<uint8_t*>(at);
    }

    unsigned* At(unsigned offset) const
    {
        return reinterpret_cast<unsigned*>(m_queues + offset);
    }

    /// Make the calls that are in the queue, and wait for their results.
    void Enter(unsigned made, std::size_t count, int* results)
    {
        for (unsigned left = made, submitted = 0; left > 0;)
        {
            const auto taken = syscall(
                SYS_io_uring_enter, m_file, made - submitted, left, IORING_ENTER_GETEVENTS, nullptr, 0);
            if (taken < 0 && errno != EINTR)
            {
                throw Failed("io_uring");
            }
            submitted += taken > 0 ? static_cast<unsigned>(taken) : 0;
            unsigned head = *At(m_about.cq_off.head);
            const unsigned tail = __atomic_load_n(At(m_about.cq_off.tail), __ATOMIC_ACQUIRE);
            for (; head != tail; ++head, --left)
            {
                const auto* found = reinterpret_cast<const io_uring_cqe*>(
                    m_queues + m_about.cq_off.cqes);
                const auto& cqe = found[head & *At(m_about.cq_off.ring_mask)];
                if (cqe.user_data < count)
                {
                    results[cqe.user_data] = cqe.res;
                }
            }
            __atomic_store_n(At(m_about.cq_off.head), head, __ATOMIC_RELEASE);
        }
    }

    io_uring_params m_about{.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    int m_file{-1};
    uint8_t* m_queues{nullptr};
    io_uring_sqe* m_calls{nullptr};
};

Calls::Calls(bool isOneEntry)
    : m_ring(isOneEntry ? std::make_unique<Ring>() : nullptr)
{
}

Calls::~Calls() = default;

void
Calls::Read(int file, uint8_t* data, std::size_t size)
{
    m_calls.push_back({true, file, data, size});
}

void
Calls::Write(int file, const uint8_t* data, std::size_t size)
{
    m_calls.push_back({false, file, const_cast<uint8_t*>(data), size}); // It is only read.
}

const std::vector<int>&
Calls::Make(int64_t until)
{
    m_results.assign(m_calls.size(), 0);
    if (m_ring)
    {
        std::size_t done = 0;
        do
        {
            const std::size_t count = std::min<std::size_t>(m_calls.size() - done, MOST);
            m_ring->Make(done ? 0 : until, m_calls.data() + done, count, m_results.data() + done);
            done += count;
        } while (done < m_calls.size());
        if (until)
        {
            m_wokenAt = until;
            if (until >= m_lookedUpAt + LOOK_UP_EVERY)
            {
                m_wokenAt = KernelClock();
                m_lookedUpAt = until;
            }
        }
    }
    else
    {
        if (until)
        {
            SleepUntil(until);
            m_wokenAt = KernelClock();
        }
        for (std::size_t i = 0; i < m_calls.size(); ++i)
        {
            const auto& [isRead, file, data, size] = m_calls[i];
            const ssize_t result = isRead ? read(file, data, size) : write(file, data, size);
            m_results[i] = result < 0 ? -errno : static_cast<int>(result);
        }
    }
    m_calls.clear();
    return m_results;
}

} // namespace radio
