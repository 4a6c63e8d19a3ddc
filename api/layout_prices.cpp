#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "api/inputs.hpp"
#include "base/text/error.hpp"
#include "model/job/rules.hpp"
#include "planner/bounds/bounds.hpp"
#include "planner/plan/plan.hpp"
#include "planner/search/search.hpp"
#include "planner/shared/crew.hpp"
#include "sim/forecast/evaluate.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

// Members of LayoutPricer::State, whose types must therefore have linkage.
namespace layout_prices {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Columns of a layout, in the order of RowValues. Rows are sorted by it and priced in that order, so that rows with the
// same micro-batch size, which share programs and blocks, are adjacent.
enum Column : std::size_t {
  kNodes,
  kMicroBatch,
  kTensorRanks,
  kPipelineRanks,
  kContextRanks,
  kExpertRanks,
  kChunks,
  kGlobalBatch,
  kZero,
  kSequenceParallel,
  kRecompute,
  kSchedule,
  kColumns,
};
const std::array<std::string, kColumns>& column_names() {
  static const std::array<std::string, kColumns> names = {"nodes",
                                                          "micro_batch_size",
                                                          std::string(name_of(Axis::kTensor)),
                                                          std::string(name_of(Axis::kPipeline)),
                                                          std::string(name_of(Axis::kContext)),
                                                          std::string(name_of(Axis::kExpert)),
                                                          "vpp",
                                                          "global_batch_size",
                                                          "zero",
                                                          "sequence_parallel",
                                                          "recompute",
                                                          "schedule"};
  return names;
}

// Negative: the job's value.
constexpr int kAsGiven = -1;
// dp of a job in which it follows from the other axes.
constexpr int kDerivedDp = 0;
// Shards of a job whose hsdp shards follow from the axes.
constexpr int kShardsOfAxes = 0;
using RowValues = std::array<int, kColumns>;

RowValues as_given() {
  RowValues row;
  row.fill(kAsGiven);
  return row;
}

std::size_t column_of(const std::string& name) {
  const auto& names = column_names();
  const auto place = std::find(names.begin(), names.end(), name);
  if (place != names.end()) return static_cast<std::size_t>(place - names.begin());
  throw ConfigError({name, "is not a column of layouts", "", choices_help(name, {names.begin(), names.end()})});
}

// Checks the value against the range of the column.
void require_range(std::size_t column, int value) {
  constexpr int kMost = 100'000'000;
  constexpr int kMostZero = 3;
  constexpr int kMostRecompute = 2;
  const int least = column == kZero || column == kSequenceParallel || column >= kRecompute ? 0 : 1;
  const int most = column == kZero               ? kMostZero
                   : column == kSequenceParallel ? 1
                   : column == kRecompute        ? kMostRecompute
                                                 : kMost;
  if (value >= least && value <= most) return;
  throw ConfigError({column_names()[column], fmt::format("{} is out of range", value), "",
                     fmt::format("expected a whole number from {} to {}", least, most)});
}

// Reason why a layout has no price: the rule that it breaks.
struct PriceRefusal {
  std::string text;
};

struct RowPrice {
  double time_s = kNone;
  double memory_gib = kNone;
  bool fits = false;
};

// Prices of one job's layouts on one thread. Keeps the programs of schedules, which layouts share.
class ThreadPricer {
 public:
  explicit ThreadPricer(const Job& job, const std::vector<std::string>& schedules)
      : base_(job), job_(job), schedules_(schedules) {
    if (job.profile) {
      throw ConfigError({"model", "is a layer profile, but only layouts of transformers can be priced", "",
                         "simulate one layout at a time"});
    }
  }

  RowPrice price(const RowValues& row, PriceKind kind) {
    apply_row(row);
    refuse_broken_rules();
    return kind == PriceKind::kBound ? bound() : simulated();
  }

 private:
  struct ShapeKey {
    std::string schedule;
    int pipeline_ranks;
    int chunks;
    int microbatches;
    PriceKind kind;
    bool operator<(const ShapeKey& other) const {
      return std::tie(pipeline_ranks, chunks, microbatches, kind, schedule) <
             std::tie(other.pipeline_ranks, other.chunks, other.microbatches, other.kind, other.schedule);
    }
  };
  // A layout's step up to its prices, or the reason why there is none.
  struct Shape {
    std::optional<PreparedStep> step;
    std::optional<ScheduleShape> outline;  // for bounds
    std::string refusal;
  };

