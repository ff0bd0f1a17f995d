// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef NR_SCHEDULER_H
#define NR_SCHEDULER_H

#include "../radio/air.h"

#include "ns3/nr-mac-scheduler-ofdma-rr.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace radio
{

/// Gives resource blocks to the UEs of a 5G-LENA cell, by the rule of the rate model.
///
/// UEs that have data get equal numbers of blocks, and those that remain in turn; or each UE has
/// blocks of its own. What a UE does not need goes to the others. 5G-LENA itself sends messages,
/// retransmissions and control information, and tells what UEs have to send.
class NrScheduler : public ns3::NrMacSchedulerOfdmaRR
{
  public:
    static ns3::TypeId GetTypeId();

    /// Number of resource blocks of a UE's own; 0: it shares all blocks with the others.
    using Own = std::function<std::size_t(Direction direction, uint16_t rnti)>;

    /// Set how many resource blocks are given to UEs, in each direction, which are their own, and the
    /// least SINR of blocks that are sent, linear.
    void Use(std::size_t blocks, double leastSinr, Own own);

    /// Take note of the SINR of a UE's signal in so many resource blocks, linear.
    void Measured(Direction direction, uint16_t rnti, double sinr, std::size_t blocks);

  private:
    struct Ue
    {
        double alone[2]{0, 0};                     // SINR in a single block, by direction
        int64_t measured[2]{INT64_MIN, INT64_MIN}; // and when it was measured, ns
        int64_t tried[2]{INT64_MIN, INT64_MIN}; // last grant while it was out of range, ns
        double claim[2]{0, 0};                  // of blocks that remain after equal parts
    };

    /// A UE that gets resource blocks in this slot.
    struct Part
    {
        std::shared_ptr<ns3::NrMacSchedulerUeInfo> ue;
        std::size_t need;      // blocks in which all that it has to send has room
        std::size_t blocks{0}; // that it gets
    };

    BeamSymbolMap AssignDLRBG(uint32_t symbols, const ActiveUeMap& active) const override;
    BeamSymbolMap AssignULRBG(uint32_t symbols, const ActiveUeMap& active) const override;
    BeamSymbolMap Share(Direction direction, uint32_t symbols, const ActiveUeMap& active) const;

    /// The resource blocks in which a UE sends or is sent to, of so many that it has; 0: it is out of
    /// range.
    std::size_t Used(Direction direction,
                     const ns3::NrMacSchedulerUeInfo& ue,
                     std::size_t blocks) const;
    static bool IsMeasured(const Ue& ue, Direction direction);
    /// The scheme of a UE in so many resource blocks and symbols.
    uint8_t Scheme(Direction direction,
                   const ns3::NrMacSchedulerUeInfo& ue,
                   std::size_t blocks,
                   uint32_t symbols) const;
    std::size_t Bytes(Direction direction,
                      const ns3::NrMacSchedulerUeInfo& ue,
                      std::size_t blocks,
                      uint32_t symbols) const;
    /// Divide the blocks of a slot.
    void Divide(Direction direction, std::vector<Part>& parts) const;

    std::size_t m_blocks{0};
    double m_leastSinr{0};
    Own m_own;
    // 5G-LENA's methods that assign resources are const.
    mutable std::map<uint16_t, Ue> m_known;
    mutable std::array<uint16_t, 2> m_lastTurn{0, 0}; // RNTI of the last UE that was served
};

} // namespace radio

#endif
