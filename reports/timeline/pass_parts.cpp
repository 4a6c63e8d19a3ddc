#include "reports/timeline/pass_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "reports/timeline/span_text.hpp"

namespace flopcast {

namespace {

using Parts = std::vector<PassPart>;

// Adds the parts of a pass that take any time, each name after what the pass is for.
void add_pass(Parts& parts, const std::string& prefix, const PassCost& pass, double slices,
              TermId computes = TermId::kCompute) {
  const auto add = [&](const char* name, TermId id, Seconds time) {
    if (time.value() > 0.0) parts.push_back({prefix + name, id, time.value() / slices});
  };
  add(step_term(TermId::kCompute).name, computes, pass.compute);
  for (const Axis axis : kAxes) {
    const StepTerm& term = communication_term(axis);
    add(term.name, term.id, pass.comm[axis]);
  }
  add(step_term(TermId::kOffload).name, TermId::kOffload, pass.offload);
}

}  // namespace

PassParts pass_parts(const PreparedStep& step) {
  PassParts all;
  const double slices = step.program.slices_per_microbatch;
  for (std::size_t index = 0; index < step.costs.stages.size(); ++index) {
    const StageCosts& stage = step.costs.stages[index];
    Parts forward;
    add_pass(forward, "", stage.forward, slices);
    Parts input;
    add_pass(input, "recomputation: ", stage.recompute, slices, TermId::kRecompute);
    add_pass(input, "input gradient: ", stage.input_gradient, slices);
    Parts weight;
    add_pass(weight, "weight gradient: ", stage.weight_gradient, slices);
    Parts backward = input;
    backward.insert(backward.end(), weight.begin(), weight.end());
    if (stage.tp_hidden.value() > 0.0) {
      const StepTerm& term = step_term(TermId::kTensorParallel);
      backward.push_back(
          {fmt::format("{} hidden behind the weight gradient", term.name), term.id, -stage.tp_hidden.value() / slices});
    }
    if (stage.split_slowdown.value() > 0.0) {
      input.push_back({"slower without its weight gradient", TermId::kCompute, stage.split_slowdown.value() / slices});
    }
    all[fmt::format("F{}", index)] = std::move(forward);
    all[fmt::format("B{}", index)] = std::move(backward);
    all[fmt::format("I{}", index)] = std::move(input);
    all[fmt::format("W{}", index)] = std::move(weight);
  }
  return all;
}

std::string pass_key(const Span& span) {
  return is_action(span.kind) ? fmt::format("{}{}", letter_of(span.kind), span.action.stage) : "";
}

std::vector<PassPart> parts_by_term(const std::vector<PassPart>& parts) {
  Parts merged;
  for (const StepTerm& term : breakdown_terms()) {
    PassPart part{term.name, term.id, 0.0};
    for (const PassPart& one : parts) {
      if (one.id == term.id) part.seconds += one.seconds;
    }
    if (part.seconds > 0.0) merged.push_back(std::move(part));
  }
  return merged;
}

}  // namespace flopcast
