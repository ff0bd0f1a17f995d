// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_WIFI_H
#define RADIO_WIFI_H

#include "stack.h"

#include "ns3/mac48-address.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/wifi-net-device.h"
#include "ns3/wifi-phy-common.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace radio
{

struct WifiSettings
{
    std::string standard;         // n, ac or ax
    int width;                    // MHz
    bool rts;                     // RTS/CTS before every frame
    double noiseFigure;           // dB over -174 dBm/Hz, at both ends
    double accessPointPower;      // dBm
    std::vector<double> uavPower; // dBm, K
    double farthest;              // longest distance between two ends, m
};

/// ns-3's Wi-Fi: an access point and K stations on one channel, which all contend for it.
class Wifi : public Stack
{
  public:
    Wifi(const Air& air, const WifiSettings& settings);

    std::vector<std::size_t> Attach(double limit) override;
    bool IsOpen(Direction direction, std::size_t uav) const override;
    int64_t Held(Direction direction, std::size_t uav) const override;
    std::string Why(Direction direction, std::size_t uav) const override;

  protected:
    void Carry(Direction direction, std::size_t uav, ns3::Ptr<ns3::Packet> packet) override;

  private:
    /// Frames of a kind that went one way of a link.
    struct Frames
    {
        uint64_t sent{0};
        uint64_t received{0};
        std::map<ns3::WifiPhyRxfailureReason, uint64_t> lost;
    };

    struct Station
    {
        ns3::Ptr<ns3::Node> node;
        ns3::Ptr<ns3::WifiNetDevice> device;
        uint64_t beacons{0}; // that it received
        Frames requests;     // of its management, such as those for association
        Frames data[2];      // since counting began, by direction
    };

    void Install(const Air& air, const WifiSettings& settings);
    void Watch();
    /// A UAV has lost its connection, or has one again: the access point keeps its packets
    /// meanwhile, which it would try to send before all others.
    void Hold(std::size_t uav, bool isHeld);
    void WatchPhy(ns3::Ptr<ns3::WifiNetDevice> device);
    /// What a frame counts for, as seen by the device of one of its ends; null: for nothing.
    Frames* FramesOf(ns3::Ptr<const ns3::Packet> frame,
                     ns3::Ptr<ns3::WifiNetDevice> device,
                     bool isSender);
    void Tick();
    /// Number of a UAV by its MAC address; K for any other address.
    std::size_t Number(ns3::Mac48Address address) const;

    const Air& m_air;
    double m_accessPointPower;      // dBm
    std::vector<double> m_uavPower; // dBm
    ns3::NodeContainer m_accessPointNode;
    ns3::Ptr<ns3::WifiNetDevice> m_accessPoint;
    std::vector<Station> m_stations;
    std::map<ns3::Mac48Address, std::size_t> m_byAddress;
};

} // namespace radio

#endif