  void apply_row(const RowValues& row) {
    const auto value = [&row](Column column, int otherwise) { return row[column] < 0 ? otherwise : row[column]; };
    const int nodes = value(kNodes, base_.cluster.nodes);
    if (nodes != job_.cluster.nodes) {
      job_ = on_nodes(base_, nodes);
      shapes_.clear();
      shared_prices_.emplace();
    }
    Layout& layout = job_.layout;
    layout = base_.layout;
    layout.tp = value(kTensorRanks, layout.tp);
    layout.pp = value(kPipelineRanks, layout.pp);
    layout.cp = value(kContextRanks, layout.cp);
    layout.ep = value(kExpertRanks, layout.ep);
    if (row[kChunks] > 0) layout.vpp = row[kChunks];
    layout.micro_batch_size = value(kMicroBatch, layout.micro_batch_size);
    layout.global_batch_size = value(kGlobalBatch, layout.global_batch_size);
    layout.zero = value(kZero, layout.zero);
    if (row[kSequenceParallel] >= 0) layout.sequence_parallel = row[kSequenceParallel] != 0;
    if (row[kRecompute] >= 0) layout.recompute = static_cast<Recompute>(row[kRecompute]);
    if (row[kSchedule] >= 0) layout.schedule = schedules_[static_cast<std::size_t>(row[kSchedule])];
  }

  void refuse_broken_rules() {
    Layout& layout = job_.layout;
    const std::int64_t model_ranks = std::int64_t{layout.tp} * layout.pp * layout.cp;
    const int devices = job_.cluster.devices();
    if (devices % model_ranks != 0) throw PriceRefusal{"tp cp pp do not divide the devices"};
    layout.dp = static_cast<int>(devices / model_ranks);
    if (base_.layout.dp != kDerivedDp && layout.dp != base_.layout.dp)
      throw PriceRefusal{"tp cp pp leave a different dp than requested"};
    if (layout.shards == kShardsOfAxes) settle_layout(job_, {.dp = true, .global_batch_size = true});
    const std::int64_t slice = std::int64_t{layout.dp} * layout.micro_batch_size;
    if (layout.global_batch_size % slice != 0)
      throw PriceRefusal{"dp · micro_batch_size does not divide global_batch_size"};
    if (const LayoutRule* rule = first_broken(job_)) throw PriceRefusal{std::string(rule->sentence)};
    if (std::int64_t{layout.pp} * layout.vpp.value_or(1) > job_.model.layers)
      throw PriceRefusal{"more stages than layers"};
  }

  // Bounds need only properties of a program that one with fewer microbatches shares; the count matches ScheduleShapes.
  static int few_microbatches(const Layout& layout) {
    const int all = layout.microbatches();
    return all < 3 * layout.pp || all < 4 ? all : std::max(2, 2 * layout.pp + all % layout.pp);
  }

  static PreparedStep prepared_with(Job job, int microbatches) {
    job.layout.global_batch_size = microbatches * job.layout.dp * job.layout.micro_batch_size;
    return prepare_periodic(std::move(job), [](const std::string& path) -> std::string {
      throw ConfigError(
          {"layout.schedule", path + " is a file, which pricing does not support", "", "use simulate instead"});
    });
  }

  // True if a step with fewer microbatches represents the layout's. False if updates depend on their number, or if the
  // schedule would refuse all of them.
  bool represents_all(const PreparedStep& step) const {
    if (step.schedule == nullptr || step.program.asynchronous) return false;
    ScheduleRequest request = step.request;
    request.microbatches = job_.layout.microbatches();
    return !refuse_request(*step.schedule, request);
  }

