#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/schedule/options.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

std::vector<std::vector<std::string>> texts_of(const CellProgram& program) {
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<Cell>& cells : program.ranks) {
    std::vector<std::string> texts;
    texts.reserve(cells.size());
    for (const Cell& cell : cells) texts.push_back(to_string(cell));
    rows.push_back(std::move(texts));
  }
  return rows;
}

std::string order_json(const CellProgram& program) {
  nlohmann::ordered_json json = {
      {"schedule", program.schedule}, {"ranks", texts_of(program)}, {"rank_of_stage", program.rank_of_stage}};
  if (!program.replicas_of_stage.empty()) json["replicas_of_stage"] = program.replicas_of_stage;
  return dumped(json, 2);
}

Table order_table(const CellProgram& program) {
  Table table;
  table.columns = {number_column("rank"), text_column("actions")};
  for (const std::vector<std::string>& row : texts_of(program)) {
    table.rows.push_back({fmt::format("{}", table.rows.size()), fmt::format("{}", fmt::join(row, " "))});
  }
  return table;
}

Answer order_answer(CellProgram order, Format format) {
  auto program = std::make_shared<const CellProgram>(std::move(order));
  Answer answer{.tables = [=] { return std::vector<Table>{order_table(*program)}; },
                .json = [=] { return order_json(*program); }};
  if (format == Format::kCsv) answer.text = [=] { return write_csv(*program); };
  return answer;
}

// Order of every rank's actions as printed by commands: --with-comm and related flags.
class OrderOptions {
 public:
  void add_to(Form& form);
  // Throws ConfigError for conflicting flags, and for communications of a schedule that cannot be executed.
  Answer answer(const Program& program, const Context& context, Format format) const;
  // True if any flag is given.
  bool given() const { return with_communication_ || defer_receives_ || no_sharding_ || merge_backward_; }

 private:
  bool with_communication_ = false;
  bool defer_receives_ = false;
  bool no_sharding_ = false;
  bool merge_backward_ = false;
};

void OrderOptions::add_to(Form& form) {
  form.begin_group("Order");
  form.add_flag("--with-comm", with_communication_,
                "add SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD, as lowered by PyTorch");
  form.add_flag("--no-sharding", no_sharding_, "omit UNSHARD and RESHARD: every rank keeps its weights");
  form.add_flag("--defer-recv", defer_receives_, "place receives right before their use, as deferred by PyTorch");
  form.add_flag("--merge-bw", merge_backward_, "merge an I followed by its W into B");
}

Answer OrderOptions::answer(const Program& program, const Context& context, Format format) const {
  for (const auto& [given, flag] : {std::pair(defer_receives_, "--defer-recv"), {no_sharding_, "--no-sharding"}}) {
    if (given && !with_communication_)
      throw ConfigError({flag, "applies only to communications", "", "add --with-comm"});
  }
  CellProgram order = as_cells(program);
  if (merge_backward_) merge_backward(order);
  if (!with_communication_) return order_answer(std::move(order), format);
  if (!program.replicas_of_stage.empty()) {
    throw ConfigError({"--with-comm", "writes PyTorch's communications, but PyTorch has no replicated stages", "",
                       "omit --with-comm or the replicas"});
  }
  const Program compute = compute_of(order);
  require_valid(compute);
  CellProgram with_transfers =
      add_communication(compute, {.unshard_reshard = !no_sharding_, .defer_receives = defer_receives_});
  if (const auto mismatch = find_transfer_mismatch(with_transfers)) {
    context.warn(render_fault(*mismatch) +
                 "; a transport that runs them in order, as NCCL does, hangs or swaps tensors. Without "
                 "--defer-recv the orders agree");
  }
  return order_answer(std::move(with_transfers), format);
}

using Fault = std::optional<ScheduleFault>;

struct Verdict {
  CellProgram program;
  std::size_t actions = 0;
  Fault fault;
};

