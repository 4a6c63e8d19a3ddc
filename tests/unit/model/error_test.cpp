#include "base/text/error.hpp"

#include <gtest/gtest.h>

namespace flopcast {
namespace {

TEST(Error, RendersFieldValuePlaceAndHelp) {
  const Diagnostic diagnostic = {"layout.tp", "16 does not divide attention heads 40", "job.json:/layout/tp",
                                 "valid: 1, 2, 4, 8"};
  EXPECT_EQ(
      render(diagnostic),
      "error: layout.tp: 16 does not divide attention heads 40\n  --> job.json:/layout/tp\n  help: valid: 1, 2, 4, 8");
  EXPECT_EQ(render({"", "job.json is empty", "", ""}), "error: job.json is empty");
}

TEST(Error, SuggestsTheNearestWords) {
  const std::vector<std::string> choices = {"gpipe", "1f1b", "interleaved", "pipedream"};
  EXPECT_EQ(nearest_choices("gpip", choices), std::vector<std::string>({"gpipe"}));
  EXPECT_EQ(nearest_choices("gippe", choices), std::vector<std::string>({"gpipe"}));
  EXPECT_EQ(nearest_choices("leave", choices), std::vector<std::string>({"interleaved"}));
  EXPECT_EQ(nearest_choices("A100", {"a10", "a100-40g", "a800", "a100-80g"}),
            std::vector<std::string>({"a100-40g", "a100-80g"}));
  EXPECT_TRUE(nearest_choices("zzzzzz", choices).empty());
  EXPECT_TRUE(nearest_choices("", choices).empty());
  EXPECT_EQ(choices_help("1f1bb", choices), "did you mean 1f1b? valid: gpipe, 1f1b, interleaved, pipedream");
}

TEST(Error, InternalChecksNameTheExpression) {
  try {
    FLOPCAST_CHECK(1 + 1 == 3);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("expected 1 + 1 == 3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace flopcast
