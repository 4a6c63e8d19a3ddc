// Compares this program's definition of NCCL's binary interface with NCCL's own header, and tests the library as far as
// possible without a GPU.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/text/error.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"

namespace flopcast::realrun {
namespace {

static_assert(nccl::kSuccess == ncclSuccess && nccl::kInProgress == ncclInProgress);
static_assert(sizeof(nccl::Result) == sizeof(ncclResult_t) && sizeof(int) == sizeof(ncclDataType_t) &&
              sizeof(int) == sizeof(ncclRedOp_t));
static_assert(nccl::kByte == ncclUint8 && nccl::kFloat32 == ncclFloat32 && nccl::kFloat64 == ncclFloat64);
static_assert(nccl::kSum == ncclSum && nccl::kMax == ncclMax);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(nccl::Config::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(nccl::Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(nccl::Config, least_blocks) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(nccl::Config, most_blocks) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(nccl::Config, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(nccl::Config, split_share) == offsetof(ncclConfig_t, splitShare));

TEST(NcclLibrary, TheConfigurationIsOneOfNccls) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::Config{}.magic, theirs.magic);
}

TEST(NcclLibrary, LoadsAndMakesIds) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  std::unique_ptr<NcclApi> library;
  try {
    library = load_nccl();
  } catch (const EnvironmentError& error) {
    const std::string reason = error.what();
    GTEST_SKIP() << reason.substr(0, reason.find('\n'));
  }
  EXPECT_EQ(library->version().substr(0, 2), "2.");
  const NcclId one = library->new_id();
  EXPECT_NE(one.bytes, NcclId{}.bytes);
  EXPECT_NE(library->new_id().bytes, one.bytes);
}

}  // namespace
}  // namespace flopcast::realrun