nlohmann::ordered_json verdict_json(const Verdict& verdict) {
  const auto number = [](const std::optional<int>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = {{"valid", !verdict.fault},
                                 {"ranks", verdict.program.rank_count()},
                                 {"stages", verdict.program.stage_count()},
                                 {"actions", verdict.actions},
                                 {"communications", verdict.program.communication_count()}};
  if (!verdict.fault) return json;
  json["reason"] = verdict.fault->reason;
  json["rank"] = number(verdict.fault->rank);
  json["step"] = number(verdict.fault->step);
  json["cell"] = verdict.fault->cell;
  return json;
}

Table verdict_table(const Verdict& verdict) {
  const CellProgram& program = verdict.program;
  Table table;
  table.columns = {text_column("schedule"), text_column("valid"), number_column("ranks"), number_column("stages"),
                   number_column("actions")};
  table.rows = {{program.schedule, verdict.fault ? "no" : "yes", fmt::format("{}", program.rank_count()),
                 fmt::format("{}", program.stage_count()), fmt::format("{}", verdict.actions)}};
  if (const std::size_t communications = program.communication_count(); communications > 0) {
    table.columns.push_back(number_column("communications"));
    table.rows.front().push_back(fmt::format("{}", communications));
  }
  if (verdict.fault) {
    table.columns.push_back(text_column("reason"));
    table.rows.front().push_back(verdict.fault->reason);
  }
  return table;
}

std::string explain(const CellProgram& program, const Program& compute, const ScheduleFault& fault) {
  std::string text = fmt::format("{}: invalid: {}", program.schedule, render_fault(fault));
  if (const auto chains = hint_two_chains(compute)) {
    text += fmt::format("\n  help: valid as a bidirectional schedule of two chains: --chains {}", *chains);
  }
  return text + "\n\n" + render_fault_grid(program, fault);
}

}  // namespace

Table schedule_table(Format format) {
  Table table;
  table.columns = {text_column("schedule", "name"), text_column("description", "summary"),
                   text_column("activations held by rank r", "peak_in_flight")};
  // A terminal is too narrow for these columns.
  const bool everything = shown_by(format) != Shows::kPages;
  if (everything) {
    table.columns.insert(table.columns.end(),
                         {text_column("makespan"), text_column("needs", "constraints"), text_column("source")});
  }
  for (const ScheduleInfo& info : schedule_catalogue()) {
    table.rows.push_back({std::string(info.name), std::string(info.summary), std::string(info.peak_in_flight)});
    if (!everything) continue;
    for (const std::string_view text : {info.makespan, info.constraints, info.source})
      table.rows.back().emplace_back(text);
  }
  if (!everything) table.notes.emplace_back("--format json adds closed forms, constraints and sources");
  return table;
}

namespace {

class ScheduleCheck final : public Question {
 public:
  void declare(Form& form) override {
    schedule_.add_to(form);
    form.begin_group("Transfers");
    form.add_flag("--in-order-transfers", in_order_,
                  "treat different orders of transfers on two ranks as a fault, not a warning");
    form.place_output();
  }

  Answer ask(const Context& context) override {
    verdict_.program = schedule_.cell_program(context.streams);
    const Program compute = compute_of(verdict_.program);
    verdict_.actions = compute.action_count();
    verdict_.fault = find_fault(verdict_.program);
    if (!verdict_.fault) find_mismatch(context);
    Answer answer{.tables = [this] { return std::vector<Table>{verdict_table(verdict_)}; },
                  .json = [this] { return dumped(verdict_json(verdict_), 2); }};
    if (!verdict_.fault) return answer;
    // The schedule is readable but cannot be executed: a negative answer. A terminal shows only the place of the fault.
    if (context.format == Format::kTable) answer.text = [] { return std::string(); };
    answer.finish = [why = explain(verdict_.program, compute, *verdict_.fault)] { throw NegativeAnswer(why); };
    return answer;
  }

 private:
  void find_mismatch(const Context& context) {
    Fault mismatch = find_transfer_mismatch(verdict_.program);
    if (!mismatch) return;
    if (in_order_) {
      verdict_.fault = std::move(mismatch);
      return;
    }
    context.warn(
        fmt::format("{}: {}; a transport that runs them in order, as NCCL does, hangs or swaps tensors "
                    "(--in-order-transfers makes this a fault)",
                    verdict_.program.schedule, render_fault(*mismatch)));
  }

  ScheduleOptions schedule_;
  bool in_order_ = false;
  Verdict verdict_;
};

class CatalogueOfSchedules final : public Question {
 public:
  void declare(Form& form) override { form.place_output(); }
  Answer ask(const Context& context) override {
    return {.tables = [format = context.format] { return std::vector<Table>{schedule_table(format)}; }};
  }
};

// Times only matter to a schedule whose order depends on them; without times, it is generated for equal times.
Program program_for(const ScheduleOptions& schedule, const TimeOptions& times, const Context& context) {
  if (!times.given()) return schedule.program(context.streams);
  if (!schedule.uses_times()) {
    throw ConfigError({"--forward and the other times", "have no effect: the order does not depend on them", "",
                       "omit them, or use a schedule such as zb-auto"});
  }
  const auto times_of = [&times](const Program& stages) { return times.times_for(stages); };
  Program program = schedule.program(times_of, context.streams);
  refuse_unused_fused(times, has_pairs(program), "schedule " + program.schedule);
  if (const std::string assumed = times.assumed_for(program); !assumed.empty()) context.warn(assumed);
  return program;
}

class ScheduleShow final : public Question {
 public:
  void declare(Form& form) override {
    schedule_.add_to(form);
    order_.add_to(form);
    form.add_flag("--versions", versions_, "show the weight versions of every F and B instead of the order");
    form.add_option("--policy", policy_, "NAME",
                    "with --versions and a file: stashed, vertical-sync, double-buffered, newest or flushed");
    form.add_flag("--vertical-sync", vertical_sync_, "same as --schedule pipedream:vertical-sync");
    times_.add_to(form);
    form.place_output();
  }