  Shape& shape_of_layout(PriceKind kind) {
    const Layout& layout = job_.layout;
    const int all = layout.microbatches();
    const int few = kind == PriceKind::kBound ? few_microbatches(layout) : all;
    ShapeKey key{layout.schedule, layout.pp, layout.vpp.value_or(0), all, kind};
    const auto known = shapes_.find(key);
    if (known != shapes_.end()) return known->second;
    if (actions_ > kMostActionsKept) {
      shapes_.clear();
      actions_ = 0;
    }
    Shape& shape = shapes_[key];
    try {
      if (few < all) {
        try {
          shape.step = prepared_with(job_, few);
        } catch (const ConfigError&) {
          shape.step.reset();  // the schedule refuses this smaller number of microbatches
        }
        if (shape.step && !represents_all(*shape.step)) shape.step.reset();
      }
      if (!shape.step) shape.step = prepared_with(job_, all);
      actions_ += shape.step->program.action_count();
    } catch (const ConfigError& error) {
      shape.refusal = error.diagnostic().problem;
    }
    return shape;
  }

  Shape& prepared(PriceKind kind) {
    Shape& shape = shape_of_layout(kind);
    if (!shape.step) throw PriceRefusal{shape.refusal};
    // Choices made by the schedule stay; everything else comes from this row.
    Layout& settled = shape.step->job.layout;
    std::string schedule = std::move(settled.schedule);
    const std::optional<int> vpp = settled.vpp;
    const std::optional<int> accumulation = settled.accumulation;
    const std::optional<int> slices = settled.slices;
    settled = job_.layout;
    settled.schedule = std::move(schedule);
    settled.vpp = vpp;
    settled.accumulation = accumulation;
    settled.slices = slices;
    shape.step->job.assumptions.clear();
    return shape;
  }

  RowPrice simulated() {
    PreparedStep& step = *prepared(PriceKind::kSimulated).step;
    spread_layers_or_refuse(step);
    flopcast::price(step);
    const Evaluation evaluation = evaluate(step, Detail::kTime, {.buffers = &buffers_});
    return {evaluation.time_s, evaluation.memory.shown_gib, evaluation.memory.fits};
  }

  static void spread_layers_or_refuse(PreparedStep& step) {
    try {
      spread_layers(step);
    } catch (const ConfigError& error) {
      throw PriceRefusal{error.diagnostic().problem};
    }
  }

  RowPrice bound() {
    Shape& shape = prepared(PriceKind::kBound);
    PreparedStep& step = *shape.step;
    spread_layers_or_refuse(step);
    if (!shape.outline) {
      SearchSpace space;
      space.schedules = {schedule_choice(step.schedule->name)};
      space.schedules.front().variant = step.request.variant;
      ScheduleShapes shapes(step.job.layout, space);
      shape.outline = shapes.shape(0, step.request.pipeline_ranks, step.request.chunks, step.job.layout.microbatches());
    }
    const StepCosts costs =
        price_for_bounds(step.job, shape.outline->stages, step.job.layout.stage_layers, &*shared_prices_);
    const FullestRank memory = memory_bound(step.job, *shape.outline, costs);
    return {time_bound(step.job, *shape.outline, costs), memory.bytes / kGibibyte, memory.share <= 1.0};
  }

  static constexpr std::size_t kMostActionsKept = 20'000'000;

  const Job base_;
  Job job_;
  const std::vector<std::string>& schedules_;
  std::map<ShapeKey, Shape> shapes_;
  std::optional<SharedPrices> shared_prices_{std::in_place};  // shared by layouts on the same number of nodes
  std::size_t actions_ = 0;
  PlayBuffers buffers_;
};

// Rows of the columns, checked.
class Rows {
 public:
  explicit Rows(const LayoutColumns& layouts) : layouts_(layouts) {
    columns_.fill(nullptr);
    for (const auto& [name, values] : layouts.values) {
      const std::size_t column = column_of(name);
      if (values.size() != layouts.rows && values.size() != 1) {
        throw ConfigError({name, fmt::format("has {} values for {} layouts", values.size(), layouts.rows), "",
                           "give one value per layout, or one for all"});
      }
      for (const std::int32_t value : values) require_range(column, value);
      columns_[column] = &values;
    }
    if (columns_[kSchedule] == nullptr) return;
    for (const std::int32_t value : *columns_[kSchedule]) {
      if (static_cast<std::size_t>(value) < layouts.schedules.size()) continue;
      throw ConfigError({"schedule",
                         fmt::format("{} is not an index into {} schedules", value, layouts.schedules.size()), "",
                         "give an index into the list of schedules"});
    }
  }

