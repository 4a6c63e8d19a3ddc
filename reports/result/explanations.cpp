#include "reports/result/result_tables.hpp"

#include <cctype>
#include <nlohmann/json.hpp>

namespace flopcast {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Explanation, name, aliases, what, formulas, yours, source, see)

namespace {

std::string normal_form(std::string_view term) {
  std::string form;
  for (const char character : term) {
    const auto byte = static_cast<unsigned char>(character);
    if (std::isspace(byte) || character == '-' || character == '_' || character == '/' || character == '.') continue;
    form += static_cast<char>(std::tolower(byte));
  }
  return form;
}

}  // namespace

std::vector<Explanation> read_explanations() {
  std::vector<Explanation> explanations;
  for (const EmbeddedFile& file : embedded_explanations()) {
    const nlohmann::json json = nlohmann::json::parse(file.text);
    for (const nlohmann::json& term : json.at("terms")) {
      explanations.push_back(term.get<Explanation>());
      explanations.back().group = json.at("group").get<std::string>();
    }
  }
  return explanations;
}

const Explanation* find_explanation(const std::vector<Explanation>& explanations, std::string_view term) {
  const std::string wanted = normal_form(term);
  for (const Explanation& explanation : explanations) {
    if (normal_form(explanation.name) == wanted) return &explanation;
  }
  for (const Explanation& explanation : explanations) {
    for (const std::string& alias : explanation.aliases) {
      if (normal_form(alias) == wanted) return &explanation;
    }
  }
  return nullptr;
}

}  // namespace flopcast