  Answer ask(const Context& context) override {
    if (versions_) return versions(context);
    if (policy_) throw ConfigError({"--policy", "applies only to weight versions", "", "add --versions"});
    if (vertical_sync_) {
      throw ConfigError({"--vertical-sync", "applies only to weight versions", "", "add --versions"});
    }
    return order_.answer(program_for(schedule_, times_, context), context, context.format);
  }

 private:
  Answer versions(const Context& context) {
    if (order_.given() || times_.given())
      throw ConfigError({"--versions", "replaces the order", "", "omit the flags that change the order"});
    if (vertical_sync_ && policy_)
      throw ConfigError({"--policy", "conflicts with --vertical-sync", "", "give only one of them"});
    if (vertical_sync_) policy_ = name_of(WeightPolicy::kVerticalSync);
    schedule_.accept_accumulation_beside_file();
    return versions_answer(schedule_, policy_, context.streams);
  }

  ScheduleOptions schedule_;
  OrderOptions order_;
  TimeOptions times_;
  bool versions_ = false;
  bool vertical_sync_ = false;
  std::optional<std::string> policy_;
};

class ScheduleExport final : public Question {
 public:
  void declare(Form& form) override {
    schedule_.add_to(form);
    order_.add_to(form);
    times_.add_to(form);
    form.place_output();
    form.add_option("--for", target_, "PROGRAM", "torch (default) or ours");
  }

  Answer ask(const Context& context) override {
    const bool for_torch = choice_of("--for", target_.value_or("torch"), {"torch", "ours"}, "program") == 0;
    const Program program = program_for(schedule_, times_, context);
    require_valid(program);
    if (for_torch && !program.replicas_of_stage.empty()) {
      throw ConfigError({"--for", "PyTorch executes a stage on one rank, but this schedule has replicated stages", "",
                         "give --for ours, which flopcast can read"});
    }
    // Other programs read CSV; the other formats are previews for people.
    return order_.answer(program, context, context.format_given ? context.format : Format::kCsv);
  }

 private:
  ScheduleOptions schedule_;
  OrderOptions order_;
  TimeOptions times_;
  std::optional<std::string> target_;
};

}  // namespace

std::vector<QuestionInfo> schedule_questions() {
  return {
      {"schedule list",
       "list the schedules that flopcast can generate",
       "flopcast schedule list [options]",
       "Lists the schedules that flopcast can generate.",
       {"flopcast schedule list", "flopcast schedule list --format json"},
       make_question<CatalogueOfSchedules>},
      {"schedule show",
       "show the order of every rank's actions",
       "flopcast schedule show (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
       "Shows the order in which every rank executes its actions.",
       {"flopcast schedule show --schedule 1f1b --pp 4 --microbatches 8",
        "flopcast schedule show --schedule interleaved --pp 4 --microbatches 8 --vpp 2 --format csv",
        "flopcast schedule show --schedule interleaved --pp 2 --microbatches 4 --vpp 2 --with-comm",
        "flopcast schedule show --schedule zb-auto --pp 4 -m 8 --memory-limit 6 --forward 10 --backward 21",
        "flopcast schedule show --schedule pipedream --pp 4 --microbatches 8 --versions"},
       make_question<ScheduleShow>},
      {"schedule check",
       "check whether a schedule in a file can be executed",
       "flopcast schedule check FILE.csv [options]",
       "Checks whether a schedule can be executed: exit code 0 if it can, 3 if it cannot, with the place of the fault. "
       "Ranks and steps count from 0; each cell of a line is a step. Sends, receives and other communications in a "
       "file "
       "are checked, too.",
       {"flopcast schedule check mine.csv", "flopcast schedule check dualpipe.csv --chains 0-3,4-7",
        "flopcast schedule check lowered.csv --in-order-transfers"},
       make_question<ScheduleCheck>},
      schedule_simulate_question(),
      schedule_compare_question(),
      {"schedule export",
       "write a schedule for another program",
       "flopcast schedule export (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
       "Writes a schedule for another program. torch: the CSV that torch.distributed.pipelining "
       "loads, as compute_only, or with --with-comm as compute_comms; ours is the same text.",
       {"flopcast schedule export --schedule 1f1b --pp 4 --microbatches 8 -o 1f1b.csv",
        "flopcast schedule export mine.csv --with-comm -o lowered.csv"},
       make_question<ScheduleExport>},
  };
}

}  // namespace flopcast
