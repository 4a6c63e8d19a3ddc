// The outputs generated from the tables of fields: docs/job-file.md and the keywords of Python. A field is described
// once; a field added to a table appears in each of them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "api/inputs.hpp"
#include "api/question.hpp"
#include "base/text/words.hpp"
#include "model/config/codec.hpp"
#include "model/job/fields.hpp"
#include "model/job/user_spelling.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

// Generates docs/job-file.md: every key with its values, from the tables that read it.
class JobFilePage {
 public:
  std::string text(const FieldInfos& sections) {
    text_ =
        "# The job file\n\nModel, cluster, layout and training of a job: JSON in which `//` comments are allowed and "
        "an unknown key is an\nerror. Every path is also a flag (`--layout.tp 8`); a flag takes precedence over the "
        "file, and `flopcast simulate JOB\n--show-config` prints every value with its origin. Quantities carry a unit "
        "(`\"450GB/s\"`, `\"80GiB\"`). This page is\ngenerated from the tables that the program reads with; editors "
        "can use [job-1.schema.json](schema/job-1.schema.json).\n\n```json\n{\n  \"model\": \"gpt3-175b\",\n  "
        "\"cluster\": {\"name\": \"dgx-a100-80g\", "
        "\"nodes\": 8},\n  \"layout\": {\"tp\": 8, \"pp\": 8, \"vpp\": 3, \"schedule\": \"interleaved\", "
        "\"global_batch_size\": 64},\n  \"training\": {\"sequence_length\": 2048, \"precision\": \"bf16\"}\n}\n```\n";
    for (const FieldInfo* section : sections) {
      if (section->parts != nullptr) add_section(std::string(section->key), *section);
    }
    return text_;
  }

 private:
  void add_section(const std::string& path, const FieldInfo& object) {
    text_ += fmt::format("\n## `{}`\n\n{}.\n\n| key | values | default | flag | description |\n|---|---|---|---|---|\n",
                         path, object.help.empty() ? std::string(object.key) : std::string(object.help));
    std::vector<const FieldInfo*> inner;
    for (const FieldInfo* field : object.parts()) {
      text_ += fmt::format("| `{}` | {} | {} | {} | {} |\n", field->key, takes(*field), without(*field), flag(*field),
                           escaped(field->help));
      if (field->parts != nullptr && open_.insert(field->parts).second) inner.push_back(field);
    }
    for (const FieldInfo* field : inner) {
      add_section(fmt::format("{}.{}{}", path, field->key, field->kind == FieldKind::kList ? "[]" : ""), *field);
    }
  }

  static std::string escaped(std::string_view words) {
    std::string text;
    for (const char letter : words) text += letter == '|' ? std::string("\\|") : std::string(1, letter);
    return text;
  }

  static std::string takes(const FieldInfo& field) {
    constexpr std::size_t kMostListed = 12;
    if (field.choices != nullptr) {
      const std::vector<std::string> names = field.choices();
      if (names.size() <= kMostListed) return fmt::format("{}", fmt::join(names, ", "));
      return fmt::format("one of {} names: `flopcast catalog`", names.size());
    }
    switch (field.kind) {
      case FieldKind::kWhole:
        return fmt::format("a whole number from {:g}", field.smallest);
      case FieldKind::kNumber:
        return field.largest > 0.0 ? fmt::format("a number up to {:g}", field.largest) : "a number";
      case FieldKind::kBoolean:
        return "true, false";
      case FieldKind::kText:
      case FieldKind::kChoice:
        return "a text";
      case FieldKind::kWholeList:
        return "a list of whole numbers";
      case FieldKind::kQuantity:
        return fmt::format("a quantity: {}", accepted_units(field.dimension));
      case FieldKind::kObject:
        return field.parts != nullptr ? "an object, below" : "an object";
      case FieldKind::kList:
        return field.parts != nullptr ? "a list of objects, below" : "a list";
    }
    return "";
  }

  static std::string without(const FieldInfo& field) {
    if (field.required) return "**required**";
    if (!field.otherwise.empty()) return escaped(field.otherwise);
    if (field.fallback == nullptr) return "";
    const nlohmann::ordered_json value = field.fallback(field);
    if (value.is_null() || value.is_structured()) return "";
    return value.is_string() ? value.get<std::string>() : value.dump();
  }

  static std::string flag(const FieldInfo& field) {
    return field.aliases.empty() ? "" : fmt::format("`{}`", field.aliases.front());
  }

  std::string text_;
  std::set<FieldInfos (*)()> open_;  // tables that are already on the page
};

