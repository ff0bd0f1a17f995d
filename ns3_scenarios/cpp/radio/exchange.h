// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_EXCHANGE_H
#define RADIO_EXCHANGE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace radio
{

/// What the parent sends on stdin, and what it is answered on stdout: lines, and float64 in the
/// machine's byte order.

/// The next line of stdin, without its end; false if stdin has ended.
bool ReadLine(std::string& line);

/// The next `count` numbers of stdin; throws std::runtime_error if it ends early.
std::vector<double> ReadNumbers(std::size_t count);

void WriteLine(const std::string& line);
/// Write the numbers of UAVs without a connection, as a line of JSON.
void WriteMissing(const std::vector<std::size_t>& uavs);
void WriteNumbers(const std::vector<double>& numbers);
void WriteIntegers(const std::vector<int64_t>& numbers);

/// End this process when the given parent ends.
///
/// The end of stdin is not sufficient: a process forked from the parent may hold the pipe open.
void EndWith(int parent);

} // namespace radio

#endif
