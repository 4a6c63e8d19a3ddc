// No constant may belong to a row, a source or a model: their names must not occur in code that prices or maps.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "calibrate/validation/published_row.hpp"
#include "model/catalog/catalogue.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

// The text between double quotes, without comments.
std::vector<std::string> literals_of(const std::string& text) {
  std::vector<std::string> all;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"') {
      std::size_t end = at + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      all.push_back(text.substr(at + 1, end - at - 1));
      at = end + 1;
    } else {
      ++at;
    }
  }
  return all;
}

std::set<std::string> forbidden_names() {
  std::set<std::string> names;
  for (const PublishedFile& file : shipped_published()) {
    names.insert(file.source);
    const std::size_t first_word = file.source.find('_');
    if (file.source.rfind("megatron", 0) != 0) names.insert(file.source.substr(0, first_word));
    for (const PublishedRow& row : file.rows) names.insert(row.id);
  }
  for (const std::string& model : catalogue_names(CatalogueKind::kModels)) names.insert(model);
  // Software that a source used and is named after.
  for (const std::string& stack : catalogue_names(CatalogueKind::kStacks)) names.erase(stack);
  names.erase("large");
  names.erase("nccl");
  names.erase("zero");
  return names;
}

TEST(KeyedNames, LiteralsAreFound) {
  EXPECT_EQ(literals_of("a(\"b\", 1); // \"no\"\nc = \"d\\\"e\";"), (std::vector<std::string>{"b", "d\\\"e"}));
}

TEST(KeyedNames, NoCodeThatPricesOrMapsKnowsThem) {
  const std::set<std::string> names = forbidden_names();
  ASSERT_GT(names.size(), 400u);
  int files = 0;
  for (const char* folder : {"calibrate/validation", "model/cost", "model/workload", "model/config", "sim/forecast"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(project_folder() / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".hpp") continue;
      ++files;
      for (const std::string& literal : literals_of(read_text(entry.path()))) {
        for (const std::string& name : names) {
          EXPECT_EQ(literal.find(name), std::string::npos) << entry.path() << ": \"" << literal << "\" holds " << name;
        }
      }
    }
  }
  EXPECT_GT(files, 50);
}

}  // namespace
}  // namespace flopcast
