#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <rapidcheck/gtest.h>

#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "tests/unit/calibrate/damage.hpp"

namespace flopcast {
namespace {

// Head of a DGX A100's output as in NVIDIA's documents: NVSwitch, cards near their devices, one card for storage.
const char* const kSwitched =
    "\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n"
    "GPU0\t X \tNV12\tNV12\tNV12\tPXB\tSYS\tSYS\t48-63\t3\t\tN/A\n"
    "GPU1\tNV12\t X \tNV12\tNV12\tPXB\tSYS\tSYS\t48-63\t3\t\tN/A\n"
    "GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPIX\tSYS\t16-31\t1\t\tN/A\n"
    "GPU3\tNV12\tNV12\tNV12\t X \tSYS\tPIX\tSYS\t16-31\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC2\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n";

// Four devices connected directly, with four links to each of the others; older drivers name the cards in the matrix.
const char* const kMesh =
    "        GPU0 GPU1 GPU2 GPU3 mlx5_0 CPU Affinity\n"
    "GPU0     X   NV4  NV4  NV4  SYS    0-15\n"
    "GPU1    NV4   X   NV4  NV4  SYS    0-15\n"
    "GPU2    NV4  NV4   X   NV4  PHB    0-15\n"
    "GPU3    NV4  NV4  NV4   X   SYS    0-15\n"
    "mlx5_0  SYS  SYS  PHB  SYS   X\n";

const char* const kPairs =
    "     GPU0 GPU1 GPU2 GPU3 CPU Affinity\n"
    "GPU0  X   NV12 SYS  SYS  0-7\n"
    "GPU1 NV12  X   SYS  SYS  0-7\n"
    "GPU2 SYS  SYS   X   NV12 8-15\n"
    "GPU3 SYS  SYS  NV12  X   8-15\n";

TopologyFacts facts(const char* text, std::optional<GpuGeneration> generation) {
  return topology_facts(read_topology(text, "topo.txt"), generation);
}

std::string topology_complaint(const std::string& text) {
  try {
    read_topology(text, "topo.txt");
  } catch (const ConfigError& error) {
    return error.diagnostic().where + ": " + error.diagnostic().problem;
  }
  return "";
}

TEST(Topology, ASwitchTakesAllLinksOfADevice) {
  const NodeTopology topology = read_topology(kSwitched, "topo.txt");
  EXPECT_EQ(topology.devices(), 4);
  EXPECT_EQ(topology.links[0][3], 12);
  EXPECT_EQ(topology.network_cards, 3);
  EXPECT_EQ(topology.near_network_cards, 2);
  const TopologyFacts known = topology_facts(topology, GpuGeneration::kAmpere);
  EXPECT_EQ(known.cluster,
            nlohmann::json({{"devices_per_node", 4}, {"nics_per_node", 2}, {"intra_bandwidth", "300GB/s"}}));
  EXPECT_TRUE(known.notes.empty());
}

TEST(Topology, LinksOfAMeshAddUp) {
  const TopologyFacts known = facts(kMesh, GpuGeneration::kAmpere);
  EXPECT_EQ(known.cluster.at("intra_bandwidth"), "300GB/s");
  EXPECT_EQ(known.cluster.at("in_switch_reduction"), false);
  EXPECT_EQ(known.cluster.at("nics_per_node"), 1);
}

TEST(Topology, WhatIsNotToldIsNotClaimed) {
  EXPECT_FALSE(facts(kSwitched, std::nullopt).cluster.contains("intra_bandwidth"));
  EXPECT_NE(facts(kSwitched, std::nullopt).notes.at(0).find("--device"), std::string::npos);
  EXPECT_FALSE(facts(kSwitched, GpuGeneration::kAda).cluster.contains("intra_bandwidth"));
  const TopologyFacts pairs = facts(kPairs, GpuGeneration::kAmpere);
  EXPECT_FALSE(pairs.cluster.contains("intra_bandwidth"));
  EXPECT_EQ(pairs.notes.size(), 1u);
  EXPECT_FALSE(pairs.cluster.contains("nics_per_node"));
}

TEST(Topology, BehindPrefixesAndAlone) {
  std::string prefixed = "node-3: some banner\n";
  for (const char c : std::string(kMesh)) {
    if (prefixed.back() == '\n') prefixed += "node-3: ";
    prefixed += c;
  }
  EXPECT_EQ(read_topology(prefixed, "topo.txt").links[1][2], 4);
  const NodeTopology alone = read_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", "topo.txt");
  EXPECT_EQ(alone.devices(), 1);
  EXPECT_EQ(topology_facts(alone, GpuGeneration::kHopper).cluster, nlohmann::json({{"devices_per_node", 1}}));
}

TEST(Topology, ComplaintsTellTheLine) {
  const std::string text = kPairs;
  EXPECT_EQ(topology_complaint(""), "topo.txt: contains no connection matrix");
  EXPECT_NE(topology_complaint(text.substr(0, text.find("GPU3 SYS"))).find("the row of GPU3 is missing"),
            std::string::npos);
  EXPECT_EQ(topology_complaint(text.substr(0, text.size() - 12)).substr(0, 11), "topo.txt:5:");
  std::string lopsided = text;
  lopsided.replace(lopsided.find("NV12"), 4, "NV8 ");
  EXPECT_NE(topology_complaint(lopsided).find("GPU0 to GPU1 is NV8, but NV12 in the other direction"),
            std::string::npos);
  std::string unknown = text;
  unknown.replace(unknown.find("SYS  SYS  0-7"), 3, "ABC");
  EXPECT_NE(topology_complaint(unknown).find("\"ABC\" is not a connection"), std::string::npos);
}

RC_GTEST_PROP(Topology, DamagedFilesAreRefusedOrRead, ()) {
  const std::string text = damaged(*rc::gen::element(kSwitched, kMesh, kPairs));
  try {
    const NodeTopology topology = read_topology(text, "topo.txt");
    RC_ASSERT(topology.devices() >= 1);
    topology_facts(topology, GpuGeneration::kHopper);
  } catch (const ConfigError&) {
  }
}

}  // namespace
}  // namespace flopcast