  RowValues row(std::size_t index) const {
    RowValues row = as_given();
    for (std::size_t column = 0; column < kColumns; ++column) {
      if (columns_[column] != nullptr) row[column] = (*columns_[column])[columns_[column]->size() == 1 ? 0 : index];
    }
    return row;
  }

 private:
  const LayoutColumns& layouts_;
  std::array<const std::vector<std::int32_t>*, kColumns> columns_{};
};

// A job whose layout is open. A value that it gives for an axis applies to all rows without that column; the defaults
// are one rank, one sequence per microbatch, no sharding and no recomputation.
Job job_to_price(const JobInput& input) {
  const LoadedJob loaded = load_input(input);
  require_named_cluster(loaded);
  PlanQuestion question = read_question(loaded.root, loaded.origins);
  Job job = std::move(question.job);
  const SearchSpace& space = question.space;
  const auto fix = [](const auto& axis, auto& value) {
    if (axis.size() == 1) value = axis.front();
  };
  for (const Axis axis : kAxes) {
    job.layout[axis] = 1;
    fix(space[axis], job.layout[axis]);
  }
  // dp is never chosen: rows must match a dp that the job fixes.
  if (space.dp.empty()) job.layout.dp = kDerivedDp;
  fix(space.micro_batch_size, job.layout.micro_batch_size);
  fix(space.zero, job.layout.zero);
  fix(space.recompute, job.layout.recompute);
  if (space.sequence_parallel.size() == 1) job.layout.sequence_parallel = space.sequence_parallel.front() != 0;
  if (space.vpp.size() == 1) job.layout.vpp = space.vpp.front();
  const nlohmann::json& layout = loaded.root["layout"];
  if (layout.contains("schedule")) job.layout.schedule = space.schedules.front().text;
  if (job.layout.data_parallel == DataParallel::kHsdp && !layout.contains("shards")) job.layout.shards = kShardsOfAxes;
  // The planner tries splits; a row uses the job's.
  const auto split = layout.find("stage_layers");
  if (split != layout.end() && split->is_string())
    job.layout.stage_split = parse<StageSplit>(split->get<std::string>());
  return job;
}

}  // namespace layout_prices

using namespace layout_prices;

LayoutPrices price_layouts(const JobInput& input, const LayoutColumns& layouts, PriceKind kind, int threads) {
  const Job job = job_to_price(input);
  const Rows rows(layouts);
  LayoutPrices prices;
  prices.time_s.assign(layouts.rows, kNone);
  prices.memory_gib.assign(layouts.rows, kNone);
  prices.fits.assign(layouts.rows, 0);
  prices.reason.assign(layouts.rows, 0);
  // Similar layouts are adjacent, so that one thread prices their common parts once.
  std::vector<std::pair<RowValues, std::size_t>> order(layouts.rows);
  for (std::size_t index = 0; index < layouts.rows; ++index) order[index] = {rows.row(index), index};
  std::sort(order.begin(), order.end());
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  constexpr std::size_t kFewest = 128;  // least number that is worth a thread
  const std::size_t workers = std::clamp<std::size_t>(static_cast<std::size_t>(threads > 0 ? threads : cores), 1,
                                                      std::max<std::size_t>(1, layouts.rows / kFewest));
  // Each worker starts with adjacent rows, then takes over rows of slower workers.
  constexpr std::size_t kPiecesEach = 8;
  const std::size_t pieces = workers * kPiecesEach;
  std::vector<std::atomic<std::size_t>> taken(workers);
  std::vector<std::map<std::string, std::vector<std::size_t>>> refused(workers);
  const auto work = [&](std::size_t worker) {
    ThreadPricer maker(job, layouts.schedules);
    const auto next_piece = [&] {
      for (std::size_t step = 0; step < workers; ++step) {
        const std::size_t owner = (worker + step) % workers;
        const std::size_t mine = taken[owner]++;
        if (mine < kPiecesEach) return owner * kPiecesEach + mine;
      }
      return pieces;
    };
    for (std::size_t piece = next_piece(); piece < pieces; piece = next_piece()) {
      const std::size_t end = layouts.rows * (piece + 1) / pieces;
      std::size_t same = end;  // last row that was priced
      for (std::size_t place = layouts.rows * piece / pieces; place < end; ++place) {
        const auto& [row, index] = order[place];
        const bool again = same < end && order[same].first == row;
        const std::size_t before = again ? order[same].second : index;
        try {
          const RowPrice price =
              again ? RowPrice{prices.time_s[before], prices.memory_gib[before], prices.fits[before] != 0}
                    : maker.price(row, kind);
          prices.time_s[index] = price.time_s;
          prices.memory_gib[index] = price.memory_gib;
          prices.fits[index] = price.fits ? 1 : 0;
          same = place;
        } catch (const PriceRefusal& refusal) {
          refused[worker][refusal.text].push_back(index);
        }
      }
    }
  };
  threaded_for(static_cast<int>(workers))(workers, work);
  std::map<std::string, std::vector<std::size_t>> all_refused;
  for (const auto& of_worker : refused) {
    for (const auto& [text, indices] : of_worker) {
      std::vector<std::size_t>& all = all_refused[text];
      all.insert(all.end(), indices.begin(), indices.end());
    }
  }
  prices.reasons = {""};
  for (const auto& [text, indices] : all_refused) {
    constexpr std::size_t kMostReasons = 65'535;
    if (prices.reasons.size() < kMostReasons) prices.reasons.push_back(text);
    for (const std::size_t index : indices)
      prices.reason[index] = static_cast<std::uint16_t>(prices.reasons.size() - 1);
  }
  return prices;
}

