#include "tests/unit/planner/questions.hpp"

#include <nlohmann/json.hpp>

namespace flopcast {

PlanQuestion question_of(const std::string& text) {
  return read_question(parse_json(text, "question"), Origins());
}

PlanQuestion small_question(const std::string& layout, const std::string& training) {
  return question_of(
      R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "sequence_length": 512},
          "cluster": {"name": "dgx-a100-80g", "nodes": 2}, "layout": {)" +
      layout + R"(}, "training": {)" + training + "}}");
}

PlanQuestion small_expert_question() {
  return question_of(
      R"({"model": {"layers": 4, "hidden": 512, "heads": 8, "vocab": 32000, "sequence_length": 256,
                    "experts": {"count": 8, "top_k": 2, "ffn": 1024}},
          "cluster": {"name": "dgx-a100-80g"}, "layout": {"global_batch_size": 16},
          "training": {"sequence_length": 256}})");
}

}  // namespace flopcast
