// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

/* What ns-3 itself makes of an ns-2 movement file: positions [slots][nodes][3] on stdout. */
#include "ns3/mobility-model.h"
#include "ns3/node-container.h"
#include "ns3/ns2-mobility-helper.h"
#include "ns3/simulator.h"

#include <cstdio>
#include <cstdlib>

using namespace ns3;

int
main(int, char** arguments)
{
    NodeContainer nodes;
    nodes.Create(std::atoi(arguments[2]));
    const double slot = std::atof(arguments[3]);
    const int slots = std::atoi(arguments[4]);
    Ns2MobilityHelper(arguments[1]).Install();
    for (int s = 0; s < slots; ++s)
    {
        Simulator::Schedule(Seconds(s * slot + 1e-6), [&nodes]() {
            for (auto node = nodes.Begin(); node != nodes.End(); ++node)
            {
                const Vector at = (*node)->GetObject<MobilityModel>()->GetPosition();
                std::printf("%.9f %.9f %.9f\n", at.x, at.y, at.z);
            }
        });
    }
    Simulator::Run();
    Simulator::Destroy();
}
