#include "model/cost/collectives.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

Cluster dgx_a100(int nodes) {
  return job_from(R"({"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nodes": )" + std::to_string(nodes) +
                  R"(}, "layout": {"global_batch_size": 4096}})")
      .cluster;
}

GroupPlacement group(int ranks, int nodes) {
  return {ranks, nodes, ranks / nodes, 1};
}

TEST(Collectives, VolumesAreBandwidthOptimal) {
  EXPECT_DOUBLE_EQ(bytes_sent_per_rank(CollectiveKind::kAllReduce, Bytes(800), 8).value(), 1400.0);
  EXPECT_DOUBLE_EQ(bytes_sent_per_rank(CollectiveKind::kAllGather, Bytes(800), 8).value(), 700.0);
  EXPECT_DOUBLE_EQ(bytes_sent_per_rank(CollectiveKind::kReduceScatter, Bytes(800), 1).value(), 0.0);
}

TEST(Collectives, AGroupOfOneIsFree) {
  const Cluster cluster = dgx_a100(1);
  EXPECT_EQ(CommunicationModel(cluster).collective(CollectiveKind::kAllReduce, Bytes(1e9), group(1, 1)).value(), 0.0);
}

// All-reduce on eight A100 over NVSwitch, VIA-Research/vTrain trace LUT (MIT): 8.19 ms at 1 GiB, 229 GB/s bus
// bandwidth. The model has no fitted constant, so it only has to come close; tests/golden compares every measured size.
TEST(Collectives, ComeNearMeasuredAllReducesOnOneNode) {
  const Cluster cluster = dgx_a100(1);
  const CommunicationModel model(cluster);
  const double bytes = 1024.0 * 1024.0 * 1024.0;
  const double time = model.collective(CollectiveKind::kAllReduce, Bytes(bytes), group(8, 1)).value();
  EXPECT_NEAR(bytes / time * 2 * 7 / 8 / 229e9, 1.0, 0.1);
}

TEST(Collectives, GrowWithBytesAndRanksAndSharing) {
  const Cluster cluster = dgx_a100(4);
  const CommunicationModel model(cluster);
  double previous = 0.0;
  for (double bytes = 8; bytes < 1e10; bytes *= 2) {
    const double time = model.collective(CollectiveKind::kAllGather, Bytes(bytes), group(8, 1)).value();
    EXPECT_GE(time, previous);
    previous = time;
  }
  // Only all-reduces use trees, with NCCL's correction by size.
  previous = 0.0;
  for (double bytes = 8; bytes < 1e10; bytes *= 1.3) {
    const double time = model.collective(CollectiveKind::kAllReduce, Bytes(bytes), group(32, 4)).value();
    EXPECT_GE(time, previous) << bytes;
    previous = time;
  }
  GroupPlacement alone{16, 2, 8, 1};
  GroupPlacement sharing{16, 2, 8, 4};
  EXPECT_LT(model.collective(CollectiveKind::kAllReduce, Bytes(1e9), alone).value(),
            model.collective(CollectiveKind::kAllReduce, Bytes(1e9), sharing).value());
}

TEST(Collectives, PointToPointPaysLatencyAndItsShareOfTheCards) {
  const Cluster cluster = dgx_a100(2);
  const CommunicationModel model(cluster);
  EXPECT_DOUBLE_EQ(model.point_to_point(Bytes(0), false, 1).value(), 8e-6);
  EXPECT_NEAR(model.point_to_point(Bytes(24e9), true, 8).value(), 24e-6 + 1.0, 1e-9);   // one card each
  EXPECT_NEAR(model.point_to_point(Bytes(24e9), true, 1).value(), 24e-6 + 1.0, 1e-9);   // one flow uses one card
  EXPECT_NEAR(model.point_to_point(Bytes(24e9), true, 16).value(), 24e-6 + 2.0, 1e-9);  // two flows per card
}

// Eight H100 over NVSwitch, MooreThreads/SimuMax nccl_fit.py: bytes of one rank's buffer, microseconds. Its times
// include about 65 us of framework overhead per call, which is visible for small messages.
TEST(Collectives, AllToAllComesNearWhatIsMeasuredOnOneNode) {
  const Cluster cluster =
      job_from(R"({"model": "gpt3-175b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})").cluster;
  const CommunicationModel model(cluster);
  const double measured[][3] = {
      {67108864, 220.1, 0.25}, {268435456, 761.2, 0.16}, {1073741824, 2822.3, 0.11}, {8589934592, 21730, 0.07}};
  for (const auto& [bytes, microseconds, tolerance] : measured) {
    EXPECT_NEAR(model.all_to_all(Bytes(bytes), group(8, 1)).value() * 1e6 / microseconds, 1.0, tolerance) << bytes;
  }
}

