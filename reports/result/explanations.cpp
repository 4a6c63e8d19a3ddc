#include "reports/result/result_tables.hpp"

#include <cctype>
#include <nlohmann/json.hpp>

namespace flopcast {

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

Explanation explanation_from(const nlohmann::json& term, const std::string& group) {
  Explanation explanation;
  explanation.group = group;
  explanation.name = term.at("name").get<std::string>();
  explanation.aliases = term.at("aliases").get<std::vector<std::string>>();
  explanation.what = term.at("what").get<std::string>();
  explanation.formulas = term.at("formulas").get<std::vector<std::string>>();
  explanation.yours = term.at("yours").get<std::vector<std::string>>();
  explanation.source = term.at("source").get<std::string>();
  explanation.see = term.at("see").get<std::vector<std::string>>();
  return explanation;
}

}  // namespace

std::vector<Explanation> read_explanations() {
  std::vector<Explanation> explanations;
  for (const EmbeddedFile& file : embedded_explanations()) {
    const nlohmann::json json = nlohmann::json::parse(file.text);
    for (const nlohmann::json& term : json.at("terms")) {
      explanations.push_back(explanation_from(term, json.at("group").get<std::string>()));
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
