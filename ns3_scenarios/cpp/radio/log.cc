// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "log.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <unistd.h>

namespace radio
{

Log::Log(const std::string& path)
    : m_file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666))
{
    if (m_file < 0)
    {
        throw std::runtime_error(path + ": " + std::strerror(errno));
    }
}

Log::~Log()
{
    close(m_file);
}

void
Log::Note(Kind kind,
          Direction direction,
          std::size_t uav,
          uint32_t bytes,
          uint32_t blocks,
          uint32_t mcs)
{
    if (!clock)
    {
        return;
    }
    m_records.push_back({clock(),
                         static_cast<uint16_t>(bytes),
                         static_cast<uint8_t>(blocks),
                         static_cast<uint8_t>(mcs),
                         static_cast<uint16_t>(uav),
                         kind,
                         static_cast<uint8_t>(direction | blocks >> 8 << 1)});
    if (m_records.size() >= MOST)
    {
        Flush();
    }
}

void
Log::Flush()
{
    const auto* data = reinterpret_cast<const char*>(m_records.data());
    for (std::size_t left = m_records.size() * sizeof(Record); left > 0;)
    {
        const ssize_t written = write(m_file, data, left);
        if (written < 0)
        {
            throw std::runtime_error(std::string("the log of the radio: ") + std::strerror(errno));
        }
        data += written;
        left -= static_cast<std::size_t>(written);
    }
    m_records.clear();
}

} // namespace radio
