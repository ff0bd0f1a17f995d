// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "curves.h"

#include "ns3/lte-amc.h"
#include "ns3/lte-mi-error-model.h"
#include "ns3/lte-spectrum-value-helper.h"
#include "ns3/string.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

namespace radio
{

namespace
{
constexpr int CQIS = 15;
constexpr int MOST_BLOCKS = 100;
/// A band for each size of the groups of resource blocks, from 1.
constexpr std::array<uint16_t, 4> BANDS{6, 25, 50, 100};
constexpr double LOWEST_DB = -20, HIGHEST_DB = 40, EXACT_DB = 1e-7;
constexpr double STEP_DB = 0.05, LAST_DB = 1.0, LEAST_ERROR = 0.005;
constexpr double FIRST_GRANT_DB = -5, LAST_GRANT_DB = 0;
constexpr uint32_t CHANNEL = 100; // number of a carrier; the curves do not depend on it

ns3::SpectrumValue
Uniform(uint16_t blocks, double db)
{
    ns3::SpectrumValue sinr(ns3::LteSpectrumValueHelper::GetSpectrumModel(CHANNEL, blocks));
    sinr = std::pow(10, db / 10);
    return sinr;
}

/// The least SNR in dB at which a UE reports at least that CQI.
double
LeastDb(ns3::LteAmc& amc, std::size_t group, int cqi)
{
    double below = LOWEST_DB;
    double from = HIGHEST_DB;
    while (from - below > EXACT_DB)
    {
        const double middle = (below + from) / 2;
        const auto found = amc.CreateCqiFeedbacks(Uniform(BANDS.at(group - 1), middle), group);
        (found.at(0) >= cqi ? from : below) = middle;
    }
    return from;
}

/// The part of new transport blocks that is lost.
double
Lost(ns3::LteAmc& amc, int cqi, int blocks, double db)
{
    std::vector<int> all(blocks);
    std::iota(all.begin(), all.end(), 0);
    const int mcs = amc.GetMcsFromCqi(cqi);
    const int bytes = amc.GetDlTbSizeFromMcs(mcs, blocks) / 8;
    const auto sinr = Uniform(MOST_BLOCKS, db);
    return ns3::LteMiErrorModel::GetTbDecodificationStats(sinr, all, bytes, mcs, {}).tbler;
}
} // namespace

std::string
LinkCurves()
{
    auto amc = ns3::CreateObjectWithAttributes<ns3::LteAmc>("AmcModel", ns3::StringValue("Vienna"));
    std::ostringstream list;
    list.precision(10);
    list << "{\"step_db\": " << STEP_DB << ", \"least_error\": " << LEAST_ERROR << ", \"least_db\": [";
    std::vector<double> least;
    for (std::size_t group = 1; group <= BANDS.size(); ++group)
    {
        list << (group > 1 ? ", [" : "[");
        least.clear();
        for (int cqi = 1; cqi <= CQIS; ++cqi)
        {
            least.push_back(LeastDb(*amc, group, cqi));
            list << (cqi > 1 ? ", " : "") << least.back();
        }
        list << ']';
    }
    list << "], \"errors\": [";
    const char* separator = "";
    for (int cqi = 1; cqi <= CQIS; ++cqi)
    {
        for (int blocks = 1; blocks <= MOST_BLOCKS; ++blocks)
        {
            const double from = least[cqi - 1];
            if (Lost(*amc, cqi, blocks, from) < LEAST_ERROR)
            {
                continue;
            }
            list << std::exchange(separator, ", ") << '[' << cqi << ", " << blocks;
            for (int step = 0; step * STEP_DB <= LAST_DB; ++step)
            {
                list << ", " << Lost(*amc, cqi, blocks, from + step * STEP_DB);
            }
            list << ']';
        }
    }
    list << "], \"grants_db\": [" << FIRST_GRANT_DB << ", " << STEP_DB << "], \"grants\": [[";
    for (int step = 0; FIRST_GRANT_DB + step * STEP_DB <= LAST_GRANT_DB; ++step)
    {
        const auto sinr = Uniform(MOST_BLOCKS, FIRST_GRANT_DB + step * STEP_DB);
        list << (step ? ", " : "") << ns3::LteMiErrorModel::GetPcfichPdcchError(sinr);
    }
    list << "]]}";
    return list.str();
}

} // namespace radio
