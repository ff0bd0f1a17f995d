// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RMA_AV_PROPAGATION_LOSS_MODEL_H
#define RMA_AV_PROPAGATION_LOSS_MODEL_H

#include "ns3/mobility-model.h"
#include "ns3/propagation-loss-model.h"
#include "ns3/random-variable-stream.h"

#include <unordered_map>

namespace ns3
{

/**
 * A standard normal random process along a path: two values `d` metres apart correlate with
 * exp(-d / decorrelation distance) (Gudmundson; 3GPP TR 38.901, 7.4.4).
 */
class CorrelatedNormal
{
  public:
    /**
     * @param decorrelation the decorrelation distance in m
     * @param stream the random stream of this process, its own
     */
    CorrelatedNormal(double decorrelation, int64_t stream);

    /**
     * The process at a position; asking twice at one position gives one value.
     * @param position in m
     * @returns a standard normal value
     */
    double At(const Vector& position);

  private:
    double m_decorrelation;               //!< m
    Ptr<NormalRandomVariable> m_noise;    //!< innovations
    bool m_started{false};                //!< whether a value was drawn
    Vector m_position;                    //!< position of the last value
    double m_value{0};                    //!< the last value
};

/**
 * RMa-AV, the rural macro-cell channel of aerial vehicles: path loss, LOS probability and shadow
 * fading of 3GPP TR 36.777 v15.0.0, Annex B (tables B-1 to B-3), for UAVs above 10 m and up to
 * 300 m; from 1 m up to 10 m it is RMa of TR 38.901 (tables 7.4.1-1 and 7.4.2-1, with buildings of
 * 5 m and streets of 20 m). (ns-3's own ThreeGppRmaPropagationLossModel has other random processes.)
 *
 * The base station is named by an attribute and the other end is the UAV: the base station may
 * be above the UAVs, so heights do not identify it. Heights are z coordinates.
 *
 * Each UAV's link has three processes of its own along the UAV's path, each on its own random
 * stream: one behind the LOS state, one for shadow fading in LOS and one in NLOS. The link is in
 * LOS while the normal distribution function of the first is at most the LOS probability at its
 * horizontal distance, so that the state has the probability of the table everywhere and persists
 * over the 60 m that TR 38.901 (table 7.6.3.1-2) gives for RMa. Shadowing decorrelates over 37 m
 * (LOS) and 120 m (NLOS; TR 38.901, table 7.5-6).
 */
class RmaAvPropagationLossModel : public PropagationLossModel
{
  public:
    /// Which links are in line of sight.
    enum LineOfSight
    {
        ALWAYS = 0,      //!< all
        PROBABILITY = 1, //!< by the LOS probability of TR 36.777, or TR 38.901
        NEVER = 2        //!< none
    };

    static TypeId GetTypeId();

    /// Random streams that a link uses.
    static constexpr int64_t STREAMS_PER_LINK = 3;

    /**
     * Give a UAV's link its random processes. Needed where LineOfSight or ShadowFading are random.
     * @param uav the UAV
     * @param stream the first of the link's streams
     * @returns the number of streams used
     */
    int64_t AddLink(Ptr<const MobilityModel> uav, int64_t stream);

    /**
     * Loss of a link, shadow fading included where it is on.
     * @param uav the UAV
     * @returns the loss in dB
     */
    double GetLoss(Ptr<const MobilityModel> uav) const;

  private:
    /// The random processes of one UAV's link.
    struct Link
    {
        CorrelatedNormal lineOfSight;
        CorrelatedNormal losShadow;
        CorrelatedNormal nlosShadow;
    };

    double DoCalcRxPower(double txPowerDbm,
                         Ptr<MobilityModel> a,
                         Ptr<MobilityModel> b) const override;
    int64_t DoAssignStreams(int64_t stream) override;

    void SetFrequency(double frequency);
    double GetFrequency() const;
    double LosLoss(double height, double distance3d) const;
    double NlosLoss(double height, double distance3d) const;
    double GroundLosLoss(double distance3d, double bend) const;
    double GroundNlosLoss(double height, double baseHeight, double distance3d) const;
    static double LosProbability(double height, double distance2d);
    Link& LinkOf(Ptr<const MobilityModel> uav) const;

    double m_frequency;                //!< carrier frequency in Hz
    double m_frequencyLoss;            //!< 20 log10(40 pi f / 3), f in GHz
    LineOfSight m_lineOfSight;         //!< which links are in line of sight
    bool m_shadowFading;               //!< whether there is shadow fading
    Ptr<MobilityModel> m_baseStation;  //!< position of the base station
    mutable std::unordered_map<const MobilityModel*, Link> m_links; //!< by UAV
};

} // namespace ns3

#endif // RMA_AV_PROPAGATION_LOSS_MODEL_H
