#include <gtest/gtest.h>

#include "model/units/quantity.hpp"

namespace flopcast {
namespace {

struct Reading {
  const char* text;
  Dimension dimension;
  double value;
};

TEST(Units, ReadsWhatUsersWrite) {
  const Reading readings[] = {
      {"80GiB", Dimension::kBytes, 80.0 * 1024 * 1024 * 1024},
      {"80 GB", Dimension::kBytes, 80e9},
      {" 1.5MiB ", Dimension::kBytes, 1.5 * 1024 * 1024},
      {"450GB/s", Dimension::kBandwidth, 450e9},
      {"400Gbit/s", Dimension::kBandwidth, 50e9},
      {"400Gbps", Dimension::kBandwidth, 50e9},
      {"5us", Dimension::kTime, 5e-6},
      {"2min", Dimension::kTime, 120.0},
      {"312TFLOP/s", Dimension::kFlopRate, 312e12},
      {"300B", Dimension::kCount, 300e9},
      {"15T", Dimension::kCount, 15e12},
      {"1e3", Dimension::kCount, 1000.0},
      {"2.5", Dimension::kMoney, 2.5},
      {"2.5/h", Dimension::kMoney, 2.5},
      {"0", Dimension::kTime, 0.0},
      {"1410MHz", Dimension::kFrequency, 1.41e9},
      {"1.98 GHz", Dimension::kFrequency, 1.98e9},
  };
  for (const Reading& reading : readings) {
    const ParsedQuantity parsed = parse_quantity(reading.text, reading.dimension);
    ASSERT_TRUE(parsed.value.has_value()) << reading.text << " " << parsed.problem;
    EXPECT_DOUBLE_EQ(*parsed.value, reading.value) << reading.text;
  }
}

TEST(Units, RefusesWhatIsNoQuantity) {
  const std::pair<const char*, const char*> cases[] = {{"450", "has no unit"},
                                                       {"", "is not a number"},
                                                       {"GB/s", "is not a number"},
                                                       {"nan", "is not a number"},
                                                       {"inf", "is not a number"},
                                                       {"0x10GB/s", "has an unknown unit \"x10GB/s\""},
                                                       {"-3GB/s", "is negative"},
                                                       {"1e999GB/s", "is too large"},
                                                       {"3GBs", "has an unknown unit \"GBs\""},
                                                       {"3 GB/s now", "has an unknown unit \"GB/s now\""},
                                                       {"1..2GB/s", "has an unknown unit \".2GB/s\""}};
  for (const auto& [text, problem] : cases) {
    const ParsedQuantity parsed = parse_quantity(text, Dimension::kBandwidth);
    EXPECT_FALSE(parsed.value.has_value()) << text;
    EXPECT_EQ(parsed.problem, problem) << text;
  }
}

TEST(Units, QuantitiesCombineAsPhysicsAllows) {
  EXPECT_DOUBLE_EQ((Bytes(10) / BytesPerSecond(5)).value(), 2.0);
  EXPECT_DOUBLE_EQ((Flops(12) / Seconds(4)).value(), 3.0);
  EXPECT_DOUBLE_EQ(Seconds(3) / Seconds(2), 1.5);
  EXPECT_DOUBLE_EQ(gibibytes(Bytes(2.0 * 1024 * 1024 * 1024)), 2.0);
}

}  // namespace
}  // namespace flopcast
