#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "model/job/fields.hpp"
#include "tests/structure/rules.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

namespace fs = std::filesystem;
using Sentences = std::vector<std::string>;

TEST(StructureRules, UpwardIncludesAreFound) {
  EXPECT_EQ(structure_violations("sim/engine/engine.cpp", "#include <vector>\n  #  include \"reports/table.hpp\"\n"),
            Sentences{"sim/engine/engine.cpp:2: reports/table.hpp points upward or sideways"});
  EXPECT_EQ(structure_violations("base/text/words.cpp", "#include \"model/error/error.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("sim/engine/engine.cpp", "#include \"base/host/files.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("model/cost/cost.hpp", "#include \"sim/timeline.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("reports/svg.cpp", "#include \"planner/plan.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("planner/plan.cpp", "#include \"reports/table.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("calibrate/device/fit.cpp", "#include \"sim/timeline.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("realrun/executor.cpp", "#include \"calibrate/validation/table.hpp\"").size(), 1u);
}

TEST(StructureRules, DownwardIncludesAreFine) {
  EXPECT_EQ(structure_violations("sim/engine/engine.cpp", "#include \"model/error/error.hpp\"\n"), Sentences{});
  EXPECT_EQ(structure_violations("calibrate/validation/table.cpp", "#include \"sim/timeline.hpp\""), Sentences{});
  EXPECT_EQ(structure_violations("realrun/executor.cpp", "#include \"calibrate/device/measurement.hpp\""), Sentences{});
  EXPECT_EQ(structure_violations("cli/main.cpp", "#include \"planner/plan.hpp\"\n#include <iostream>"), Sentences{});
}

TEST(StructureRules, IncludesAreWrittenFromTheRoot) {
  EXPECT_EQ(structure_violations("sim/engine/engine.cpp", "#include \"engine.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("sim/engine/engine.cpp", "#include \"sim/engine/../../cli/main.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("extras/tool.cpp", "#include \"model/error/error.hpp\"").size(), 1u);
}

TEST(StructureRules, TheCoreHasNoThreadsFilesOrClocks) {
  for (const char* header : {"thread", "fstream", "filesystem", "chrono", "iostream", "source_location"}) {
    const std::string line = std::string("#include <") + header + ">";
    for (const char* core : {"model/a.cpp", "sim/a.hpp", "reports/a.cpp"}) {
      EXPECT_EQ(structure_violations(core, line).size(), 1u) << core << " " << line;
    }
    EXPECT_EQ(structure_violations("cli/a.cpp", line), Sentences{}) << line;
  }
}

TEST(StructureRules, DevicesBelongToTheRealRun) {
  EXPECT_EQ(structure_violations("cli/measured/run.cpp", "#include <cuda_runtime.h>\n#include <mpi.h>").size(), 2u);
  EXPECT_EQ(structure_violations("cli/measured/run.cpp", "#include \"realrun/transport/nccl.hpp\"").size(), 1u);
  EXPECT_EQ(structure_violations("realrun/compute/cuda.cu", "#include <cublasLt.h>\n#include <nccl.h>"), Sentences{});
}

TEST(StructureRules, LargeLibrariesStayOutOfHeaders) {
  for (const char* library : {"nlohmann/json.hpp", "CLI/CLI.hpp"}) {
    const std::string line = std::string("#include <") + library + ">";
    EXPECT_EQ(structure_violations("cli/a.hpp", line).size(), 1u);
    EXPECT_EQ(structure_violations("cli/a.cpp", line), Sentences{});
  }
  EXPECT_EQ(structure_violations("model/job/a.hpp", "#include <nlohmann/json_fwd.hpp>"), Sentences{});
  EXPECT_EQ(structure_violations("sim/critical_path.hpp", "#include <boost/graph/adjacency_list.hpp>").size(), 1u);
  EXPECT_EQ(structure_violations("sim/critical_path.cpp", "#include <boost/graph/adjacency_list.hpp>"), Sentences{});
}

TEST(StructureRules, SourcesAreListed) {
  EXPECT_EQ(structure_violations("sim/CMakeLists.txt", "FILE( GLOB_RECURSE sources *.cpp)").size(), 1u);
  EXPECT_EQ(structure_violations("cmake/embed.cmake", "file(READ x y)\n"), Sentences{});
}

TEST(StructureRules, TypesAreFoundWithTheirNamespaces) {
  EXPECT_EQ(types_defined(
                "namespace flopcast {\n\nstruct Early;\nstruct Span {\n  struct Inner {\n  };\n};\n"
                "enum class Kind : std::uint8_t { A, B };\nnamespace realrun {\nclass Run final : public Base {\n};\n"
                "}  // namespace realrun\nclass After {};\n}  // namespace flopcast\n"),
            (Sentences{"flopcast::Span", "flopcast::Kind", "flopcast::realrun::Run", "flopcast::After"}));
}

TEST(ProjectStructure, NoTypeIsDefinedTwice) {
  std::map<std::string, std::string> header_of;
  for (const char* folder : {"base", "model", "sim", "planner", "import", "calibrate", "realrun", "reports", "cli",
                             "api", "tests/support"}) {
    for (const auto& entry : fs::recursive_directory_iterator(project_folder() / folder)) {
      if (entry.path().extension() != ".hpp") continue;
      const std::string path = entry.path().lexically_relative(project_folder()).generic_string();
      for (const std::string& full_name : types_defined(read_text(entry.path()))) {
        // Compared without namespace: the same name for two things is misleading even in two namespaces.
        const std::string type = full_name.substr(full_name.rfind(':') + 1);
        const auto [known, is_new] = header_of.emplace(type, path);
        EXPECT_TRUE(is_new) << type << " is defined in " << known->second << " and in " << path;
      }
    }
  }
  EXPECT_GT(header_of.size(), 100u);
}

TEST(StructureRules, CirclesOfRoomsAreFound) {
  const auto circle = [](const std::map<std::string, std::string>& files) { return include_cycle("sim", files); };
  EXPECT_EQ(circle({{"sim/a/x.hpp", "#include \"sim/b/y.hpp\"\n"}, {"sim/b/y.hpp", "#include \"model/a/z.hpp\"\n"}}),
            "");
  EXPECT_EQ(circle({{"sim/a/x.hpp", "#include \"sim/b/y.hpp\"\n"},
                    {"sim/b/z.cpp", "#include \"sim/top.hpp\"\n"},
                    {"sim/top.hpp", "#include \"sim/a/w.hpp\"\n"}}),
            "sim/a/x.hpp -> sim/b/z.cpp -> sim/top.hpp -> sim/a");
}

TEST(ProjectStructure, RoomsFormNoCircle) {
  for (const char* folder :
       {"base", "model", "import", "sim", "planner", "calibrate", "realrun", "reports", "cli", "api"}) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(project_folder() / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".cu" && extension != ".cuh") continue;
      files[entry.path().lexically_relative(project_folder()).generic_string()] = read_text(entry.path());
    }
    EXPECT_FALSE(files.empty()) << folder;
    EXPECT_EQ(include_cycle(folder, files), "");
  }
}

// A list of job keys outside their tables would miss the next key. Exceptions: importers of files and of published rows
// translate words into keys, and the planner selects keys.
TEST(ProjectStructure, KeysOfAJobAreListedInTheirTablesAlone) {
  constexpr int kFewestOfAList = 10;
  for (const char* folder : {"base", "sim", "planner", "realrun", "reports", "cli", "api", "web"}) {
    for (const auto& entry : fs::recursive_directory_iterator(project_folder() / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".js") continue;
      const std::string path = entry.path().lexically_relative(project_folder()).generic_string();
      const std::string text = read_text(entry.path());
      for (const FieldInfo& section : job_fields()) {
        int named = 0;
        for (const FieldInfo* field : section.parts()) {
          named += text.find('"' + std::string(field->key) + '"') != std::string::npos ? 1 : 0;
        }
        EXPECT_LT(named, kFewestOfAList) << path << " lists too many keys of " << section.key;
      }
    }
  }
}

// Files named in comments must exist.
TEST(ProjectStructure, CommentsNameFilesThatExist) {
  std::set<std::string> names;
  std::vector<fs::path> sources;
  for (const char* folder : {"base", "model", "import", "sim", "planner", "calibrate", "realrun", "reports", "cli",
                             "api", "python", "web", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(project_folder() / folder)) {
      names.insert(entry.path().filename().string());
      const fs::path extension = entry.path().extension();
      const bool is_source = extension == ".cpp" || extension == ".hpp" || extension == ".cu" || extension == ".cuh";
      if (is_source && std::string(folder) != "tests") sources.push_back(entry.path());
    }
  }
  const std::regex named("[a-z_0-9]+\\.(hpp|cpp|cuh|cu)\\b");
  for (const fs::path& source : sources) {
    std::istringstream lines(read_text(source));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t comment = line.find("//");
      if (comment == std::string::npos) continue;
      for (std::sregex_iterator word(line.begin() + static_cast<std::ptrdiff_t>(comment), line.end(), named), end;
           word != end; ++word) {
        EXPECT_TRUE(names.count(word->str()) > 0) << source << ": " << line;
      }
    }
  }
}

TEST(ProjectStructure, ARoomIsSeenAtAGlance) {
  for (const char* folder :
       {"base", "model", "import", "sim", "planner", "calibrate", "realrun", "reports", "cli", "api"}) {
    const auto entries = std::distance(fs::directory_iterator(project_folder() / folder), fs::directory_iterator());
    EXPECT_LE(entries, 16) << folder << "/ has too many entries";
  }
}

// The lines of a section of CONTRIBUTING.md, each with its text in back quotes.
std::vector<std::pair<std::string, Sentences>> quoted_in_contributing(const std::string& title) {
  const std::string text = read_text(project_folder() / "CONTRIBUTING.md");
  const std::size_t begin = text.find("## " + title);
  if (begin == std::string::npos) return {};
  std::vector<std::pair<std::string, Sentences>> quoted;
  std::istringstream lines(text.substr(begin, text.find("\n## ", begin + 1) - begin));
  for (std::string line; std::getline(lines, line);) {
    quoted.push_back({line, {}});
    for (std::size_t quote = line.find('`'); quote != std::string::npos; quote = line.find('`', quote + 1)) {
      const std::size_t end = line.find('`', quote + 1);
      quoted.back().second.push_back(line.substr(quote + 1, end - quote - 1));
      quote = end;
    }
  }
  return quoted;
}

TEST(ProjectStructure, AnswersLieWhereContributingSays) {
  int questions = 0;
  for (const auto& [line, paths] : quoted_in_contributing("Questions, and where")) {
    for (const std::string& path : paths) {
      EXPECT_TRUE(fs::exists(project_folder() / path)) << path << ", named for: " << line;
    }
    if (!paths.empty()) ++questions;
    EXPECT_LE(paths.size(), 3u) << line;
  }
  EXPECT_EQ(questions, 15);
}

// Until GPUs have been validated, readers see this notice before anything else.
TEST(ProjectStructure, PagesOnGpusBeginBySayingThatTheyAreUnproven) {
  if (fs::exists(project_folder() / "docs" / "validation")) return;
  int pages = 0;
  for (const auto& entry : fs::directory_iterator(project_folder() / "docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::string text = read_text(entry.path());
    const bool speaks = text.find("virtual-gpus") != std::string::npos || text.find("--cuda") != std::string::npos;
    if (!speaks) continue;
    ++pages;
    constexpr std::size_t kFirstLines = 600;
    EXPECT_NE(text.substr(0, kFirstLines).find("unproven"), std::string::npos) << entry.path();
  }
  EXPECT_GE(pages, 2);
}

// Files without a folder are in the last named folder, or next to the last named file.
TEST(ProjectStructure, WhatAnExtensionTouchesIsThere) {
  int extensions = 0;
  for (const auto& [line, paths] : quoted_in_contributing("What an extension touches")) {
    fs::path folder;
    for (const std::string& path : paths) {
      if (fs::exists(project_folder() / path)) {
        folder = fs::is_directory(project_folder() / path) ? fs::path(path) : fs::path(path).parent_path();
      } else {
        EXPECT_TRUE(fs::exists(project_folder() / folder / path)) << path << ", named for: " << line;
      }
    }
    if (!paths.empty()) ++extensions;
  }
  EXPECT_EQ(extensions, 6);
}

TEST(ProjectStructure, HoldsInEveryFile) {
  int headers_and_sources = 0;
  int cmake_files = 0;
  for (const char* folder : {"base", "model", "sim", "planner", "calibrate", "import", "realrun", "reports", "cli",
                             "api", "python", "tests", "examples", "web", "packaging", "cmake", "CMakeLists.txt"}) {
    const fs::path start = project_folder() / folder;
    std::vector<fs::path> files;
    if (fs::is_regular_file(start)) files.push_back(start);
    if (fs::is_directory(start)) {
      for (const auto& entry : fs::recursive_directory_iterator(start)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    }
    for (const fs::path& file : files) {
      const fs::path extension = file.extension();
      if (extension == ".cpp" || extension == ".hpp" || extension == ".cu" || extension == ".cuh") {
        ++headers_and_sources;
      } else if (extension == ".cmake" || file.filename() == "CMakeLists.txt") {
        ++cmake_files;
      } else {
        continue;
      }
      const std::string path = file.lexically_relative(project_folder()).generic_string();
      for (const std::string& violation : structure_violations(path, read_text(file))) ADD_FAILURE() << violation;
    }
  }
  // Fails if the walk used the wrong folder and therefore checked nothing.
  EXPECT_GT(headers_and_sources, 20);
  EXPECT_GT(cmake_files, 5);
}

}  // namespace
}  // namespace flopcast