struct LayoutPricer::State {
  explicit State(const Job& job) : maker(job, schedules) {}
  std::vector<std::string> schedules;
  ThreadPricer maker;
};

LayoutPricer::LayoutPricer(const JobInput& job) : state_(std::make_unique<State>(job_to_price(job))) {}
LayoutPricer::~LayoutPricer() = default;

LayoutPricer::Price LayoutPricer::price(const std::vector<std::pair<std::string, int>>& layout,
                                        const std::string& schedule, PriceKind kind) {
  RowValues row = as_given();
  for (const auto& [name, value] : layout) {
    const std::size_t column = column_of(name);
    require_range(column, value);
    row[column] = value;
  }
  if (!schedule.empty()) {
    std::vector<std::string>& known = state_->schedules;
    const auto place = std::find(known.begin(), known.end(), schedule);
    row[kSchedule] = static_cast<int>(place - known.begin());
    if (place == known.end()) known.push_back(schedule);
  }
  try {
    const RowPrice price = state_->maker.price(row, kind);
    return {price.time_s, price.memory_gib, price.fits};
  } catch (const PriceRefusal& refusal) {
    throw ConfigError({"layout", refusal.text, "", "use a different layout"});
  }
}

LayoutColumns enumerate_layouts_of(const JobInput& input) {
  const LoadedJob loaded = load_input(input);
  require_named_cluster(loaded);
  const PlanQuestion question = read_question(loaded.root, loaded.origins);
  const LayoutSpace space = enumerate_layouts(question.job, question.space);
  LayoutColumns layouts;
  for (const ScheduleChoice& choice : question.space.schedules) layouts.schedules.push_back(choice.text);
  std::array<std::vector<std::int32_t>*, kColumns> columns{};
  for (std::size_t column = kNodes + 1; column < kColumns; ++column) {
    if (column != kGlobalBatch) columns[column] = &layouts.values[column_names()[column]];
  }
  for (const LayoutGroup& group : space.groups) {
    for (const LayoutMember& member : space.members[group.members]) {
      if (question.space.splits[member.split].kind != SplitRule::Kind::kUniform) continue;
      ++layouts.rows;
      columns[kTensorRanks]->push_back(group.tp);
      columns[kPipelineRanks]->push_back(group.pp);
      columns[kContextRanks]->push_back(group.cp);
      columns[kExpertRanks]->push_back(group.ep);
      columns[kChunks]->push_back(member.chunks);
      columns[kMicroBatch]->push_back(group.micro_batch_size);
      columns[kZero]->push_back(member.zero);
      columns[kSequenceParallel]->push_back(group.sequence_parallel ? 1 : 0);
      columns[kRecompute]->push_back(static_cast<std::int32_t>(group.recompute));
      columns[kSchedule]->push_back(member.schedule);
    }
  }
  return layouts;
}

}  // namespace flopcast
