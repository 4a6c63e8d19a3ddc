// The C++ library from the view of its callers; also tested with sanitizers, with which the Python module cannot be
// loaded.
#include "api/flopcast.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "api/inputs.hpp"
#include "api/question.hpp"
#include "base/text/words.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

const JobInput& small_job() {
  static const JobInput job = {
      R"({"model": "gpt3-1.3b", "cluster": "dgx-h100", "layout": {"global_batch_size": 16}})", {}, {{"tp", "2"}}};
  return job;
}

TEST(Library, AnswersAsTheProgramDoes) {
  CommandOptions options;
  options.standard_input = small_job().text;
  const CommandResult program = run_flopcast({"simulate", "-", "--tp", "2", "--format", "json"}, options);
  EXPECT_EQ(simulate(small_job()).json() + "\n", program.standard_output);
  EXPECT_EQ(answer_command({"simulate", "-", "--tp", "2", "--format", "json"}, small_job().text).text,
            program.standard_output);
}

TEST(Library, KeysGoByPathFlagOrLastWord) {
  JobInput job = small_job();
  const double expected = simulate(job).time_s();
  for (const char* name : {"layout.tp", "tp", "tensor_model_parallel_size"}) {
    job.keys = {{name, "2"}};
    EXPECT_EQ(simulate(job).time_s(), expected) << name;
  }
  EXPECT_TRUE(is_job_key("micro_batch_size"));
  EXPECT_FALSE(is_job_key("objective"));
  EXPECT_EQ(flags_of({{"sp", "true"}, {"max_gpus", "8"}, {"min_gpus", "true"}}),
            (std::vector<std::string>{"--layout.sequence_parallel=true", "--max-gpus", "8", "--min-gpus"}));
  job.keys = {{"tpp", "2"}};
  EXPECT_THROW(simulate(job), ConfigError);
}

std::string with_underscores(std::string_view flag) {
  std::string name(flag.substr(flag.find_first_not_of('-')));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Inputs of a question as members of a Python TypedDict: "top: int". Keys of the job are in JobKeys.
class StubForm final : public Form {
 public:
  void begin_group(const std::string& /*title*/, bool /*rest*/) override {}
  void add_positional(const std::string& /*name*/, std::optional<std::string>& /*target*/,
                      const std::string& /*help*/) override {}
  void add_positional(const std::string& /*name*/, std::vector<std::string>& /*target*/,
                      const std::string& /*help*/) override {}
  void add_option(const std::string& names, std::optional<std::string>& /*target*/, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(names, "Value");
  }
  void add_option(const std::string& names, std::optional<int>& /*target*/, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(names, "int");
  }
  void add_option(const std::string& names, std::vector<std::string>& /*target*/, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(names, "Value");
  }
  void add_output(const std::string& names, std::optional<std::string>& /*target*/, const std::string& /*help*/,
                  Dash /*dash*/) override {
    add(names, "Path");
  }
  void add_flag(const std::string& names, bool& /*target*/, const std::string& /*help*/) override {
    add(names, "bool");
  }
  void add_rest(std::vector<std::string>& /*target*/) override {}
  void add_callback(const std::string& name, bool takes_value, const std::string& /*value_name*/,
                    const std::string& /*help*/, bool /*listed*/,
                    const std::function<void(const std::string&)>& /*callback*/) override {
    for (const std::string& one : split(name)) {
      if (job_key_of(with_underscores(one)) == nullptr) add(one, takes_value ? "Value" : "bool");
    }
  }
  void place_figure(const std::string& /*help*/) override {
    add("--svg", "Path");
    add("--svg-width", "int");
    add("--svg-dark,--no-title", "bool");
  }
  void place_page(const std::string& /*help*/) override { add("--html", "Path"); }
  void place_trace(const std::string& /*help*/) override { add("--trace", "Path"); }

  /// Omits `parameters`, which the Python function declares itself.
  std::string members(const std::set<std::string>& parameters) const {
    std::string text;
    for (const auto& [name, type] : members_) {
      if (parameters.count(name) == 0) text += fmt::format("    {}: {}\n", name, type);
    }
    return text.empty() ? "    pass\n" : text;
  }

 private:
  void add(const std::string& names, const char* type) {
    for (const std::string& one : split(names)) {
      const std::string name = with_underscores(one);
      const bool letter_or_path = name.size() == 1 || name.find('.') != std::string::npos || name == "from";
      if (!letter_or_path) members_.emplace(name, type);
    }
  }

  std::map<std::string, const char*> members_;
};

const char* python_type(FieldKind kind) {
  switch (kind) {
    case FieldKind::kWhole:
      return "Whole";
    case FieldKind::kNumber:
    case FieldKind::kQuantity:
      return "Number";
    case FieldKind::kBoolean:
      return "bool";
    case FieldKind::kText:
    case FieldKind::kChoice:
      return "str";
    case FieldKind::kWholeList:
      return "Value";
    case FieldKind::kObject:
      return "Section";
    case FieldKind::kList:
      return "Sequence[Any]";
  }
  return "Any";
}

// Every name that identifies one key: flags, and the last word of a path if it is unique.
std::string job_members(const std::vector<JobKey>& keys) {
  std::map<std::string, std::string> members;
  const auto add = [&members](const std::string& name, const JobKey& key) {
    const bool is_name = name.size() > 1 && name.find('.') == std::string::npos && name != "from";
    if (is_name && job_key_of(name) == &key) members.emplace(name, python_type(key.kind));
  };
  for (const Field<Job>& section : job_fields()) members.emplace(section.key, "Section");
  for (const JobKey& key : keys) {
    add(key.field.substr(key.field.rfind('.') + 1), key);
    for (const std::string_view alias : key.aliases) add(with_underscores(alias), key);
  }
  std::string text;
  for (const auto& [name, type] : members) text += fmt::format("    {}: {}\n", name, type);
  return text;
}

std::string keyword_stubs() {
  std::string text =
      "# Keywords of flopcast's functions, generated from the tables that the program reads by: FLOPCAST_BLESS=1.\n\n"
      "import os\nfrom typing import Any, Mapping, Sequence, TypedDict, Union\n\n"
      "Whole = Union[int, str]\nNumber = Union[int, float, str]\nPath = Union[str, os.PathLike[str]]\n"
      "Section = Union[str, Mapping[str, Any]]\n"
      "Value = Union[str, int, float, Sequence[Union[str, int, float]], os.PathLike[str]]\n\n"
      "class JobKeys(TypedDict, total=False):\n" +
      job_members(job_keys());
  // Questions that have keyword arguments in Python.
  for (const char* name : {"compare", "explain", "memory", "plan", "simulate", "sweep", "timeline", "validate"}) {
    const std::unique_ptr<Question> question = question_named(name).make();
    StubForm form;
    question->declare(form);
    std::string title(name);
    title.front() = static_cast<char>(std::toupper(title.front()));
    const bool of_job = title != "Validate";
    text += fmt::format("\nclass {}Keys({}, total=False):\n{}", title, of_job ? "JobKeys" : "TypedDict",
                        form.members({"check", "explain", "layouts", "over_time", "vary"}));
  }
  return text;
}

TEST(Library, PythonsKeywordsAreThoseOfTheTables) {
  const std::filesystem::path file = project_folder() / "python" / "flopcast" / "keywords.pyi";
  const std::string stubs = keyword_stubs();
  if (std::getenv("FLOPCAST_BLESS") != nullptr) write_text(file, stubs);
  EXPECT_EQ(read_text(file), stubs) << "FLOPCAST_BLESS=1 writes it anew";
}

TEST(Library, ComplaintsKeepTheirParts) {
  JobInput job = small_job();
  job.keys = {{"tp", "7"}};
  try {
    simulate(job);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "layout.tp");
    EXPECT_EQ(error.diagnostic().where, "tp");
    EXPECT_NE(error.diagnostic().help, "");
  }
  std::string printed;
  EXPECT_THROW(answer_command({"schedule", "check", "-", "--format", "json"}, "0B0,0F0\n", &printed), NegativeAnswer);
  EXPECT_NE(printed.find("\"valid\": false"), std::string::npos);
}