// FLOPCAST_BLESS=1 rewrites the page.
TEST(Documents, TheJobFileIsWhatTheTablesSay) {
  const std::filesystem::path file = project_folder() / "docs" / "job-file.md";
  const std::string page = JobFilePage().text(infos_of<job_fields>());
  if (std::getenv("FLOPCAST_BLESS") != nullptr) write_text(file, page);
  EXPECT_EQ(read_text(file), page);
  for (const JobKey& key : job_keys()) {
    const std::string name = key.field.substr(key.field.rfind('.') + 1);
    EXPECT_NE(page.find(fmt::format("`{}`", name)), std::string::npos) << key.field;
  }
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
std::string job_members(const std::vector<JobKey>& keys, const Fields<Job>& sections) {
  std::map<std::string, std::string> members;
  const auto add = [&members](const std::string& name, const JobKey& key) {
    const bool is_name = name.size() > 1 && name.find('.') == std::string::npos && name != "from";
    const JobKey* const known = job_key_of(name);
    if (is_name && (known == &key || known == nullptr)) members.emplace(name, python_type(key.kind));
  };
  for (const Field<Job>& section : sections) members.emplace(section.key, "Section");
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
      job_members(job_keys(), job_fields());
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

TEST(Documents, PythonsKeywordsAreThoseOfTheTables) {
  const std::filesystem::path file = project_folder() / "python" / "flopcast" / "keywords.pyi";
  const std::string stubs = keyword_stubs();
  if (std::getenv("FLOPCAST_BLESS") != nullptr) write_text(file, stubs);
  EXPECT_EQ(read_text(file), stubs) << "FLOPCAST_BLESS=1 writes it anew";
}

// The names of all inputs of a question.
class FlagNames final : public Form {
 public:
  void begin_group(const std::string& /*title*/, bool /*rest*/) override {}
  void add_positional(const std::string& /*name*/, std::optional<std::string>& /*target*/,
                      const std::string& /*help*/) override {}
  void add_positional(const std::string& /*name*/, std::vector<std::string>& /*target*/,
                      const std::string& /*help*/) override {}
  void add_option(const std::string& listed, std::optional<std::string>& /*target*/, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(listed);
  }
  void add_option(const std::string& listed, std::optional<int>& /*target*/, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(listed);
  }
  void add_option(const std::string& listed, std::vector<std::string>& /*target*/, const std::string& /*value_name*/,
                  const std::string& /*help*/) override {
    add(listed);
  }
  void add_output(const std::string& listed, std::optional<std::string>& /*target*/, const std::string& /*help*/,
                  Dash /*dash*/) override {
    add(listed);
  }
  void add_flag(const std::string& listed, bool& /*target*/, const std::string& /*help*/) override { add(listed); }
  void add_rest(std::vector<std::string>& /*target*/) override {}
  void add_callback(const std::string& listed, bool /*takes_value*/, const std::string& /*value_name*/,
                    const std::string& /*help*/, bool /*listed*/,
                    const std::function<void(const std::string&)>& /*callback*/) override {
    add(listed);
  }

  std::set<std::string> names;

 private:
  void add(const std::string& listed) {
    for (const std::string& name : split(listed)) names.insert(name);
  }
};

struct Shelf {
  int boards = 3;
};

const Fields<Shelf>& shelf_fields() {
  static const Fields<Shelf> fields = {
      whole<&Shelf::boards>("boards", 2, 40, "boards of the shelf").flag("N", {"--boards"})};
  return fields;
}

const Fields<Job>& sections_with_a_shelf() {
  static const Fields<Job> fields = {other("shelf", FieldKind::kObject, "a dummy section").of<shelf_fields>()};
  return fields;
}

TEST(DescribedOnce, AFieldOfATableIsInEverythingThatIsGenerated) {
  const nlohmann::json given = {{"boards", 7}};
  ObjectReader reader(given, "shelf", Origins());
  Shelf shelf;
  read_fields(shelf_fields(), reader, shelf);
  reader.refuse_unknown_keys();
  EXPECT_EQ(shelf.boards, 7);
  EXPECT_EQ(write_fields(shelf_fields(), shelf).dump(), R"({"boards":7})");

  const FieldInfos sections = infos_of<sections_with_a_shelf>();
  const nlohmann::ordered_json schema = schema_of(sections).at("properties").at("shelf").at("properties").at("boards");
  EXPECT_EQ(schema.at("type"), "integer");
  EXPECT_EQ(schema.at("minimum"), 2);
  EXPECT_EQ(schema.at("default"), 3);

  const std::vector<JobKey> keys = keys_of(sections);
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys[0].field, "shelf.boards");
  EXPECT_EQ(keys[0].aliases, std::vector<std::string_view>{"--boards"});
  EXPECT_NE(job_members(keys, sections_with_a_shelf()).find("    boards: Whole\n"), std::string::npos);
  const std::string page = JobFilePage().text(sections);
  EXPECT_NE(page.find("| `boards` | a whole number from 2 | 3 | `--boards` | boards of the shelf |"), std::string::npos)
      << page;
}

// The command line and --show-config go over job_keys(), which are the tables' fields.
TEST(DescribedOnce, EveryKeyOfTheTablesIsAFlagOfSimulate) {
  const std::unique_ptr<Question> question = question_named("simulate").make();
  FlagNames form;
  question->declare(form);
  for (const JobKey& key : job_keys()) {
    EXPECT_EQ(form.names.count("--" + key.field), 1u) << key.field;
    for (const std::string_view alias : key.aliases) EXPECT_EQ(form.names.count(std::string(alias)), 1u) << alias;
  }
}

}  // namespace
}  // namespace flopcast
