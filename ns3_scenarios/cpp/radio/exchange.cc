// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "exchange.h"

#include <cstdio>
#include <poll.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace radio
{

namespace
{
void
Write(const void* data, std::size_t size)
{
    if (std::fwrite(data, 1, size, stdout) != size || std::fflush(stdout) != 0)
    {
        _exit(1); // The parent has closed its end.
    }
}
} // namespace

bool
ReadLine(std::string& line)
{
    line.clear();
    int c = 0;
    while ((c = std::getc(stdin)) != EOF && c != '\n')
    {
        line += static_cast<char>(c);
    }
    return c != EOF;
}

std::vector<double>
ReadNumbers(std::size_t count)
{
    std::vector<double> numbers(count);
    if (std::fread(numbers.data(), sizeof(double), count, stdin) != count)
    {
        throw std::runtime_error("input ends early");
    }
    return numbers;
}

void
WriteLine(const std::string& line)
{
    const std::string whole = line + '\n';
    Write(whole.data(), whole.size());
}

void
WriteMissing(const std::vector<std::size_t>& uavs)
{
    std::string list;
    for (const std::size_t uav : uavs)
    {
        list += (list.empty() ? "" : ", ") + std::to_string(uav);
    }
    WriteLine("{\"missing\": [" + list + "]}");
}

void
WriteNumbers(const std::vector<double>& numbers)
{
    Write(numbers.data(), numbers.size() * sizeof(double));
}

void
WriteIntegers(const std::vector<int64_t>& numbers)
{
    Write(numbers.data(), numbers.size() * sizeof(int64_t));
}

void
EndWith(int parent)
{
    const auto handle = static_cast<int>(syscall(SYS_pidfd_open, parent, 0));
    if (handle < 0 || getppid() != parent)
    {
        _exit(1);
    }
    std::thread([handle] {
        pollfd ended{handle, POLLIN, 0};
        while (poll(&ended, 1, -1) < 0)
        {
        }
        _exit(1);
    }).detach();
}

} // namespace radio