// Two nodes: 7/16 of each rank's buffer stays inside, and 8/16 leaves over the rank's share of the cards.
TEST(Collectives, AllToAllBetweenNodesIsBoundByTheCards) {
  const Cluster cluster = dgx_a100(2);
  const double bytes = 1e9;
  const double card = 25e9 * 0.96;
  const double time = CommunicationModel(cluster).all_to_all(Bytes(bytes), group(16, 2)).value();
  EXPECT_NEAR(time, bytes / 2 / card, 1e-4);
  EXPECT_EQ(CommunicationModel(cluster).all_to_all(Bytes(bytes), group(1, 1)).value(), 0.0);
}

// Each additional p5.48xlarge in the ring of a large all-gather adds 72 us (nccl-tests on 2 to 32 nodes, October 2025):
// seven NVLink steps of 3.4 us, NCCL's 14 us and the network's latency.
TEST(Collectives, ARingPaysTheNetworkForEachNode) {
  Cluster cluster =
      job_from(R"({"model": "llama3-8b", "cluster": "32xp5", "layout": {"global_batch_size": 256}})").cluster;
  cluster.nic_bandwidth = BytesPerSecond(1e18);
  cluster.intra_bandwidth = BytesPerSecond(1e18);
  const CommunicationModel model(cluster);
  const auto time = [&model](int nodes) {
    return model.collective(CollectiveKind::kAllGather, Bytes(1e9), group(8 * nodes, nodes)).value();
  };
  // If links cost nothing, LL128 remains: seven steps of 1.9 us, one of 4 us and the network's 34 us.
  EXPECT_NEAR(time(17) - time(16), 7 * 1.9e-6 + 4e-6 + 34e-6, 1e-9);
  cluster.hop_latency = Seconds(400e-6);
  EXPECT_NEAR(time(17) - time(16), 7 * 1.9e-6 + 4e-6 + 400e-6, 1e-9);
}

// Bus bandwidths of eight V100 in a hybrid cube mesh, nccl-tests: 22.5 GB/s among two, 85 among four, 132 among eight.
TEST(Collectives, AMeshHasAsManyRingsAsItsLinksGive) {
  const Cluster cluster =
      job_from(R"({"model": "gpt2-124m", "cluster": "dgx-v100", "layout": {"global_batch_size": 64}})").cluster;
  const double link = cluster.intra_bandwidth.value() / 6;
  EXPECT_DOUBLE_EQ(cluster.ring_bandwidth(2).value(), link);
  EXPECT_DOUBLE_EQ(cluster.ring_bandwidth(3).value(), 2 * link);
  EXPECT_DOUBLE_EQ(cluster.ring_bandwidth(4).value(), 4 * link);
  EXPECT_DOUBLE_EQ(cluster.ring_bandwidth(8).value(), 6 * link);
  Cluster apart = cluster;
  apart.links = {{0, 2, 1}};
  EXPECT_EQ(apart.ring_bandwidth(2).value(), apart.host_bandwidth.value());
  apart.links.clear();
  EXPECT_EQ(apart.ring_bandwidth(2).value(), apart.intra_bandwidth.value());
}

// A100 PCIe: a bridge connects two devices, and pairs are connected only by PCIe. Three devices in a row do not form a
// ring.
TEST(Collectives, BridgesOfPairsMakeNoRingOfAll) {
  const Cluster cluster =
      job_from(R"({"model": "gpt2-124m", "cluster": "a100-pcie-8x", "layout": {"global_batch_size": 64}})").cluster;
  EXPECT_EQ(cluster.ring_bandwidth(2).value(), cluster.intra_bandwidth.value());
  for (const int devices : {3, 4, 8}) {
    EXPECT_EQ(cluster.ring_bandwidth(devices).value(), cluster.host_bandwidth.value()) << devices;
  }
  Cluster row = cluster;
  row.links = {{0, 1, 1}, {1, 2, 1}};
  EXPECT_EQ(row.ring_bandwidth(3).value(), row.host_bandwidth.value());
  row.links.push_back({0, 2, 1});
  EXPECT_EQ(row.ring_bandwidth(3).value(), row.intra_bandwidth.value());
}