TEST(Library, LawsReplaceTimes) {
  OwnLaws laws;
  laws.network_time = [](const std::string&, double, int, int, double ours) { return 2.0 * ours; };
  EXPECT_GT(simulate(small_job(), laws).time_s(), simulate(small_job()).time_s());
  laws.network_time = [](const std::string&, double, int, int, double) { return -1.0; };
  EXPECT_THROW(simulate(small_job(), laws), ConfigError);
  laws = OwnLaws();
  laws.schedule = [](int ranks, int microbatches, int) {
    std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const char* kind : {"F", "B"}) {
        for (int number = 0; number < microbatches; ++number)
          rows[static_cast<std::size_t>(rank)].push_back(std::to_string(rank) + kind + std::to_string(number));
      }
    }
    return rows;
  };
  JobInput job = small_job();
  job.keys = {{"pp", "4"}};
  const double own = simulate(job, laws).time_s();
  job.keys.emplace_back("schedule", "gpipe");
  EXPECT_EQ(own, simulate(job).time_s());
}

TEST(Library, ThreadsAskAtOnceAndShareAPriceList) {
  const std::string expected = simulate(small_job()).json();
  std::vector<std::thread> threads;
  std::vector<std::string> answers(4);
  for (std::string& answer : answers) threads.emplace_back([&answer] { answer = simulate(small_job()).json(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& answer : answers) EXPECT_EQ(answer, expected);

  JobInput job = small_job();
  job.keys.clear();
  const LayoutColumns layouts = enumerate_layouts_of(job);
  ASSERT_GT(layouts.rows, 256u);
  const LayoutPrices alone = price_layouts(job, layouts, PriceKind::kSimulated, 1);
  const LayoutPrices shared = price_layouts(job, layouts, PriceKind::kSimulated, 3);
  const LayoutPrices bounds = price_layouts(job, layouts, PriceKind::kBound, 2);
  for (std::size_t row = 0; row < layouts.rows; ++row) {
    EXPECT_EQ(alone.time_s[row], shared.time_s[row]);
    EXPECT_EQ(alone.reason[row], 0);
    EXPECT_LE(bounds.time_s[row], alone.time_s[row] * (1.0 + 1e-9));
  }
}

}  // namespace
}  // namespace flopcast
