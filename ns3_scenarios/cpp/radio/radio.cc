// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

/*
 * The radio access of a base station and K UAVs in ns-3, on a channel that is given: LTE, Wi-Fi
 * or, with 5G-LENA, NR. What it carries are the frames of devices of the kernel, or datagrams of senders that are
 * backlogged. A program and not a library: ns-3's LTE module needs symbols of GTK that
 * are never used, and ctypes binds all at once. See ns3_scenarios/radio.py for what it reads and
 * writes.
 */
#include "air.h"
#include "backlog.h"
#include "counts.h"
#include "curves.h"
#include "exchange.h"
#include "hosts.h"
#include "json.h"
#include "live.h"
#include "log.h"
#include "lte.h"
#include "wifi.h"

#ifdef RADIO_NR
#include "../nr/nr.h"
#endif

#include "ns3/nstime.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace radio
{

namespace
{
std::unique_ptr<Stack>
MakeStack(const Json& settings, const Air& air)
{
    if (settings["radio"].Text() == "wifi")
    {
        GivenLoss::BetweenUavs(settings["carrier_hz"].Number());
        return std::make_unique<Wifi>(air,
                                      WifiSettings{settings["standard"].Text(),
                                                   static_cast<int>(settings["width_mhz"].Number()),
                                                   settings["rts"].Bool(),
                                                   settings["noise_figure_db"].Number(),
                                                   settings["downlink_power_dbm"].Number(),
                                                   settings["uplink_power_dbm"].Numbers(),
                                                   settings["farthest_m"].Number()});
    }
#ifdef RADIO_NR
    if (settings["radio"].Text() == "nr")
    {
        auto twice = [&settings](const char* name) {
            return std::array{settings[name].Numbers().at(UP), settings[name].Numbers().at(DOWN)};
        };
        const auto blocks = twice("band_blocks");
        return std::make_unique<Nr>(
            air,
            NrSettings{twice("bandwidth_hz"),
                       {static_cast<std::size_t>(blocks[UP]),
                        static_cast<std::size_t>(blocks[DOWN])},
                       static_cast<std::size_t>(settings["resource_blocks"].Number()),
                       static_cast<unsigned>(settings["numerology"].Number()),
                       settings["tdd_pattern"].Text(),
                       settings["is_256qam"].Bool(),
                       settings["least_snr_db"].Number(),
                       settings["noise_figure_db"].Number(),
                       settings["noise_figure_db"].Number(),
                       settings["downlink_power_dbm"].Number(),
                       settings["uplink_power_dbm"].Numbers(),
                       {settings["uplink_blocks"].Numbers(),
                        settings["downlink_blocks"].Numbers()}});
    }
#endif
    return std::make_unique<Lte>(
        air,
        LteSettings{static_cast<std::size_t>(settings["resource_blocks"].Number()),
                    settings["uplink_noise_figure_db"].Number(),
                    settings["downlink_noise_figure_db"].Number(),
                    settings["cell_power_dbm"].Numbers(),
                    settings["uplink_power_dbm"].Numbers(),
                    settings["handover"].Text() == "a3",
                    settings["a3_hysteresis_db"].Number(),
                    settings["a3_time_to_trigger_s"].Number(),
                    {settings["uplink_blocks"].Numbers(), settings["downlink_blocks"].Numbers()},
                    settings["priority_by_dscp"].Bool(),
                    CellTerms{settings["background_load"].Number(),
                              static_cast<std::size_t>(settings["background_users"].Number()),
                              std::llround(settings["scheduling_request_s"].Number() * 1e3),
                              static_cast<std::size_t>(settings["grants_per_tti"].Number())},
                    settings["cell_loads"].Numbers()});
}

std::vector<int>
Files(const Json& list)
{
    const auto numbers = list.Numbers();
    return {numbers.begin(), numbers.end()};
}

/// Handovers as members of a list in JSON, each a list: the numbers of the UAV and of its cells, and
/// the times of `Handover` in s since `zero`, ns.
std::string
List(const std::vector<Handover>& handovers, int64_t zero)
{
    std::ostringstream list;
    list.precision(12);
    for (const Handover& each : handovers)
    {
        list << (list.tellp() > 0 ? ", [" : "[") << each.uav << ", " << each.from << ", " << each.to
             << ", " << 1e-9 * (each.start - zero);
        auto unlessNone = [&list](int64_t time, int64_t since) {
            time < 0 ? list << ", null" : list << ", " << 1e-9 * (time - since);
        };
        unlessNone(each.end, zero);
        unlessNone(each.interruption[UP], 0);
        unlessNone(each.interruption[DOWN], 0);
        list << ", " << each.waiting[UP] << ", " << each.waiting[DOWN] << ']';
    }
    return list.str();
}

/// Say who is missing, and carry the frames of devices from now on, until stdin ends.
void
PlayLive(Stack& stack,
         Air& air,
         const Json& settings,
         std::size_t steps,
         const std::vector<std::size_t>& missing)
{
    Log log(settings["log"].Text());
    stack.log = &log;
    Live live(stack,
              air,
              LiveSettings{Files(settings["uav_taps"]),
                           Files(settings["station_taps"]),
                           static_cast<int64_t>(settings["window_bytes"].Number()),
                           std::llround(settings["step_s"].Number() * 1e9),
                           settings["dilation"].Number(),
                           steps,
                           settings["placed"].Bool(),
                           static_cast<std::size_t>(settings["mtu"].Number()),
                           settings["one_entry"].Bool()},
              log);
    live.Start();
    WriteMissing(missing);
    live.Run();
}

/// Read gains and, where they are needed, positions of the slot from `start` to `end`.
void
ReadSlot(Air& air, int64_t start, int64_t end, std::size_t steps, bool isPlaced)
{
    auto up = ReadNumbers(air.Cells() * air.Uavs() * steps);
    auto down = ReadNumbers(air.Cells() * air.Uavs() * steps);
    air.Gains(start, end, std::move(up), std::move(down));
    if (isPlaced)
    {
        air.Positions(ReadNumbers(air.Uavs() * 3));
    }
}

int
Main()
{
    std::string line;
    ReadLine(line);
    const Json start = Json::Parse(line);
    EndWith(static_cast<int>(start["parent"].Number()));
    const Json& settings = start["settings"];
    if (settings["mode"].Text() == "curves")
    {
        WriteLine(LinkCurves());
        return 0;
    }
    const auto uavs = static_cast<std::size_t>(settings["uavs"].Number());
    const auto steps = static_cast<std::size_t>(settings["steps"].Number());
    const double slot = settings["slot_s"].Number();
    const bool isPlaced = settings["placed"].Bool();
    ns3::RngSeedManager::SetSeed(1);
    ns3::RngSeedManager::SetRun(static_cast<uint64_t>(settings["seed"].Number()));

    const auto cells = static_cast<std::size_t>(settings["cells"].Number());
    Air air(uavs, cells, settings["antenna_gain_db"].Number());
    GivenLoss::Use(&air);
    ReadSlot(air, INT64_MAX, INT64_MAX, steps, isPlaced);
    auto stack = MakeStack(settings, air);
    const auto missing = stack->Attach(settings["attach_s"].Number());
    if (settings["mode"].Text() == "live")
    {
        PlayLive(*stack, air, settings, steps, missing);
        return 0;
    }
    WriteMissing(missing);
    if (settings["mode"].Text() == "tcp")
    {
        return PlayMessages(*stack, settings, [&](int64_t from, int64_t to) {
            ReadSlot(air, from, to, steps, isPlaced);
        });
    }
    Backlog backlog(*stack,
                    uavs,
                    static_cast<uint32_t>(settings["datagram_bytes"].Number()),
                    static_cast<int64_t>(settings["window_bytes"].Number()),
                    settings["dscp"].Numbers(),
                    settings["way"].Text());
    backlog.Start();
    const int64_t zero = StartOfSlots(settings["settle_s"].Number());
    RunUntil(zero);

    Counts counts(uavs);
    stack->counts = &counts;
    std::vector<double> answer;
    for (int64_t s = 0; ReadLine(line) && line != "why"; ++s)
    {
        const int64_t from = zero + std::llround(1e9 * slot * s);
        const int64_t to = zero + std::llround(1e9 * slot * (s + 1));
        ReadSlot(air, from, to, steps, isPlaced);
        RunUntil(to);
        answer.clear();
        counts.Take(answer);
        stack->Report(answer);
        WriteNumbers(answer);
    }
    auto why = [&](Direction direction, std::size_t uav) {
        return Quoted(backlog.Sends(direction) ? stack->Why(direction, uav) : "");
    };
    std::string words;
    for (std::size_t k = 0; k < uavs; ++k)
    {
        words += (k ? ", [" : "[") + why(UP, k) + ", " + why(DOWN, k) + ']';
    }
    std::string handovers;
    if (const auto* lte = dynamic_cast<const Lte*>(stack.get()))
    {
        handovers = List(lte->Handovers(), zero);
    }
    WriteLine("{\"why\": [" + words + "], \"handovers\": [" + handovers + "]}");
    return 0;
}
} // namespace

} // namespace radio

int
main()
{
    int status = 1;
    try
    {
        status = radio::Main();
    }
    catch (const std::exception& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(status); // ns-3's objects refer to each other: nothing is gained by their destructors.
}
