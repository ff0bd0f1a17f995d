// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "nr-scheduler.h"

#include "../lte/uplink.h"

#include "ns3/nr-amc.h"
#include "ns3/nr-mac-scheduler-ue-info.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <stdexcept>

namespace radio
{

using namespace ns3;

namespace
{
constexpr std::size_t NR_LEAST_BYTES[2] = {12, 10}; // 5G-LENA sends no smaller block, by direction
constexpr std::size_t NR_HEADERS[2] = {10, 5}; // bytes of a block that carry no packets
constexpr int64_t NR_MEMORY = 1'000'000'000;         // of measurements, ns; as 5G-LENA's of reports
// Of UEs that are out of range, ns: each lost block is sent three times more, in the whole cell.
constexpr int64_t NR_BETWEEN_TRIALS = 200'000'000;
} // namespace

NS_OBJECT_ENSURE_REGISTERED(NrScheduler);

TypeId
NrScheduler::GetTypeId()
{
    static TypeId id = TypeId("radio::NrScheduler")
                           .SetParent<NrMacSchedulerOfdmaRR>()
                           .AddConstructor<NrScheduler>();
    return id;
}

void
NrScheduler::Use(std::size_t blocks, double leastSinr, Own own)
{
    m_blocks = blocks;
    m_leastSinr = leastSinr;
    m_own = std::move(own);
}

void
NrScheduler::Measured(Direction direction, uint16_t rnti, double sinr, std::size_t blocks)
{
    // A UE divides its power among its blocks; the gNB has the same power in all of the band.
    m_known[rnti].alone[direction] = direction == UP ? sinr * static_cast<double>(blocks) : sinr;
    m_known[rnti].measured[direction] = Simulator::Now().GetNanoSeconds();
}

NrScheduler::BeamSymbolMap
NrScheduler::AssignDLRBG(uint32_t symbols, const ActiveUeMap& active) const
{
    return Share(DOWN, symbols, active);
}

NrScheduler::BeamSymbolMap
NrScheduler::AssignULRBG(uint32_t symbols, const ActiveUeMap& active) const
{
    return Share(UP, symbols, active);
}

bool
NrScheduler::IsMeasured(const Ue& ue, Direction direction)
{
    const int64_t measured = ue.measured[direction];
    return measured != INT64_MIN &&
           Simulator::Now().GetNanoSeconds() - measured < NR_MEMORY;
}

std::size_t
NrScheduler::Used(Direction direction, const NrMacSchedulerUeInfo& ue, std::size_t blocks) const
{
    const Ue& known = m_known[ue.m_rnti];
    if (!IsMeasured(known, direction))
    {
        return blocks;
    }
    if (direction == DOWN)
    {
        return known.alone[DOWN] < m_leastSinr ? 0 : blocks;
    }
    return lte::used(static_cast<int64_t>(blocks), known.alone[UP] / m_leastSinr);
}

uint8_t
NrScheduler::Scheme(Direction direction,
                    const NrMacSchedulerUeInfo& ue,
                    std::size_t blocks,
                    uint32_t symbols) const
{
    const auto& amc = direction == UP ? m_ulAmc : m_dlAmc;
    const Ue& known = m_known[ue.m_rnti];
    if (direction == UP ? IsMeasured(known, UP) : ue.m_dlCqi.m_timer > 0)
    {
        return direction == DOWN ? ue.m_dlMcs
                                 : amc->GetMcsFromSpectralEfficiency(
                                       amc->GetSpectralEfficiencyForSinr(
                                           known.alone[UP] / static_cast<double>(blocks)));
    }
    // In a block that is too small to be sent, a UE would never be measured.
    uint8_t mcs = 0;
    while (mcs < amc->GetMaxMcs() &&
           amc->CalculateTbSize(mcs, 1, blocks * symbols) < NR_LEAST_BYTES[direction])
    {
        ++mcs;
    }
    return mcs;
}

std::size_t
NrScheduler::Bytes(Direction direction,
                   const NrMacSchedulerUeInfo& ue,
                   std::size_t blocks,
                   uint32_t symbols) const
{
    const auto& amc = direction == UP ? m_ulAmc : m_dlAmc;
    return amc->CalculateTbSize(Scheme(direction, ue, blocks, symbols), 1, blocks * symbols);
}

void
NrScheduler::Divide(Direction direction, std::vector<Part>& parts) const
{
    // Those that need less than an equal part get what they need.
    std::size_t left = m_blocks;
    std::vector<Part*> open;
    for (Part& part : parts)
    {
        open.push_back(&part);
    }
    for (bool isDone = false; !isDone && !open.empty();)
    {
        isDone = true;
        const std::size_t equal = left / open.size();
        for (auto each = open.begin(); each != open.end();)
        {
            if ((*each)->need <= equal)
            {
                (*each)->blocks = (*each)->need;
                left -= (*each)->need;
                each = open.erase(each);
                isDone = false;
            }
            else
            {
                ++each;
            }
        }
    }
    if (open.empty())
    {
        return;
    }
    // One more for those whose claims are the oldest, so that all have as many on average.
    const std::size_t equal = left / open.size();
    const std::size_t more = left % open.size();
    auto claim = [this, direction](const Part* part) -> double& {
        return m_known[part->ue->m_rnti].claim[direction];
    };
    for (Part* part : open)
    {
        claim(part) += static_cast<double>(more) / static_cast<double>(open.size());
    }
    std::stable_sort(open.begin(), open.end(), [&claim](const Part* one, const Part* other) {
        return claim(one) > claim(other);
    });
    for (std::size_t i = 0; i < open.size(); ++i)
    {
        open[i]->blocks = equal + (i < more);
        claim(open[i]) -= i < more;
    }
}

NrScheduler::BeamSymbolMap
NrScheduler::Share(Direction direction, uint32_t symbols, const ActiveUeMap& active) const
{
    if (active.empty())
    {
        return {};
    }
    if (active.size() > 1)
    {
        throw std::logic_error("the cell has several beams");
    }
    const int64_t now = Simulator::Now().GetNanoSeconds();
    auto all = active.begin()->second;
    std::sort(all.begin(), all.end(), [](const auto& one, const auto& other) {
        return one.first->m_rnti < other.first->m_rnti;
    });

    // The others have the part of a UE that is out of range, but for a trial from time to time.
    std::vector<UePtrAndBufferReq> ues;
    const auto equal = static_cast<std::size_t>(
        m_blocks / lte::at_once(static_cast<int64_t>(m_blocks), static_cast<int64_t>(all.size())));
    std::vector<uint16_t> trials;
    for (const auto& each : all)
    {
        const std::size_t own = m_own ? m_own(direction, each.first->m_rnti) : 0;
        if (Used(direction, *each.first, own ? own : equal) == 0)
        {
            int64_t& tried = m_known[each.first->m_rnti].tried[direction];
            if (tried != INT64_MIN && now - tried < NR_BETWEEN_TRIALS)
            {
                continue;
            }
            tried = now;
            trials.push_back(each.first->m_rnti);
        }
        ues.push_back(each);
    }
    if (ues.empty())
    {
        return {{active.begin()->first, 0}};
    }

    // With too many for the least number of blocks, they are served in turns.
    const auto atOnce = static_cast<std::size_t>(
        lte::at_once(static_cast<int64_t>(m_blocks), static_cast<int64_t>(ues.size())));
    const bool isShared = !m_own || m_own(direction, ues.front().first->m_rnti) == 0;
    if (isShared && atOnce < ues.size())
    {
        auto first = std::find_if(ues.begin(), ues.end(), [&](const auto& each) {
            return each.first->m_rnti > m_lastTurn[direction];
        });
        std::rotate(ues.begin(), first, ues.end());
        ues.resize(atOnce);
        m_lastTurn[direction] = ues.back().first->m_rnti;
    }

    std::vector<Part> parts;
    for (const auto& [ue, waits] : ues)
    {
        const std::size_t bytes =
            std::max(waits + NR_HEADERS[direction], NR_LEAST_BYTES[direction]);
        const bool isTrial = std::find(trials.begin(), trials.end(), ue->m_rnti) != trials.end();
        std::size_t low = 1;
        std::size_t high = isTrial ? std::min<std::size_t>(m_blocks, lte::LEAST_BLOCKS) : m_blocks;
        while (low < high)
        {
            const std::size_t middle = (low + high) / 2;
            Bytes(direction, *ue, middle, symbols) < bytes ? low = middle + 1 : high = middle;
        }
        parts.push_back({ue, low});
    }
    if (isShared)
    {
        Divide(direction, parts);
    }
    uint16_t first = 0;
    for (Part& part : parts)
    {
        NrMacSchedulerUeInfo& ue = *part.ue;
        if (!isShared)
        {
            part.blocks = std::min(m_own(direction, ue.m_rnti), part.need);
        }
        if (const std::size_t used = Used(direction, ue, part.blocks))
        {
            part.blocks = used;
        }
        auto& blocks = direction == UP ? ue.m_ulRBG : ue.m_dlRBG;
        auto& places = direction == UP ? ue.m_ulSym : ue.m_dlSym;
        for (std::size_t block = 0; block < part.blocks; ++block)
        {
            for (uint32_t symbol = 0; symbol < symbols; ++symbol)
            {
                blocks.push_back(first);
                places.push_back(symbol);
            }
            ++first;
        }
        if (part.blocks)
        {
            (direction == UP ? ue.m_ulMcs : ue.m_dlMcs) =
                Scheme(direction, ue, part.blocks, symbols);
        }
    }
    return {{active.begin()->first, symbols}};
}

} // namespace radio