// Sixteen nodes of one rank each: PAT saves hops.
TEST(Collectives, ReleasesOfNcclBringTheirAlgorithms) {
  Cluster cluster = dgx_a100(16);
  cluster.hop_latency = Seconds(100e-6);
  const auto gather = [&cluster](int nccl, int ranks, int nodes, double bytes) {
    return CommunicationModel(cluster, Transport::kNccl, nccl)
        .collective(CollectiveKind::kAllGather, Bytes(bytes), group(ranks, nodes))
        .value();
  };
  EXPECT_EQ(gather(222, 16, 16, 1e6), gather(0, 16, 16, 1e6));
  EXPECT_NEAR(gather(222, 16, 16, 1.0) - gather(223, 16, 16, 1.0), (15 - 4) * 100e-6, 30e-6);
  EXPECT_EQ(gather(223, 16, 16, 1e12), gather(222, 16, 16, 1e12));
  EXPECT_EQ(gather(223, 16, 2, 1.0), gather(222, 16, 2, 1.0));

  const Cluster hopper =
      job_from(
          R"({"model": "gpt3-175b", "cluster": {"name": "dgx-h100", "nodes": 2}, "layout": {"global_batch_size": 64}})")
          .cluster;
  const auto sum = [&hopper](int nccl, int nodes) {
    return CommunicationModel(hopper, Transport::kNccl, nccl)
        .collective(CollectiveKind::kAllReduce, Bytes(1e9), group(8 * nodes, nodes))
        .value();
  };
  EXPECT_LT(sum(217, 1), 0.9 * sum(216, 1));
  EXPECT_EQ(sum(0, 1), sum(217, 1));
  EXPECT_EQ(sum(217, 2), sum(216, 2));
  EXPECT_LT(sum(218, 2), 0.9 * sum(217, 2));
}

// SHARP: cards send and receive each byte once for any number of nodes, and a sum takes two hops.
TEST(Collectives, SwitchesOfTheNetworkAddUp) {
  Cluster cluster = dgx_a100(64);
  const auto sum = [&cluster](int nodes, double bytes) {
    return CommunicationModel(cluster)
        .collective(CollectiveKind::kAllReduce, Bytes(bytes), group(nodes, nodes))
        .value();
  };
  const double ring = sum(64, 4e9);
  const double small = sum(64, 8.0);
  cluster.network_reduction = true;
  const double rate = cluster.node_network_bandwidth().value() * cluster.nic_efficiency;
  EXPECT_NEAR(sum(64, 4e9), 4e9 / rate, 1e-4);
  EXPECT_NEAR(sum(64, 4e9), sum(2, 4e9), 1e-9);
  EXPECT_NEAR(ring / sum(64, 4e9), 2.0, 0.1);
  EXPECT_LT(sum(64, 8.0), small);
  EXPECT_EQ(sum(1, 8.0), 0.0);
}

// All-reduces at a bus bandwidth of `bus` bytes per second.
GroupCurve all_reduces(int ranks, int nodes, double bus) {
  const double beta = 2.0 * (ranks - 1) / ranks / bus;
  return {CollectiveKind::kAllReduce, ranks, nodes, MessageCurve({{Bytes(0), Seconds(20e-6), beta}})};
}

Cluster dgx_h100(int nodes) {
  return job_from(R"({"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": )" + std::to_string(nodes) +
                  R"(}, "layout": {"global_batch_size": 4096}})")
      .cluster;
}

TEST(CarriedCurves, BusBandwidthReachesOtherCollectivesGroupsAndSizes) {
  Cluster cluster = dgx_h100(2);
  const double bus = 45e9;  // a tenth of the links' bandwidth
  cluster.curves = {all_reduces(8, 1, bus)};
  const CommunicationModel model(cluster);
  for (const double bytes : {64e6, 256e6, 1e9}) {
    for (const int ranks : {2, 4, 8}) {
      for (const CollectiveKind kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
        const double hand = bytes * (ranks - 1) / ranks / bus;
        EXPECT_NEAR(model.collective(kind, Bytes(bytes), group(ranks, 1)).value() / hand, 1.0, 0.05)
            << name_of(kind) << " of " << ranks << ", " << bytes;
      }
      const double hand = 2.0 * bytes * (ranks - 1) / ranks / bus;
      EXPECT_NEAR(model.collective(CollectiveKind::kAllReduce, Bytes(bytes), group(ranks, 1)).value() / hand, 1.0,
                  0.05);
      EXPECT_NEAR(model.all_to_all(Bytes(bytes), group(ranks, 1)).value() / (bytes * (ranks - 1) / ranks / bus), 1.0,
                  0.05);
    }
    EXPECT_NEAR(model.point_to_point(Bytes(bytes), false, 1).value() / (bytes / bus), 1.0, 0.05);
  }
}

