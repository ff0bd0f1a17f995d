// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_CURVES_H
#define RADIO_CURVES_H

#include <string>

namespace radio
{

/// What ns-3's link curves say of the downlink, as JSON: for groups of 1 to 4 resource blocks, the
/// least SNR of each CQI in dB (`least_db`, [4, 15]); and by CQI and number of resource blocks, the
/// part of the transport blocks that is lost at that SNR and in steps of `step_db` above it
/// (`errors`, lists of CQI, blocks and parts), where it is above `least_error` at first; and the part
/// of the grants that is lost on the control channel (`grants`), by the SNR in the first of
/// `grants_db` and in steps of the second above it.
std::string LinkCurves();

} // namespace radio

#endif