TEST(CarriedCurves, SayNothingOfOtherLinks) {
  Cluster cluster = dgx_h100(2);
  const Cluster catalogue = cluster;
  cluster.curves = {all_reduces(16, 2, 40e9)};
  const CommunicationModel measured(cluster);
  const CommunicationModel otherwise(catalogue);
  EXPECT_EQ(measured.collective(CollectiveKind::kAllGather, Bytes(1e8), group(8, 1)).value(),
            otherwise.collective(CollectiveKind::kAllGather, Bytes(1e8), group(8, 1)).value());
  EXPECT_GT(measured.collective(CollectiveKind::kAllGather, Bytes(1e8), group(16, 2)).value(),
            5.0 * otherwise.collective(CollectiveKind::kAllGather, Bytes(1e8), group(16, 2)).value());
  // If only the links inside nodes were measured and are slow, they also limit a group that spans nodes.
  cluster.curves = {all_reduces(8, 1, 20e9)};
  EXPECT_NEAR(CommunicationModel(cluster).collective(CollectiveKind::kAllGather, Bytes(1e9), group(16, 2)).value() /
                  (1e9 * 15.0 / 16.0 / 20e9),
              1.0, 0.05);
}

TEST(CarriedCurves, GroupsThatShareCardsHaveTheirShare) {
  Cluster cluster = dgx_h100(4);
  const double bus = 40e9;
  cluster.curves = {all_reduces(32, 4, bus)};
  const GroupPlacement alone{4, 4, 1, 1};
  const GroupPlacement one_of_eight{4, 4, 1, 8};
  const CommunicationModel model(cluster);
  const double time = model.collective(CollectiveKind::kReduceScatter, Bytes(1e9), one_of_eight).value();
  EXPECT_NEAR(time / (8 * 1e9 * 3.0 / 4.0 / bus), 1.0, 0.05);
  // A rank has one card to itself in either case; two ranks have two.
  EXPECT_NEAR(model.collective(CollectiveKind::kReduceScatter, Bytes(1e9), alone).value(), time, 0.05 * time);
  const GroupPlacement pairs{8, 4, 2, 1};
  EXPECT_LT(model.collective(CollectiveKind::kReduceScatter, Bytes(1e9), pairs).value(), 0.65 * time);
}

TEST(CarriedCurves, NearerGroupsCountForMoreAndMeasuredOnesWin) {
  Cluster cluster = dgx_h100(1);
  cluster.curves = {all_reduces(8, 1, 45e9), all_reduces(2, 1, 180e9)};
  const CommunicationModel model(cluster);
  const auto bus_of = [&](int ranks) {
    return 1e9 * (ranks - 1) / ranks /
           model.collective(CollectiveKind::kAllGather, Bytes(1e9), group(ranks, 1)).value();
  };
  EXPECT_GT(bus_of(2), bus_of(4));
  EXPECT_GT(bus_of(4), bus_of(8));
  EXPECT_DOUBLE_EQ(model.collective(CollectiveKind::kAllReduce, Bytes(1e9), group(8, 1)).value(),
                   cluster.curves[0].curve.time(Bytes(1e9)).value());
}

// In a hybrid cube mesh, two devices have one link and eight have six rings: the bandwidth of one group does not apply
// to another.
TEST(CarriedCurves, DirectLinksOfANodeStayThoseOfEachGroup) {
  Cluster cluster = job_from(R"({"model": "gpt2-124m", "cluster": "dgx-v100", "layout": {"global_batch_size": 16},
    "training": {"precision": "fp16"}})")
                        .cluster;
  const Cluster catalogue = cluster;
  const CommunicationModel before(catalogue);
  const Bytes bytes(1e9);
  const double slower = 2.0;
  const double measured = slower * before.collective(CollectiveKind::kAllReduce, bytes, group(8, 1)).value();
  cluster.curves = {all_reduces(8, 1, 2.0 * 7.0 / 8.0 * bytes.value() / measured)};
  const CommunicationModel model(cluster);
  for (const int ranks : {2, 3, 4}) {
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
      const double otherwise = before.collective(kind, bytes, group(ranks, 1)).value();
      EXPECT_NEAR(model.collective(kind, bytes, group(ranks, 1)).value() / otherwise, slower, 0.05 * slower) << ranks;
    }
  }
  // A node of two such devices has none of the links of the eight-device node.
  cluster.devices_per_node = 2;
  EXPECT_EQ(CommunicationModel(cluster).collective(CollectiveKind::kAllReduce, bytes, group(2, 1)),
            before.collective(CollectiveKind::kAllReduce, bytes, group(2, 1)));
}

// An in-switch all-reduce is faster than any ring, but does not make rings faster.
TEST(CarriedCurves, AnAllReduceBySwitchDoesNotSpeedRingsUp) {
  Cluster cluster = dgx_h100(1);
  const CommunicationModel before(cluster);
  const double ring = before.collective(CollectiveKind::kAllGather, Bytes(1e9), group(8, 1)).value();
  Cluster measured = cluster;
  measured.curves = {all_reduces(8, 1, 480e9)};
  EXPECT_DOUBLE_EQ(CommunicationModel(measured).collective(CollectiveKind::kAllGather, Bytes(1e9), group(8, 1)).value(),
                   ring);
}

}  // namespace
}  // namespace flopcast
